# SPDX-License-Identifier: Apache-2.0
"""network - the demo's network: its network.json, its weights file, and a forward pass.

    write_weights("weights.safetensors", {"stem.weight": array, ...})
    layers, tensors = load("repository/normals")
    normals = forward(layers, tensors, coords, feats)      # numpy, float32

The forward pass is as simple as possible: for each kernel offset it looks up the
neighbours, gathers their rows and multiplies.  The daemon's answer can be compared with it.
"""

import json
import pathlib
import struct

import numpy as np

CHANNELS = 32
BLOCKS = ((1, 1), (1, 1), (2, 2), (1, 1))  # dilations of each residual block's two layers
TAP = 2  # the head reads the output of this block and of the last
DESCRIPTION = (
    "Surface normals from bare occupancy. feats is 1 for each voxel; normals is [N,3], "
    "unit length. Occupancy does not tell inside from outside: normals point to the side "
    "of (0.42, 0.31, 0.85)."
)

# The last three layers scale the head's vector h to length 1.  (h, -h) has the mean 0 and
# the variance |h|^2 / 3, so layer_norm makes it sqrt(3) (h, -h) / |h|.  The weights of the
# three are constants.
ONE = np.eye(3, dtype=np.float32)
CONSTANTS = {
    "both_signs.weight": np.concatenate([ONE, -ONE]),
    "normals.weight": np.concatenate([ONE, -ONE], 1) / np.float32(12**0.5),
}


def describe():
    """network.json as a dictionary."""
    layers = []

    def put(name, op, source, **keys):
        where = {"input": source} if isinstance(source, str) else {"inputs": source}
        layers.append({"name": name, "op": op, **where, **keys})
        return name

    def conv(name, source, dilation):
        put(
            name,
            "subm_conv",
            source,
            channels=CHANNELS,
            kernel=3,
            dilation=dilation,
            bias=False,
            layout="oxyzi",
        )
        return put(name + "_bn", "batch_norm", name, eps=1e-5)

    last = put("stem_act", "relu", conv("stem", "feats", 1))
    taps = []
    for index, (first, second) in enumerate(BLOCKS, 1):
        inner = put(f"block{index}a_act", "relu", conv(f"block{index}a", last, first))
        inner = conv(f"block{index}b", inner, second)
        inner = put(f"block{index}_add", "add", [inner, last])
        last = put(f"block{index}", "relu", inner)
        taps.append(last)
    both = put("near_and_far", "concat", [taps[TAP - 1], last])
    mixed = put("mix", "linear", both, channels=CHANNELS, bias=True)
    head = put("head", "linear", put("mix_act", "relu", mixed), channels=3, bias=True)
    mirrored = put("both_signs", "linear", head, channels=6, bias=False)
    unit = put("unit", "layer_norm", mirrored, eps=1e-8, affine=False)
    put("normals", "linear", unit, channels=3, bias=False)
    return {
        "format": 1,
        "description": DESCRIPTION,
        "inputs": {"coords": "coords", "feats": {"name": "feats", "channels": 1}},
        "layers": layers,
        "outputs": [{"name": "normals", "layer": "normals"}],
        "warmup": [1000, 30000],
    }


def write_description(path):
    """Writes network.json with one layer per line, so that it is readable and a diff is small."""
    whole = describe()
    layers = ",\n".join("    " + json.dumps(layer) for layer in whole["layers"])
    rows = [
        f"  {json.dumps(key)}: "
        + (f"[\n{layers}\n  ]" if key == "layers" else json.dumps(value))
        for key, value in whole.items()
    ]
    pathlib.Path(path).write_text("{\n" + ",\n".join(rows) + "\n}\n")


