"""Where a family's weights come from: drawn at random, or a checkpoint.

    tensors = Random(seed=1)
    tensors = Checkpoint.open("model.pth")
    tensors.take("conv1.weight", (16, 3, 3, 3, 4), fan_in=36)

SPDX-License-Identifier: Apache-2.0
"""

import os

import numpy as np

from ..errors import ExportError, some
from ..example import arrays_of
from ..weights import expect_finite


class Random:
    """Weights that keep the size of features from layer to layer; a seed gives them again.

    Every tensor has numbers of its own, whatever other layers there are: the seed and the
    tensor's name decide.
    """

    def __init__(self, seed=1):
        self.seed = seed

    def take(self, name, shape, *, kind="weight", fan_in=1, gain=1.0):
        """float32 of a shape.

        kind    "weight": normal, variance gain^2 * 2 / fan_in; "bias"; "halves", a bias of logits
                of which the first half is above 0; and of a norm "scale", "shift", "mean",
                "variance"
        fan_in  summands of one output, as they are on typical voxels
        """
        rng = np.random.default_rng([self.seed, *name.encode()])
        if kind == "weight":
            array = rng.normal(0, gain * np.sqrt(2 / fan_in), shape)
        elif kind == "scale":
            array = gain * rng.uniform(0.8, 1.2, shape)
        elif kind == "variance":
            array = rng.uniform(0.5, 1.5, shape)
        elif kind == "halves":
            array = np.where(np.arange(*shape) < shape[0] / 2, 1, -1)
        else:
            array = rng.normal(0, 0.1, shape)
        return array.astype(np.float32)

    def layout(self, name, shapes):
        """The first of {layout: shape}."""
        del name
        return next(iter(shapes))

    def finish(self):
        """Nothing can be left."""
        return []


class Checkpoint:
    """The tensors of a file, by the names that a family asks for.

    tensors  {name: array}
    path     for errors
    """

    def __init__(self, tensors, path="the checkpoint"):
        self.tensors = tensors
        self.path = path
        self.prefix = None  # the one that is wanted, if the file has several networks
        self._prefix = None
        self._taken = set()
        self._missing = []

    @classmethod
    def open(cls, path):
        """Reads .safetensors, .npz, or what torch.save wrote (.pth, .pt, .ckpt; needs torch).

        WORD=FILE,WORD=FILE is the joined checkpoint of several files.
        """
        ending = os.path.splitext(path)[1]
        words = [part.partition("=") for part in path.split(",")]
        if not os.path.exists(path) and all(equals for _, equals, _ in words):
            return cls.joined({word: cls.open(file) for word, _, file in words})
        if not os.path.exists(path):
            raise ExportError(f"no file {path}; expected a checkpoint")
        if ending == ".safetensors":
            from safetensors import SafetensorError
            from safetensors.numpy import load_file

            try:
                return cls(load_file(path), path)
            except (OSError, SafetensorError) as error:
                raise ExportError(f"{path} is not a .safetensors: {error}") from error
        if ending == ".npz":
            return cls(arrays_of(path), path)
        return cls(_of_torch(path), path)

    @classmethod
    def joined(cls, parts):
        """One of several {word: Checkpoint}: the tensors of each are WORD.NAME."""
        return cls(
            {
                f"{word}.{name}": array
                for word, part in parts.items()
                for name, array in part.tensors.items()
            },
            ", ".join(part.path for part in parts.values()),
        )

    def locate(self, suffix):
        """Says that all names have the prefix of the one that ends with `suffix`."""
        found = sorted(
            (name[: -len(suffix)] for name in self.tensors if ("." + name).endswith("." + suffix)),
            key=len,
        )
        if not found:
            raise ExportError(
                f"{self.path} has no tensor {suffix}, by which this family is recognised; "
                f"it has {some(sorted(self.tensors))}"
            )
        if self.prefix is not None and self.prefix not in found:
            raise ExportError(
                f"{self.path} has no tensor {self.prefix}{suffix}; expected a prefix of "
                f"{some([repr(one) for one in found])}"
            )
        rivals = [one for one in found[1:] if self._is_like(found[0], one)]
        if self.prefix is None and rivals:
            networks = [f"'{one}' ({len(self._under(one))} tensors)" for one in [found[0], *rivals]]
            raise ExportError(
                f"{self.path} has {len(networks)} networks of this family, with the prefixes "
                f"{some(networks)}: choose one (--prefix)"
            )
        self._prefix = found[0] if self.prefix is None else self.prefix

    def _under(self, prefix):
        return {name[len(prefix) :] for name in self.tensors if name.startswith(prefix)}

    def _is_like(self, first, other):
        """Whether most of what is under `first` is under `other` again: an average of the weights,
        a teacher."""
        names = {name for name in self._under(first) if not (first + name).startswith(other)}
        return 2 * len(names & self._under(other)) >= len(names)

    def has(self, suffix):
        """Whether a tensor of this name is there, whatever is before it."""
        return any(("." + name).endswith("." + suffix) for name in self.tensors)

    def some(self):
        """A few names, for errors."""
        return some(sorted(self.tensors))

    def size(self, name, axis):
        """The size of a tensor's axis, or None."""
        array = self.tensors.get((self._prefix or "") + name)
        return None if array is None or array.ndim == 0 else int(array.shape[axis])

    def shape(self, name):
        """The shape of a tensor, or None."""
        array = self.tensors.get((self._prefix or "") + name)
        return None if array is None else tuple(array.shape)

    def layout(self, name, shapes):
        """Which of {layout: shape} a tensor has: versions of a library store them differently."""
        full = (self._prefix or "") + name
        if full not in self.tensors:
            return next(iter(shapes))  # take() says that it is missing
        shape = tuple(self.tensors[full].shape)
        fits = [layout for layout, wanted in shapes.items() if tuple(wanted) == shape]
        if not fits:
            wanted = " or ".join(f"{list(w)} ({layout})" for layout, w in shapes.items())
            raise ExportError(
                f"{self.path}: {full} has shape {list(shape)}; the family has {wanted}"
            )
        if len(fits) > 1:
            raise ExportError(
                f"{self.path}: {full} has shape {list(shape)}, which the layouts "
                f"{' and '.join(fits)} have alike: load the checkpoint with the newest version of "
                "its library, and save it again"
            )
        return fits[0]

    def take(self, name, shape, *, kind="weight", fan_in=1, gain=1.0):
        """The array of a name, as the file has it; its shape must be `shape`."""
        del kind, fan_in, gain
        if self._prefix is None:
            self.locate(name)
        full = self._prefix + name
        if full not in self.tensors:
            self._missing.append(full)
            return np.zeros(shape, np.float32)
        array = np.asarray(self.tensors[full])
        if tuple(array.shape) != tuple(shape):
            raise ExportError(
                f"{self.path}: {full} has shape {list(array.shape)}; the family has {list(shape)}"
            )
        self._taken.add(full)
        return array

    def finish(self):
        """Fails if tensors were missing or have NaN; returns the names that nobody took."""
        if self._missing:
            count = len(self._missing)
            raise ExportError(
                f"{self.path} lacks {count} tensor{'s' if count > 1 else ''} of the family: "
                f"{some(sorted(self._missing))}; "
                f"left over: {some(self._left())}"
            )
        expect_finite({name: self.tensors[name] for name in sorted(self._taken)}, self.path)
        return self._left()

    def _left(self):
        """The names that nobody took, but counts of batches, which no answer needs."""
        left = set(self.tensors) - self._taken
        return sorted(name for name in left if not name.endswith("num_batches_tracked"))


