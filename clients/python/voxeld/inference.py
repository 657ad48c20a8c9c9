# SPDX-License-Identifier: Apache-2.0
"""One call of infer: the request, and what is remembered of it until the answer.

Arrays that the server does not see by itself, in a region, are read when the Inference is made and
never again, so that they may hold the next grid before the answer has come.  Whatever is needed
later, to send the coordinates again or to know what a name stands for, is taken from the bytes that
were sent.
"""
import numpy as np

from . import headers, messages
from .geometry import digest


def _memory_of(array, given):
    """False if the array is surely a conversion of what was given, which nobody else has."""
    return not isinstance(given, np.ndarray) or np.may_share_memory(array, given)


class Inference:
    """A ModelInferRequest, and its second form if the server has forgotten the geometry.

    data      the bytes of the request
    feats     the features as they are sent
    options   those of infer, as messages.split_geometry leaves them
    wanted    what the answer must have
    """

    def __init__(self, model, coords, feats, options, client):
        self._names, self._regions = client._names, client._regions
        self._model = model
        sent, self.options, again = messages.split_geometry(coords, options, self._names)
        self.feats, self._kind = messages.feats_array(feats, self.options.get("bf16", False))
        self._pack(sent)
        self.wanted = messages.wanted(model, self.feats, self.options)
        # By its name alone nothing of a geometry is in the request: this copy is the only one.
        if again is not None and _memory_of(again, coords) and not self._placed(again):
            again = again.copy()
        self._again = again

    def _placed(self, array):
        return messages.find(array, self._regions) is not None

    def _pack(self, coords):
        """Makes `data`; from then on coords and feats are views of it, if they lie in no region."""
        inputs = coords, (self.feats, self._kind)
        self.data = messages.pack_arrays(self._model, inputs, self.options, self._regions)
        raw = iter(messages.raw_inputs(self.data))
        self._sent, self._before = coords, None
        if coords is not None and not self._placed(coords):
            self._sent = messages.view(next(raw), coords)
        elif coords is not None and self.options.get("coords_ref") is not None:
            self._before = digest(coords)
        if not self._placed(self.feats):
            self.feats = messages.view(next(raw), self.feats)

    @property
    def coords(self):
        """The coordinates that the answer belongs to; None if only their name is known."""
        return self._again if self._sent is None else self._sent

    def metadata(self, given):
        """The headers of the call: the caller's, and x-voxel-geometry."""
        given = headers.of_call(given)
        return self._names.metadata(given, self.options.get("coords_ref"), self.coords)

    def send_coords(self):
        """Puts the coordinates into `data` in the place of a name.  False if there are none."""
        if self._again is None or self._sent is not None:
            return False
        self.options["coords_ref"] = ""
        self._pack(self._again)
        return True

    def read(self, data):
        """The Answer in the bytes of the reply; keeps the name that it has for the coords."""
        answer = messages.read_infer(data, self.wanted)
        self._names.learn(answer.coords_ref, self._sent, self._before)
        return answer