def write_weights(path, tensors):
    """Writes safetensors: the header's length as u64, a JSON header padded to 8 bytes, the
    float32 data."""
    header, offset, parts = {}, 0, []
    for name in sorted(tensors):
        data = np.ascontiguousarray(tensors[name], "<f4")
        header[name] = {
            "dtype": "F32",
            "shape": list(data.shape),
            "data_offsets": [offset, offset + data.nbytes],
        }
        offset += data.nbytes
        parts.append(data.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read_weights(path):
    """The tensors of a safetensors file of float32, by name."""
    raw = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:start])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name}: expected F32, got {entry['dtype']}")
        first, end = entry["data_offsets"]
        data = np.frombuffer(raw[start + first : start + end], "<f4")
        tensors[name] = data.reshape(entry["shape"])
    return tensors


def load(model, version=1):
    """layers (the list in network.json) and tensors of a model directory."""
    model = pathlib.Path(model)
    layers = json.loads((model / "network.json").read_text())["layers"]
    return layers, read_weights(model / str(version) / "weights.safetensors")


def neighbours(coords, dilation):
    """For coords [N,4] (sample, x, y, z): the rows [N,27] of the voxels at the offsets
    (kx-1, ky-1, kz-1) * dilation, kz fastest; N where there is no voxel."""
    n, reach = len(coords), dilation
    cell = coords.astype(np.int64) - coords.min(0) + [0, reach, reach, reach]
    span = cell.max(0) + 1 + [0, reach, reach, reach]
    pack = (
        lambda c: ((c[:, 0] * span[1] + c[:, 1]) * span[2] + c[:, 2]) * span[3] + c[:, 3]
    )
    key = pack(cell)
    order = np.argsort(key)
    table = np.empty((n, 27), np.int64)
    for k in range(27):
        step = np.array([0, k // 9 - 1, k // 3 % 3 - 1, k % 3 - 1]) * dilation
        wanted = pack(cell + step)
        at = np.minimum(np.searchsorted(key, wanted, sorter=order), n - 1)
        table[:, k] = np.where(key[order[at]] == wanted, order[at], n)
    return table


def run_conv(layer, tensors, x, table):
    weight = tensors[layer["name"] + ".weight"]  # [Co,3,3,3,Ci]
    weight = weight.reshape(weight.shape[0], 27, -1)
    padded = np.concatenate([x, np.zeros((1, x.shape[1]), x.dtype)])
    out = np.zeros((len(x), weight.shape[0]), np.float32)
    for k in range(27):
        rows = np.flatnonzero(table[:, k] < len(x))
        out[rows] += padded[table[rows, k]] @ weight[:, k].T
    return out


def run_layer_norm(layer, x):
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + layer["eps"])


def run_batch_norm(layer, tensors, x):
    name = layer["name"]
    scale = tensors[name + ".weight"] / np.sqrt(
        tensors[name + ".running_var"] + layer["eps"]
    )
    return (x - tensors[name + ".running_mean"]) * scale + tensors[name + ".bias"]


def forward(layers, tensors, coords, feats):
    """The last layer's output [N,C] float32, for coords [N,4] int and feats [N,Ci]."""
    if not len(coords):
        return np.zeros((0, layers[-1]["channels"]), np.float32)
    values, tables = {"feats": np.asarray(feats, np.float32)}, {}
    for layer in layers:
        source = layer.get("inputs") or [layer["input"]]
        x = [values[name] for name in source]
        name, op = layer["name"], layer["op"]
        if op == "subm_conv":
            dilation = layer["dilation"]
            if dilation not in tables:
                tables[dilation] = neighbours(coords, dilation)
            values[name] = run_conv(layer, tensors, x[0], tables[dilation])
        elif op == "linear":
            values[name] = x[0] @ tensors[name + ".weight"].T + tensors.get(
                name + ".bias", 0
            )
        elif op == "batch_norm":
            values[name] = run_batch_norm(layer, tensors, x[0])
        elif op == "layer_norm":
            values[name] = run_layer_norm(layer, x[0])
        elif op == "relu":
            values[name] = np.maximum(x[0], 0)
        elif op == "add":
            values[name] = x[0] + x[1]
        elif op == "concat":
            values[name] = np.concatenate(x, axis=1)
        else:
            raise ValueError(f"layer {name}: this forward pass has no op {op}")
    return values[layers[-1]["name"]]