def _of_torch(path):
    try:
        import torch
    except ImportError as error:
        raise ExportError(
            f"{path} was written by torch.save, which only torch reads: install torch, or convert "
            "it to .safetensors where it was trained"
        ) from error
    try:
        thing = torch.load(path, map_location="cpu", **_careful(torch))
    except Exception as error:  # pickle, zip and torch have errors of their own
        if "Unsupported class" in str(error) or "Unsupported global" in str(error):
            raise ExportError(
                f"{path} holds objects beside tensors, perhaps a whole module, and reading those "
                "would run code of the file; expected a state_dict: where it was trained, "
                f"torch.save(net.state_dict(), FILE) ({str(error).splitlines()[0][-80:]})"
            ) from error
        why = f"{type(error).__name__}: {error}"  # a KeyError's text is the key alone
        raise ExportError(f"{path} is not a checkpoint of torch: {why}") from error
    if not isinstance(thing, dict):
        raise ExportError(f"{path} holds a {type(thing).__name__}; expected a state_dict")
    leaves = _leaves(thing, torch.Tensor)
    if not leaves:
        raise ExportError(
            f"{path} has no tensors: expected a state_dict, or dicts of which one is; "
            f"it has {some(sorted(map(str, thing)))}"
        )
    return {
        (at + name if len(leaves) > 1 else name): _numbers(torch, tensor)
        for at, tensors in leaves.items()
        for name, tensor in tensors.items()
    }


def _leaves(thing, kind, at=""):
    """{prefix: {name: tensor}} of each dict in it that holds tensors."""
    own = {name: one for name, one in thing.items() if isinstance(one, kind)}
    found = {at: own} if own else {}
    for key, value in thing.items():
        if isinstance(key, str) and isinstance(value, dict):
            found.update(_leaves(value, kind, f"{at}{key}."))
    return found


def _numbers(torch, tensor):
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()


def _careful(torch):
    """weights_only where torch has it: a checkpoint can otherwise run code."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return {"weights_only": True} if version >= (1, 13) else {}
