"""Exports a live PyTorch module by following one forward pass.

SPDX-License-Identifier: Apache-2.0
"""

import warnings

import numpy as np
import torch

from .axes import columns_note
from .errors import ExportError, OtherCoords, some
from .example import Example, four_of
from .libraries import library_of
from .libraries.base import differing
from .network import Network
from .other_voxels import changed, choices, compare, few, said_of
from .publish import publish
from .trace import Trace
from .weights import DATATYPES, round_weights

OUTPUTS_MAX = 8
VOXELS_MIN = 2  # one row may be read as anything
_TRAINED = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd)


def from_module(
    net,
    example,
    folder,
    *,
    feats=None,
    coords=None,
    outputs=None,
    datatype="FP32",
    check=True,
    voxeld=None,
    bound=None,
    description=None,
    axes=None,
    replace=False,
    **more,
):
    """Writes a live module as a model directory, and proves that it answers the same numbers.

    net       a torch.nn.Module of modules of a sparse library and of torch; norms and dropout are
              in eval() mode
    example   what its forward pass gets: a sparse tensor, a tuple of arguments, or a dict that is
              the only argument.  The network must not follow from its voxels: a pass over a part
              of them, with one sample more, has to have the same layers and constants
    feats     the tensor [N, C] that requests send, and
    coords    the tensor [N, 4] of its voxels, where `example` has no sparse tensor
    folder    REPOSITORY/NAME: gets network.json and 1/weights.safetensors; a folder that an export
              made is replaced
    outputs   {path in the result: name}, such as {"x_conv4": "features"} or {"0": "logits"};
              None = all
    datatype  "FP32", "FP16" or "BF16": what the weights of convolutions and linear layers are
              rounded to; the proof's source then computes with the rounded weights, too
    check     False leaves the proof out
    voxeld    the server's program for the proof; None = the one in PATH
    bound     worst element allowed, over the largest of its output; None = check.BOUND
    axes      an order such as "zyx": what columns 1 to 3 of coords are, so that `voxel` puts the x,
              y and z of a .ply into it; None = not said
    replace   whether other versions, files and keys of network.json that the folder has may go
    more      keys of network.json's top level: limits, batching, precision, warmup

    Returns a Report: str() of it is a table.  Raises ExportError, and CheckFailed if the numbers
    differ; the folder is then as it was before.
    """
    if datatype not in DATATYPES:
        raise ExportError(f'datatype "{datatype}"; expected one of {", ".join(DATATYPES)}')
    training = [
        name
        for name, module in net.named_modules()
        if module.training and isinstance(module, _TRAINED)
    ]
    if training:
        raise ExportError(
            f"in training mode, where answers follow the batch: {some(training)}; call eval() first"
        )
    if axes is not None and sorted(axes) != ["x", "y", "z"]:
        raise ExportError(f'axes "{axes}"; expected an order of x, y and z, such as "zyx"')
    source = _Source(net, example, feats, coords, exact=check and bound is None)
    rounded = _Rounded(net, datatype)
    with rounded, torch.no_grad():
        network, found = source.follow(outputs, description)
    if source.exact:
        _expect_held(network, datatype)
    constants = network.constants() if check else None
    network.column_axes = axes
    note = columns_note(network.axes)
    if note:
        network.description = f"{description}; {note}" if description else note
        warnings.warn(note, stacklevel=2)

    def again():
        with rounded, torch.no_grad():
            return source.again(network, outputs)

    def elsewhere():
        with rounded, torch.no_grad():
            source.elsewhere(constants, outputs)

    def layers(_folder):
        with rounded, torch.no_grad():
            return source.layers(network)

    return publish(
        network,
        found,
        folder,
        layers=layers,
        again=again,
        elsewhere=elsewhere,
        datatype=datatype,
        check=check,
        voxeld=voxeld,
        bound=bound,
        more=more,
        replace=replace,
    )


