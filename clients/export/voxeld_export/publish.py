"""Writes a model directory, proves it, and puts it into its place.

SPDX-License-Identifier: Apache-2.0
"""

import os
import shlex
import shutil
import subprocess
import tempfile

from .check import check_folder
from .errors import CheckFailed, ExportError
from .folder import may_replace, move
from .recording import save_recording

_WRITTEN = ("network.json", "1/weights.safetensors", "example.npz")


def publish(
    network,
    example,
    folder,
    *,
    datatype,
    layers,
    again=None,
    elsewhere=None,
    check=True,
    voxeld=None,
    bound=None,
    more=None,
    replace=False,
):
    """Makes `folder` the model directory of a Network; what was there stays until it is proven.

    example  an Example, which becomes example.npz; or a function of the written directory that
             returns one: answers that follow from what was written
    layers   a function of the written directory that returns the source's {layer: (array, coords
             or None)}, for the search of the first layer that differs
    again    a function that returns another Example of the source: other features, same voxels
    elsewhere  a function that raises ExportError if the source is another network on other voxels
    more     keys of network.json's top level
    replace  whether what else the folder has may go: other versions, files, keys of network.json

    Returns the Report of the proof, or None.  If the proof fails, what was made stays beside
    FOLDER as .NAME.failed, which no server serves, with the recording source.npz.
    """
    folder = os.path.realpath(folder)
    may_replace(folder, _WRITTEN, network.document(**(more or {})), replace)
    if not callable(example):
        _expect_outputs(network, example)
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        made = tempfile.mkdtemp(prefix=".export-", dir=os.path.dirname(folder))
    except OSError as error:
        raise ExportError(f"{folder} cannot be made: {error}") from error
    try:
        os.chmod(made, 0o755)
        network.write(made, datatype if datatype != "FP32" else None, **(more or {}))
        if callable(example):
            example = example(made)
            _expect_outputs(network, example)
        example.save(os.path.join(made, "example.npz"))
        others = [again()] if again and check else []
        try:
            report = check and check_folder(made, example, *others, voxeld=voxeld, bound=bound)
        except CheckFailed as error:
            if error.other:
                raise
            failed = os.path.join(os.path.dirname(folder), f".{os.path.basename(folder)}.failed")
            move(made, failed)
            said = _first_difference(failed, example, layers, error.report.bound, voxeld)
            raise CheckFailed(f"{error}\n\n{said}", error.report) from error
        if elsewhere and check:
            elsewhere()
        may_replace(folder, _WRITTEN, network.document(**(more or {})), replace)  # hours may pass
        move(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return report or None


def _expect_outputs(network, example):
    example.expect_outputs([output["name"] for output in network.outputs])


def _first_difference(failed, example, layers, bound, voxeld):
    """What `voxel diff` says of the source's layers and the exported ones."""
    recording = os.path.join(failed, "source.npz")
    save_recording(recording, example, layers(failed))
    words = ["voxel", "diff", recording, failed, "--bound", f"{bound:g}"]
    if voxeld or os.environ.get("VOXELD"):
        words += ["--voxeld", voxeld or os.environ["VOXELD"]]
    program = shutil.which(os.environ.get("VOXEL", "voxel"))
    if not program:
        return f"To see the first layer that differs: {shlex.join(words)}"
    found = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=False)
    return f"$ {shlex.join(words)}\n{found.stdout}{found.stderr}".rstrip()
