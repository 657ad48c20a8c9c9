"""Calibration: scales of FP8 for the convolutions of a model directory, from data of its own.

    print(calibrate("repository/minkunet", "frame.npz"))

SPDX-License-Identifier: Apache-2.0
"""

import json
import os
import shutil
import subprocess
import tempfile

import numpy as np

from . import fp8
from .check import program_of
from .definition import weights_in_fp8
from .definition_layers import inputs_of
from .errors import ExportError
from .example import Example
from .network import replace_file, text_of
from .publish import may_replace, move

DATA = "fp8.npz"  # beside network.json

# Of outputs.  The families with random weights have 0.0002 to 0.0106 (README.md): a model that
# needs more has layers that do not suit FP8, or scales of other data.
NMSE_MAX = 0.02

# The largest number of the data becomes at most half of e4m3's largest.  A number of e4m3 has 3
# bits of fraction whatever its size, so that nothing is lost, and a request may be twice as large
# before anything is cut off.
INPUT_MOST = fp8.MOST / 2

# Narrower layers gain less than the rounding of their rows costs.  Microseconds of one convolution
# of 3^3 on an H200, the rounding in FP8's:
#
#   voxels     64,160  252,392  64,160  64,160  252,392  64,160  15,192
#   channels       64       64     128     256      256     512    1024
#   FP16         18.4      107      72     216      769     937    1040
#   FP8          22.9      135      66     182      582     559     592
CHANNELS_LEAST, CHANNELS_UNIT = 128, 16


def calibrate(
    folder, data, *, output=None, nmse_max=None, layers=None, precision=None, voxeld=None
):
    """Writes fp8_scale of layers, and fp8, into a model directory's network.json.

    data       an .npz with coords and feats; they become fp8.npz beside network.json
    output     the directory that becomes the copy with FP8; None: `folder` itself changes
    nmse_max   the bound that the model states (NMSE_MAX)
    layers     names of convolutions; None: those that `_usual` finds
    precision  "fp16", "bf16": also sets the network's

    Returns a table and the verdict of `voxeld check`.  Raises ExportError, with the same, if it
    refuses the result: then nothing is changed.
    """
    folder, program = os.path.realpath(folder), program_of(voxeld)
    document = fp8.plain(_read(folder))
    version = _highest_version(folder)
    example = Example.open(data)
    names = _named(document, layers) if layers else _candidates(document)
    with tempfile.TemporaryDirectory(prefix="voxeld-calibrate-") as work:
        inputs = _inputs(folder, document, version, example, names, work, program)
    names = names if layers else _usual(document, inputs)
    rows = _rows(folder, document, version, inputs, names)
    made = _document(document, rows, NMSE_MAX if nmse_max is None else nmse_max, precision)
    return "\n".join(_table(rows)) + "\n" + _write(folder, output, made, example, program, rows)


# --- which layers ---


def _is_candidate(layer):
    return layer["op"] in fp8.CONVOLUTIONS and layer.get("groups", 1) == 1


def _named(document, layers):
    known = {layer["name"]: layer for layer in document["layers"]}
    for name in layers:
        if name not in known:
            raise ExportError(f"there is no layer {name}; expected convolutions of network.json")
        if not _is_candidate(known[name]):
            groups = known[name].get("groups", 1)
            what = f"a {known[name]['op']}" + (f" of {groups} groups" if groups != 1 else "")
            raise ExportError(f"layer {name} is {what}; expected a convolution of 1 group")
    return list(dict.fromkeys(layers))


def _wide(channels):
    return channels >= CHANNELS_LEAST and channels % CHANNELS_UNIT == 0


def _candidates(document):
    """The convolutions that may be usual, before the channels of their inputs are known."""
    ends = _ends(document)
    found = [
        layer["name"]
        for layer in document["layers"]
        if _is_candidate(layer) and _wide(layer["channels"]) and layer["name"] not in ends
    ]
    return found or _none()


def _usual(document, inputs):
    found = [name for name in _candidates(document) if _wide(inputs[name][1])]
    return found or _none()


def _none():
    raise ExportError(
        f"no convolution between the first and the last has {CHANNELS_LEAST} channels or more "
        f"in and out, multiples of {CHANNELS_UNIT}: name layers with --layers"
    )


def _ends(document):
    """The first and the last product of each path from the features to an output.

    What a request sends has any range, of which a frame shows little; and nothing behind the last
    product averages its error.
    """
    feats = document["inputs"]["feats"].get("name", "feats")
    early, ends = {feats}, set()
    for layer in document["layers"]:
        if early.intersection(inputs_of(layer)):
            (ends if _is_product(layer) else early).add(layer["name"])
    late = {output["layer"] for output in document["outputs"]}
    for layer in reversed(document["layers"]):
        if layer["name"] not in late:
            continue
        if _is_product(layer):
            ends.add(layer["name"])
        else:
            late.update(inputs_of(layer))
    return ends


def _is_product(layer):
    return layer["op"] in fp8.CONVOLUTIONS or layer["op"] == "linear"


# --- what they read, and their weights ---


