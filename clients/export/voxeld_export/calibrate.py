"""Calibration: scales of FP8 for the convolutions of a model directory, from data of its own.

    print(calibrate("repository/minkunet", "frame.npz"))

SPDX-License-Identifier: Apache-2.0
"""

import os
import shutil
import subprocess
import tempfile

import numpy as np

from . import fp8
from .check import program_of
from .definition import weights_in_fp8
from .definition_layers import inputs_of
from .definition_weights import Tensors
from .errors import ExportError, some
from .example import Example, not_finite
from .folder import highest_version, may_replace, move, read_document, versions_of
from .network import replace_file, text_of
from .weights import round_weights

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
    folder,
    data,
    *,
    output=None,
    nmse_max=None,
    layers=None,
    precision=None,
    voxeld=None,
    replace=False,
):
    """Writes fp8_scale of layers, and fp8, into a model directory's network.json.

    data       an .npz with coords and feats; they become fp8.npz beside network.json
    output     the directory that becomes the copy with FP8; None: `folder` itself changes
    nmse_max   the bound that the model states (NMSE_MAX)
    layers     names of convolutions; None: those that `_usual` finds
    precision  "fp16", "bf16": also sets the network's
    replace    whether a model that `output` is may go, if it is not an earlier copy of this one

    Returns a table and the verdict of `voxeld check`.  Raises ExportError, with the same, if it
    refuses the result: then nothing is changed.
    """
    folder, program = os.path.realpath(folder), program_of(voxeld)
    document = fp8.plain(read_document(folder))
    version = highest_version(folder)
    if precision:
        _expect_precision(folder, document, version, precision)
    output = output and os.path.realpath(output)
    if output and output != folder:
        _expect_copy(output, folder, document, replace)
    example = _data(data)
    names = _named(document, layers) if layers else _candidates(document)
    with tempfile.TemporaryDirectory(prefix="voxeld-calibrate-") as work:
        inputs = _inputs(folder, document, version, example, names, work, program)
    names = names if layers else _usual(document, inputs)
    _expect_seen(inputs, names)
    rows = _rows(folder, document, version, inputs, names)
    made = _document(document, rows, NMSE_MAX if nmse_max is None else nmse_max, precision)
    verdict = _write(folder, output, made, example, program, rows)
    return "\n".join([*_table(rows), *_of_version(folder, version), verdict])


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
    example.save(example_path)
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


def _expect_precision(folder, document, version, precision):
    """Says what a precision loses of weights that are wider, as an export in it does."""
    tensors = Tensors(os.path.join(folder, str(version), "weights.safetensors"))
    names = {}
    for layer in document["layers"]:
        if _is_product(layer):
            name = layer.get("tensors", {}).get("weight", f"{layer['name']}.weight")
            names[name] = layer["name"]
    for name, layer in names.items():
        round_weights(name, tensors.take(name, layer), precision.upper())


def _expect_seen(inputs, names):
    """ExportError if the data says nothing of a layer's range."""
    unseen = [name for name in names if not inputs[name][0]]
    if unseen:
        raise ExportError(
            f"the data has nothing but zeros for {some(unseen)}, so that no scale is measured; "
            "expected a request like those to come, or --layers with others"
        )


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


def _of_version(folder, version):
    """Says which of several versions was measured; all have the scales."""
    versions = versions_of(folder)
    if len(versions) > 1:
        listed = ", ".join(map(str, versions))
        yield f"measured: version {version} of {listed}, which share the scales"


# --- the files ---


def _data(path):
    """The request of a file, without what else a recording has."""
    example = Example.open(path, outputs=False)
    if not len(example.coords):
        raise ExportError(f"{path} has 0 voxels; expected some, which reach the layers")
    wrong = not_finite(example.feats)
    if wrong:
        raise ExportError(f"{path}: feats have {wrong}; expected finite numbers")
    return example


def _expect_copy(output, folder, document, replace):
    """ExportError where `output` has something else than an earlier copy of the model."""
    kept = [DATA]
    for root, _, files in os.walk(folder, followlinks=True):
        kept += [os.path.relpath(os.path.join(root, name), folder) for name in files]
    may_replace(output, kept, None, replace)
    if replace or not os.path.exists(os.path.join(output, "network.json")):
        return
    there = fp8.plain(read_document(output))
    changed = [
        key
        for key in (*document, *there)
        if key != "precision" and document.get(key) != there.get(key)
    ]
    if changed:
        raise ExportError(
            f"{output} is another model than {folder}: its {changed[0]} differ; expected a new "
            "folder, an empty one, or an earlier copy: --replace (replace=True) lets go of it"
        )


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
        os.makedirs(os.path.dirname(output), exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=".calibrate-", dir=os.path.dirname(output or folder)
    ) as work:
        staged = _stage(work, folder, document)
        example.save(os.path.join(staged, DATA))
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
