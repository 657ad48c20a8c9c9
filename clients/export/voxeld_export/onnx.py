"""From NVIDIA libspconv's ONNX to a model directory.

    from voxeld_export import from_onnx
    print(from_onnx("centerpoint.scn.onnx", "repository/centerpoint"))

SPDX-License-Identifier: Apache-2.0
"""

import os
import warnings

import numpy as np

from .definition import evaluate
from .errors import ExportError
from .example import Example, four_of
from .families.clouds import street
from .network import Network
from .onnx_file import read_graph
from .onnx_nodes import ONES, Translation, columns_of
from .publish import publish
from .weights import DATATYPES, expect_finite

_VOXELS = 1500  # of an example that nobody gives
_SHAPE = (41, 400, 400)  # of a file that says none, as it has no strided convolution


def from_onnx(
    path,
    folder,
    *,
    example=None,
    outputs=None,
    spatial_shape=None,
    ones=None,
    datatype=None,
    check=True,
    voxeld=None,
    bound=None,
    description=None,
    replace=False,
    **more,
):
    """Writes libspconv's ONNX file as a model directory, and proves it.

    path           of the .onnx file
    folder         REPOSITORY/NAME: gets network.json and 1/weights.safetensors; a folder that an
                   export made is replaced
    example        an Example; with outputs, recorded answers that are the proof's source.  Without
                   outputs, or without an example, the source is `definition.evaluate` of what was
                   written: it proves that voxeld computes this network, while the reading of the
                   file has nothing but its own checks
    outputs        {tensor of the file: name}; None = those of the file
    spatial_shape  voxels along columns 1 to 3 of coords, if not those of the file
    ones           of kernels of one offset: "spconv" if spconv 2 wrote the file, "oxyzi" if
                   mmdetection3d did
    datatype       "FP32", "FP16" or "BF16": what weights are rounded to; None = as in the file
    check, voxeld, bound, description, replace, more  as in from_module

    Where the file turns the axes of a dense output, requests send the columns of coords in the
    order of that output; a warning and the description say so.  `example` has the file's order.
    """
    if datatype not in (None, *DATATYPES):
        raise ExportError(f'datatype "{datatype}"; expected one of {", ".join(DATATYPES)}')
    if ones not in (None, *ONES):
        raise ExportError(f'ones "{ones}"; expected one of {", ".join(ONES)}')
    graph = read_graph(path)
    wanted = _wanted(graph, outputs)
    nodes = _needed(graph, wanted)
    network = Network(_channels(graph, nodes))
    columns = columns_of(nodes)
    made = Translation(graph, network, columns=columns, shape=spatial_shape, ones=ones)
    for node in nodes:
        made.add(node)
    names = {tensor: made.output(tensor, name) for tensor, name in wanted.items()}
    notes = _notes(nodes, made, columns)
    network.description = description or "; ".join([f"from {os.path.basename(path)}", *notes])
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)
    expect_finite(network.tensors, path)
    if datatype == "FP32":
        network.tensors = {name: a.astype(np.float32) for name, a in network.tensors.items()}
    return publish(
        network,
        _example(example, network, names, columns),
        folder,
        layers=lambda written: _recorded(written, example, network, columns),
        datatype=datatype or "FP32",
        check=check,
        voxeld=voxeld,
        bound=bound,
        more=more,
        replace=replace,
    )


def _wanted(graph, outputs):
    """{tensor of the file: name on the wire}."""
    made = {name for node in graph.nodes for name in node.outputs}
    if len(graph.inputs) != 1:
        raise ExportError(
            f"the file has {len(graph.inputs)} inputs; expected one, the features of voxels"
        )
    if outputs is None:
        names = [name for name, _shape in graph.outputs]
        alone = len(names) == 1
        # Its exporters number the tensors.
        outputs = {
            name: ("out" if alone else f"out{name}") if name.isdigit() else name for name in names
        }
    if not outputs:
        raise ExportError("the file has no output")
    for name in outputs:
        if name not in made:
            raise ExportError(f"no node of the file makes the output {name}")
    return dict(outputs)