def _inputs(folder, document, version, example, names, work, program):
    """{layer: (largest number of its input, channels)}: from a recording of the network in f32."""
    feats = document["inputs"]["feats"].get("name", "feats")
    reads = {layer["name"]: inputs_of(layer)[0] for layer in document["layers"]}
    model = _stage(work, folder, {**document, "warmup": []})
    example_path, out = os.path.join(work, DATA), os.path.join(work, "recording.npz")
    _save(example_path, example)
    words = [program, "record", f"{model}/{version}", "--example", example_path, "-o", out]
    wanted = sorted({reads[name] for name in names} - {feats})
    words += ["--layers", ",".join(wanted)] if wanted else ["--outputs-only"]
    if any("," in name for name in wanted):
        words = words[:-2]  # all layers: a comma stands between names
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    if run.returncode:
        raise ExportError(f"voxeld record refuses the network or the data:\n{run.stderr.strip()}")
    found = {}
    with np.load(out) as arrays:
        for name in names:
            key = "feats" if reads[name] == feats else "layer." + reads[name]
            array = arrays[key]
            most = float(np.abs(array).max(initial=0.0))
            if not np.isfinite(most):
                raise ExportError(f"layer {name} reads numbers that are not finite on the data")
            found[name] = most, array.shape[1]
    return found


class _Row:
    """A layer in FP8: what the table shows of it."""

    def __init__(self, name, most, scale, error):
        self.name, self.most, self.scale, self.error = name, most, scale, error


def _rows(folder, document, version, inputs, names):
    weights = weights_in_fp8(
        folder, document, {name: inputs[name][1] for name in names}, version=version
    )
    rows = []
    for name in names:
        most, (weight, rounded) = inputs[name][0], weights[name]
        squares = float(np.square(weight).sum())
        error = float(np.square(rounded - weight).sum()) / squares if squares else 0.0
        rows.append(_Row(name, most, fp8.scale_for(most, INPUT_MOST), error))
    return rows


def _table(rows):
    yield f"{'layer':<32} {'largest input':>14} {'scale':>7} {'NMSE of weights':>16}"
    for row in rows:
        scale = f"2^{int(np.log2(row.scale))}"
        yield f"{row.name:<32} {row.most:14.4g} {scale:>7} {row.error:16.3g}"


# --- the files ---


def _read(folder):
    path = os.path.join(folder, "network.json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise ExportError(f"{path} is not a network.json: {error}") from error


def _highest_version(folder):
    versions = [int(name) for name in os.listdir(folder) if name.isdigit() and name[0] != "0"]
    if not versions:
        raise ExportError(f"{folder} has no version; expected 1/weights.safetensors in it")
    return max(versions)


def _document(document, rows, nmse_max, precision):
    """network.json with FP8: keys keep their order, new ones stand last."""
    if not 0 < nmse_max <= 1:
        raise ExportError(f"an NMSE of {nmse_max} is no bound; expected above 0, at most 1")
    scales = {row.name: _number(row.scale) for row in rows}
    made = {**document, "layers": [dict(layer) for layer in document["layers"]]}
    for layer in made["layers"]:
        if layer["name"] in scales:
            layer["fp8_scale"] = scales[layer["name"]]
    if precision:
        made["precision"] = precision
    made["fp8"] = {"data": DATA, "nmse_max": nmse_max}
    return made


def _number(scale):
    return int(scale) if scale >= 1 else scale


def _save(path, example):
    """Without what else a recording has, and not compressed, as voxeld reads it."""
    np.savez(path, coords=example.coords, feats=example.feats)


def _stage(work, folder, document):
    """A model directory with another network.json and the same weights."""
    staged = os.path.join(work, os.path.basename(folder))
    os.makedirs(staged)
    for name in os.listdir(folder):
        if name.isdigit():
            os.symlink(os.path.join(folder, name), os.path.join(staged, name))
    replace_file(os.path.join(staged, "network.json"), text_of(document))
    return staged


def _write(folder, output, document, example, program, rows):
    """Puts the files into their place if voxeld accepts them; returns its verdict."""
    if output:
        output = os.path.realpath(output)
        may_replace(output)
        os.makedirs(os.path.dirname(output), exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=".calibrate-", dir=os.path.dirname(output or folder)
    ) as work:
        staged = _stage(work, folder, document)
        _save(os.path.join(staged, DATA), example)
        verdict = _verdict(staged, program, rows)
        if output:
            copy = os.path.join(work, "copy")
            shutil.copytree(folder, copy)
            _put(staged, copy)
            move(copy, output)
        else:
            _put(staged, folder)
    return verdict


def _put(staged, folder):
    """The data first: a network.json that names it is never without it."""
    for name in (DATA, "network.json"):
        shutil.copyfile(os.path.join(staged, name), os.path.join(folder, name + ".new"))
        os.replace(os.path.join(folder, name + ".new"), os.path.join(folder, name))


def _verdict(staged, program, rows):
    run = subprocess.run([program, "check", staged], capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("FP8: ")), len(lines))
    if run.returncode:
        table = "\n".join([*_table(rows), *lines[first:]])
        flag = "\n--precision fp16 or bf16 sets it" if '"precision": expected' in run.stderr else ""
        raise ExportError(
            f"voxeld check refuses the result, and nothing is changed:\n{table}\n"
            f"{run.stderr.strip()}{flag}"
        )
    return "\n".join(lines[first:])