class _Source:
    """A module and its example, which can be run again."""

    def __init__(self, net, example, feats, coords, exact):
        self.net, self.example, self.exact = net, example, exact
        self.alone = 0  # sets of the pass that have fewer than VOXELS_MIN rows
        library = library_of(net)
        given = library.sparse(example)
        if given is not None:
            feats, coords = given.features, given.coords
        elif feats is None or coords is None:
            raise ExportError(
                f"example is a {type(example).__name__}, expected a sparse tensor of "
                f"{library.name}; or say which tensors requests send: feats=, coords="
            )
        if len(feats) < VOXELS_MIN:
            raise ExportError(
                f"the example has {len(feats)} voxels; expected {VOXELS_MIN} or more, some of them "
                "neighbours, so that it shows what the network does"
            )
        self.feats = feats
        self.request = Example(_coords(coords), feats.detach().cpu().float().numpy().copy())

    def follow(self, outputs, description):
        """The network, and the example with the source's answers."""
        network = Network(int(self.feats.shape[1]), description)
        trace, library, result = self._pass(network)
        self.alone = sum(len(coords) < VOXELS_MIN for coords in library.coords.values())
        found = Example(self.request.coords, self.request.feats)
        for path, wanted, (tensor, coords) in _chosen(trace, library, result, outputs):
            value = trace.value(tensor, f"the output {path or wanted}")
            _expect_coords(library, value, coords, path or wanted)
            array = tensor.detach().cpu().numpy()
            name = network.output(value, wanted)
            array = array if value.kind == "labels" else array.astype(np.float32)
            found.outputs[name] = (array, _at(library, value))
        return network, found

    def again(self, network, outputs):
        """An Example with other features on the same voxels: shuffled rows, each times a number."""
        rng = np.random.default_rng(1)
        feats = self.request.feats[rng.permutation(len(self.request.feats))]
        self.feats.copy_(torch.from_numpy(feats * rng.uniform(0.5, 1.5, (len(feats), 1))))
        request = Example(self.request.coords, self.feats.detach().cpu().float().numpy().copy())
        first, self.request = self.request, request
        try:
            other, found = self.follow(outputs, network.description)
        finally:
            self.request = first
            self.feats.copy_(torch.from_numpy(first.feats))
        _same_layers(network.document()["layers"], other.document()["layers"])
        return found

    def elsewhere(self, constants, outputs):
        """ExportError if the network is another one on other voxels.

        constants  Network.constants() of the first pass: a tensor may have changed since
        """
        error = None
        for voxels in choices(self.request.coords):
            try:
                other = self._on(voxels)
            except Exception as made:  # noqa: BLE001  the library's own, of any version
                warnings.warn(
                    f"whether the network follows from the example's voxels was not tested, as no "
                    f"example with others could be made of it: {made}",
                    stacklevel=4,
                )
                return
            try:
                found = self._follow_on(voxels, other, outputs)
            except OtherCoords:
                raise
            except Exception as raised:  # noqa: BLE001  the module's, or a library's rule
                error = error or (voxels, raised)
                continue
            compare(constants, found.constants(), voxels, self.request.coords)
            if error and len(voxels.rows) == len(self.request.coords) - 1:
                warnings.warn(
                    f"the forward pass fails on a part of the example ({error[0].said()}): "
                    f"{type(error[1]).__name__}: {error[1]}; it was followed on all voxels but one",
                    stacklevel=4,
                )
            self._on_few(constants, outputs)
            return
        if error:
            raise ExportError(
                f"the forward pass fails on other voxels ({error[0].said()}; the example has "
                f"{said_of(self.request.coords)}), as it would for other requests: "
                f"{type(error[1]).__name__}: {error[1]}"
            ) from error[1]

    def _on_few(self, constants, outputs):
        """The same on a few voxels; a layer that finds too few of them shows nothing."""
        voxels = few(self.request.coords)
        if voxels is None:
            return
        try:
            other = self._on(voxels)
            found = self._follow_on(voxels, other, outputs)
        except OtherCoords:
            raise
        except Exception:  # noqa: BLE001  of sets that have become empty, for example
            return
        if other.alone == self.alone:
            compare(constants, found.constants(), voxels, self.request.coords)

    def _follow_on(self, voxels, other, outputs):
        """The Network of `other`, this source on other voxels."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the first pass has said them
                return other.follow(outputs, None)[0]
        except OtherCoords as error:
            where = f"{voxels.said()}; the example has {said_of(self.request.coords)}"
            raise OtherCoords(f"for other voxels ({where}) {error}") from error

    def _on(self, voxels):
        """This source with an example on other voxels."""
        library = library_of(self.net)
        coords = self.request.coords
        example, feats = changed(self.example, library, self.feats, coords, voxels)
        if feats is None:
            raise ExportError("its features are not in it")
        return _Source(self.net, example, feats, voxels.coords, self.exact)

    def layers(self, network):
        """{layer: (array, coords or None)} of the layers that `network` has, by a second pass."""
        # The first pass may have changed its input in place.
        self.feats.copy_(torch.from_numpy(self.request.feats))
        trace, library, _ = self._pass(Network(network.feats.channels), record=True)
        wanted = [layer["name"] for layer in network.needed()]
        return {
            name: (trace.layers[name][0], _at(library, trace.layers[name][1]))
            for name in wanted
            if name in trace.layers
        }

    def _pass(self, network, record=False):
        library = library_of(self.net)
        given = library.sparse(self.example)  # it learns what the request's tensor is
        if given is not None:
            network.takes(given)
        else:
            library.sent = "coords="
        library.remember(0, self.request.coords)
        with Trace(self.net, library, network, record, self.exact) as trace:
            trace.begin(self.feats)
            example = dict(self.example) if isinstance(self.example, dict) else self.example
            arguments = example if isinstance(example, tuple) else (example,)
            result = self.net(*arguments)
        return trace, library, result


def _same_layers(ours, others):
    """ExportError if the network is another one for other features."""
    for layer, other in zip(ours, others):
        changed = [key for key in layer if layer[key] != other.get(key)]
        if changed and (layer["name"], layer["op"]) == (other["name"], other["op"]):
            raise ExportError(
                f"the layer {layer['name']} has {changed[0]} {layer[changed[0]]}, and "
                f"{other.get(changed[0])} for other features: Python computes it of the example "
                "(item(), float()), and it would be a constant"
            )
        if changed:
            break
    if ours != others:
        raise ExportError(
            "the forward pass takes another path for other features, which no network.json can do: "
            "the layers differ when the rows of the features are shuffled"
        )


def _at(library, value):
    """Coordinates of a Value's rows; None: the request's rows, or a dense tensor."""
    return None if value.kind == "dense" or value.on == 0 else library.coords[value.on]


def _expect_held(network, datatype):
    """ExportError if a weight that Python computes of parameters is no number of `datatype`.

    Of a parameter the source has the rounded numbers, too; what it computes of them, not.
    """
    for layer, array in network.made_weights():
        if (round_weights(layer, array, datatype).astype(array.dtype) != array).any():
            raise ExportError(
                f"the weight of the layer {layer} is computed of parameters, and {datatype} would "
                "round it, where the source does not: the proof cannot hold.  Expected datatype "
                "FP32; or keep the computed weight as a parameter, or say by bound= what rounding "
                "it may cost"
            )


def _expect_coords(library, value, coords, name):
    """OtherCoords if a sparse tensor that is returned has others than those that are served.

    coords  int32 [N, 4] of that tensor; None: it is no sparse tensor
    """
    said = "" if coords is None else differing(coords, library.coords[value.on])
    if said:
        whose = f"those of {value.layer}, whose features it has"
        if value.on == 0:
            whose = "the request's, on whose voxels its features lie"
        raise OtherCoords(
            f"the output {name} has other coordinates than {whose}: {said}; no layer changes "
            "coordinates.  Return the tensor with the coordinates that it was made with, and "
            "change those of the answer in the client"
        )


def _coords(coords):
    return four_of(coords.detach().cpu() if isinstance(coords, torch.Tensor) else coords)


def _chosen(trace, library, result, outputs):
    """[(path in the result, name, (tensor, coords of a sparse one))]."""
    found = list(_flat(library, result, ""))
    if outputs is not None:
        there = dict(found)
        for path in outputs:
            if path not in there:
                raise ExportError(
                    f'the result has no "{path}"; it has {", ".join(map(repr, there))}'
                )
        return [(path, name, there[path]) for path, name in outputs.items()]
    alone = len(found) == 1
    made = [
        (path, "out" if alone else path.replace(".", "_"), pair)
        for path, pair in found
        if alone or trace.known(pair[0]) not in (None, trace.network.feats)
    ]
    if not made:
        raise ExportError("the network returns no tensor that comes from the features")
    if len(made) > OUTPUTS_MAX:
        raise ExportError(
            f"the network returns {len(made)} tensors; choose up to {OUTPUTS_MAX} by outputs=: "
            f'{", ".join(path for path, _, _ in made)}'
        )
    return made


def _flat(library, thing, path):
    """Tensors in nested dicts and lists, with paths like "points.0" and a sparse one's coords."""
    sparse = library.sparse(thing)
    if sparse is not None:
        yield path, (sparse.features, sparse.coords)
    elif isinstance(thing, torch.Tensor):
        yield path, (thing, None)
    elif isinstance(thing, (list, tuple, dict)):
        items = thing.items() if isinstance(thing, dict) else enumerate(thing)
        for key, item in items:
            yield from _flat(library, item, f"{path}.{key}" if path else str(key))


class _Rounded:
    """Meanwhile weights that are multiplied have what `datatype` holds of them."""

    def __init__(self, net, datatype):
        self.kept = []  # (parameter, what it has meanwhile or had before)
        if datatype == "FP32":
            return
        for name, parameter in net.named_parameters():
            # A bias of MinkowskiEngine has two axes, too.
            if parameter.dim() > 1 and not name.endswith("bias"):
                array = round_weights(name, parameter.detach().cpu().float().numpy(), datatype)
                rounded = torch.from_numpy(array.astype(np.float32)).to(parameter.data)
                self.kept.append((parameter, rounded))

    def __enter__(self):
        self._swap()
        return self

    def __exit__(self, *about):
        self._swap()

    def _swap(self):
        for index, (parameter, other) in enumerate(self.kept):
            self.kept[index] = parameter, parameter.data
            parameter.data = other