def _needed(graph, wanted):
    """The nodes that an output needs, in the file's order, which is that of their use."""
    needed, books, kept = set(wanted), set(), []
    for node in reversed(graph.nodes):
        book = node.attributes.get("rulebook")
        if needed & set(node.outputs) or (book in books and not node.attributes.get("subm")):
            kept.append(node)
            needed.update(node.inputs)
            if book and node.attributes.get("inverse"):
                books.add(book)  # the strided node that it undoes is needed, too
    return kept[::-1]


def _channels(graph, nodes):
    """The channels of the features: of the input's shape, or of the first weight."""
    name, shape = graph.inputs[0]
    if shape and shape[-1]:
        return int(shape[-1])
    for node in nodes:
        if node.op == "SparseConvolution" and node.inputs[:1] == [name]:
            tensor = graph.tensors.get(node.inputs[1] if len(node.inputs) > 1 else "")
            if tensor is not None and tensor.shape:
                return int(tensor.shape[-1])
    raise ExportError(f"the input {name} has shape {shape}; expected [N, channels]")


def _notes(nodes, made, columns):
    notes = []
    if made.int8:
        notes.append(
            f"INT8 ranges of {made.int8} nodes are not used: all numbers are floating-point"
        )
    if columns != [0, 1, 2]:
        letters = next((n.attributes.get("format") for n in nodes if n.op == "ScatterDense"), "")
        letters = letters or "123"
        notes.append(
            f"columns of coords: sample, {', '.join(letters[c] for c in columns)}, where the file "
            f"has sample, {', '.join(letters)}: its dense output has that order"
        )
    return notes


def _example(given, network, names, columns):
    """An Example for `publish`, or a function of the written directory that makes it."""
    request = _request(given, network, columns)
    if given is None or not (given.outputs or given.recorded):
        return lambda written: evaluate(written, request.coords, request.feats)
    for name, (array, coords) in given.outputs.items():
        wire = names.get(name, name)
        if wire not in names.values():
            raise ExportError(
                f"the example has an output {name}; the network has {', '.join(names.values())}"
            )
        coords = None if coords is None else _turned(coords, columns)
        layer = next(one["layer"] for one in network.outputs if one["name"] == wire)
        if coords is not None and network.values[layer].on == 0:
            array, coords = _in_order(name, array, coords, request.coords), None
        request.outputs[wire] = (np.asarray(array), coords)
    return request


def _in_order(name, array, coords, wanted):
    """The rows of an output on the request's voxels, in the request's order."""
    theirs, ours = np.lexsort(coords.T[::-1]), np.lexsort(wanted.T[::-1])
    if len(coords) != len(wanted) or (coords[theirs] != wanted[ours]).any():
        raise ExportError(
            f"the example's output {name} has other voxels than its request, on which it lies"
        )
    rows = np.empty_like(array)
    rows[ours] = array[theirs]
    return rows


def _recorded(written, given, network, columns):
    request = _request(given, network, columns)
    return evaluate(written, request.coords, request.feats, layers="all")[1]


def _request(given, network, columns):
    """The request of the proof: the given one, or a street in the network's shape."""
    if given is not None:
        coords, feats = _turned(four_of(given.coords), columns), np.asarray(given.feats, np.float32)
        return Example(coords, feats, path=given.path)
    rng = np.random.default_rng(1)
    shape = network.spatial_shape or _SHAPE
    low = int(np.argmin(shape))  # the axis of height has the fewest voxels
    others = [axis for axis in range(3) if axis != low]
    voxels = street(rng, [shape[axis] for axis in (low, *others)], _VOXELS)
    coords = np.empty_like(voxels)
    coords[:, 0] = voxels[:, 0]
    for column, axis in enumerate((low, *others), 1):
        coords[:, 1 + axis] = voxels[:, column]
    feats = rng.normal(size=(len(coords), network.feats.channels)).astype(np.float32)
    return Example(coords, feats)


def _turned(coords, columns):
    return np.asarray(coords)[:, [0, *(1 + column for column in columns)]]
