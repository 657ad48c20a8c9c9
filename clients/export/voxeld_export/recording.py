"""A recording: a request, and what every layer made of it, for `voxel diff`.

Format: an .npz with coords, feats, and for each layer layer.NAME and, on other voxels than the
request's, at.NAME; the outputs as in example.npz.  clients/README.md, "Layer by layer".

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

from .example import save_arrays


def save_recording(path, example, layers):
    """Writes an Example and layers, {name: (array, coords of its rows or None)}, in their order."""
    arrays = {"coords": example.coords, "feats": example.feats}
    for kind, results in (("layer.", layers), ("out.", example.outputs)):
        for name, (array, coords) in results.items():
            if coords is not None:
                order = np.lexsort(coords.T[::-1])  # ascending, as the server answers
                array, coords = array[order], coords[order]
                arrays["at." + name] = coords.astype(np.int32)
            arrays[kind + name] = array
    save_arrays(path, arrays)
