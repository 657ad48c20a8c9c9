"""Follows one forward pass of a PyTorch module and writes down what it does to features.

Every tensor of features that the pass makes is known by identity, together with the layer whose
result it is.  Two things add layers: a module of a sparse library (libraries/), whose own forward
pass is not looked into, and a function of torch (functions.py).  A function that has no layer
marks its result; only if an output needs that result is it an error, which names the function
and the module that called it.

    with Trace(net, library, network) as trace:
        trace.begin(features)
        result = net(example)
    trace.value(result.features)

SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import inspect
import warnings

import torch
from torch.overrides import TorchFunctionMode

from . import functions_channels  # noqa: F401  it registers its functions
from .errors import ExportError
from .functions import FUNCTIONS, READ_ONLY, no_layer
from .network import Value

_RANDOM = ("rand", "normal_", "bernoulli", "dropout", "uniform_", "multinomial", "poisson")
_NUMBERS = frozenset("item tolist numpy __float__ __int__ __array__".split())
_NUMPYS = {"axis": "dim", "keepdims": "keepdim"}  # what torch's functions take, too


class Unknown:
    """The result of something that no layer does.

    error  the class of the error that an output which needs it is
    """

    def __init__(self, why, error=ExportError):
        self.why, self.error = why, error


class Trace(TorchFunctionMode):
    """The forward pass of `net`, as layers of `network`.

    library  of libraries/: says which modules and methods are its own, and adds their layers
    layers   with `record`: {layer: (float32 array, its Value)}, else None
    exact    whether features that are cast to fewer bits are refused
    """

    def __init__(self, net, library, network, record=False, exact=False):
        super().__init__()
        self.exact = exact
        self._bits = 0  # of a number of the input; 0: whole numbers, which have no casts to fear
        self._doing = "the input"  # what makes the tensor that is bound
        self.layers = {} if record else None
        self.net = net
        self.library = library
        self.network = network
        self._known = {}  # id(tensor): (tensor, Value or Unknown); keeps the tensors alive
        self._path = []  # of the modules whose forward pass runs
        self._paused = 0
        self._undo = contextlib.ExitStack()
        self._made = {}  # id of a tensor that is computed from parameters alone: the tensor
        self._foreign = {}  # id of a number that no feature and no parameter makes: its tensor
        self._names = {}  # id of a parameter or buffer: its name in the state_dict
        self._changed = []  # by the last function, in place
        self._versions = {}  # id of a tensor: torch's count of its changes that were seen
        self._own = [*net.named_parameters(), *net.named_buffers()]  # kept alive, as their ids are
        for name, tensor in self._own:
            self._names.setdefault(id(tensor), name)
            self._versions[id(tensor)] = self._version(tensor)

    # --- what functions.py and libraries/ use ---

    def begin(self, features):
        """Says which tensor is the network's input."""
        self._bits = _bits(features)
        self.bind(features, self.network.feats)

    def bind(self, tensor, value):
        """Says what a tensor is the result of; a Value or an Unknown.  Lists: one for each."""
        if isinstance(tensor, (list, tuple)):
            for one, its in zip(tensor, value):
                self.bind(one, its)
            return
        if not isinstance(tensor, torch.Tensor):
            return  # type() without an argument says a name
        value = self._cast(tensor, value)
        self._known[id(tensor)] = (tensor, value)
        self._versions[id(tensor)] = self._version(tensor)
        made = isinstance(value, Value) and value.kind not in ("mask", "blocks")
        if self.layers is not None and made:
            # A copy: a function that works in place makes another layer's result of it.
            with self.paused():
                array = tensor.detach().cpu().float().numpy().copy()
            self.layers.setdefault(value.layer, (array, value))

    def _cast(self, tensor, value):
        """`value`, or an Unknown if the tensor has lost bits of its numbers."""
        if not self._bits or not isinstance(value, Value) or value.kind in ("labels", "mask"):
            return value
        name = str(tensor.dtype).replace("torch.", "")
        if not tensor.is_floating_point():
            return Unknown(f"{self._doing} {self.said()}, which makes {name} of features")
        if not self.exact or _bits(tensor) >= self._bits:
            return value
        return Unknown(
            f"{self._doing} {self.said()}, which casts features to {name}: the served network does "
            "not round where this one does.  Export without the cast; datatype= and the precision "
            "of network.json say in what it is served, and a bound= what its rounding may cost"
        )

    def bind_changed(self, tensor, value):
        """The same of a tensor that was changed in place: its views have changed, too."""
        for key, (known, _) in list(self._known.items()):
            if known.data_ptr() == tensor.data_ptr() and known.shape == tensor.shape:
                self._known[key] = (known, value)
        self.bind(tensor, value)

    def known(self, tensor):
        """The Value or Unknown that a tensor is, or None."""
        self._notice(tensor)
        entry = self._known.get(id(tensor))
        return entry[1] if entry and entry[0] is tensor else None

    def refuse(self, result, why, error=ExportError):
        """Marks all tensors of a result: an output that needs one of them is an error, `why`."""
        for tensor in _tensors(result):
            self.bind(tensor, Unknown(why, error))

    def value(self, tensor, reader=None):
        """The Value of a tensor; ExportError if no layer makes it."""
        found = self.known(tensor)
        reader = reader or "an output"
        if found is None:
            what = (
                f"reads a tensor of shape {tuple(tensor.shape)} that does not come from the "
                "features by operations that were seen (torch 1.13 tells nobody of x[rows]; no "
                "layer chooses or sorts rows)"
            )
            error = ExportError(f"{reader} {what}")
            error.why = f"{reader}, which {what}"
            raise error
        if isinstance(found, Unknown):
            error = found.error(f"{reader} needs {found.why}")
            error.why = found.why  # what later readers need, too: names no reader between
            raise error
        return found

    def constant(self, tensor):
        """(name in the state_dict, array) of a parameter or a buffer; name None: made of them."""
        if isinstance(self.known(tensor), Unknown):
            raise ExportError(f"a parameter that follows {self.known(tensor).why}")
        kept = tensor.detach().cpu()
        return (
            self._names.get(id(tensor)),
            (kept.float() if kept.dtype == torch.bfloat16 else kept).numpy(),
        )

    def is_constant(self, tensor):
        """Whether a tensor is the network's own, whatever the input is."""
        if id(tensor) in self._names or self._made.get(id(tensor)) is tensor:
            return True
        # Of table[1] torch tells nobody; it is a view of the table.
        base = tensor._base
        return base is not None and id(base) in self._names and self.known(base) is None

    @property
    def path(self):
        """The module that runs, by its name in `net`."""
        return self._path[-1] if self._path else ""

    def place(self, op):
        """What a layer of a function is called: by the module, if that does nothing else."""
        if not self.path:
            return op
        module = dict(self.net.named_modules()).get(self.path)
        leaf = module is not None and not any(True for _ in module.children())
        return self.path if leaf else f"{self.path}.{op}"

    def said(self):
        """Where the pass is, for an error."""
        return f"in module {self.path}" if self.path else "in the network's own forward"

    @contextlib.contextmanager
    def paused(self):
        """Nothing is written down meanwhile."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    # --- the pass ---

    def __enter__(self):
        for owner, method, wrap in self.library.wrapped(self):
            self._replace(owner, method, wrap(getattr(owner, method)))
        for name, module in self.net.named_modules():
            self._watch(name, module)
        for owner, method, added in self.library.methods(self):
            self._watch_method(owner, method, added)
        return super().__enter__()

    def __exit__(self, *about):
        self._undo.close()
        return super().__exit__(*about)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _NUMBERS and self.known(args[0]) is not None:
            warnings.warn(
                f"torch's {name} {self.said()} reads a number of the example: if an output "
                "follows from it, the export has that number for every request",
                stacklevel=2,
            )
        with self.paused():
            result = self._call(func, args, kwargs)
            changed = self._changed
            if name not in READ_ONLY:
                self._doing = f"torch's {name}"
                self._function(name, args, kwargs, result)
            for tensor in changed:
                self._changed_elsewhere(name, tensor)
        return result

    def _function(self, name, args, kwargs, result):
        read = [self.known(tensor) for tensor in _tensors((args, kwargs))]
        if not any(read):
            made_of_constants = read and all(map(self.is_constant, _tensors((args, kwargs))))
            if made_of_constants and not name.startswith(_RANDOM) and name != "normal":
                self._made.update((id(tensor), tensor) for tensor in _tensors(result))
            elif read or name.startswith(_RANDOM):
                self._comes_from_elsewhere(name, args, result)
            return
        unknown = next((value for value in read if isinstance(value, Unknown)), None)
        make = FUNCTIONS.get(name)
        if "input" in kwargs:  # what torch calls its first argument
            args = (kwargs["input"], *args)
            kwargs = {key: value for key, value in kwargs.items() if key != "input"}
        kwargs = {_NUMPYS.get(key, key): value for key, value in kwargs.items()}
        changed = args[0] if result is None else result  # x[rows] = y has no result
        if unknown or not make:
            why = f"torch's {name} {self.said()}, {no_layer(name)}"
            self.refuse(changed, *((unknown.why, unknown.error) if unknown else (why,)))
            return
        try:
            self._takes(make, args, kwargs)
            value = make(self, *args, **kwargs)
        except ExportError as error:
            self.refuse(changed, f"torch's {name} {self.said()}: {error}")
            return
        (self.bind_changed if args and result is args[0] else self.bind)(result, value)

    def _takes(self, make, args, kwargs):
        """ExportError if a function of functions.py does not know an argument."""
        try:
            inspect.signature(make).bind(self, *args, **kwargs)
        except TypeError as error:
            raise ExportError(f"it is called in a way that no layer does: {error}") from error
        if any(self._foreign.get(id(tensor)) is tensor for tensor in _tensors((args, kwargs))):
            raise ExportError(
                "it reads a number that comes from other tensors than the features and the "
                "parameters, and would be a constant of the example"
            )

    def _comes_from_elsewhere(self, name, args, result):
        """Notes what a function makes of coordinates, for example, or by chance."""
        first = args[0] if args else None
        if isinstance(first, torch.Tensor) and (result is None or result is first):
            if self.is_constant(first):
                tensor = self._names.get(id(first), "a parameter's tensor")
                self.bind(first, Unknown(f"{tensor}, which torch's {name} {self.said()} changes"))
            return
        for tensor in _tensors(result):
            if tensor.dim() == 0:
                self._foreign[id(tensor)] = tensor

    def _call(self, func, args, kwargs):
        """What func returns.  What it changes in place is seen; what changed before was not."""
        before = [(tensor, self._version(tensor)) for tensor in _tensors((args, kwargs))]
        for tensor, _ in before:
            self._notice(tensor)
        result = func(*args, **kwargs)
        self._changed = [tensor for tensor, version in before if self._version(tensor) != version]
        for tensor in self._changed:
            self._keep_up(tensor)
        return result

    def _changed_elsewhere(self, name, changed):
        """Marks features of which a part was changed, by a view or .data: no layer is that.

        Of parameters the further passes tell: one that is clamped in each is the same in all.
        """
        value, memory = self.known(changed), _memory(changed)
        for tensor, its in list(self._known.values()):
            if its is value or _memory(tensor) != memory or not _overlap(tensor, changed):
                continue
            why = f"a tensor of shape {tuple(tensor.shape)}, which torch's {name} {self.said()}"
            why += " changes in place through a view or .data of it; expected a change of all of it"
            self.bind(tensor, Unknown(why))

    def _notice(self, tensor):
        """Marks a tensor that was changed by something that torch does not tell, as x[:] = y."""
        ours = id(tensor) in self._names or id(tensor) in self._known
        if ours and self._versions[id(tensor)] != self._version(tensor):
            name = self._names.get(id(tensor), f"a tensor of shape {tuple(tensor.shape)}")
            self.bind(tensor, Unknown(f"{name}, which was changed in place, {self.said()}"))

    def _keep_up(self, changed):
        """Counts a change of a tensor, which is one of all that share its memory, as seen."""
        memory = _memory(changed)
        for tensor in [known for known, _ in self._known.values()] + [own for _, own in self._own]:
            if _memory(tensor) == memory:
                self._versions[id(tensor)] = self._version(tensor)

    def _version(self, tensor):
        """How often torch has changed it in place; 0 where inference mode does not count."""
        with self.paused():
            return 0 if tensor.is_inference() else tensor._version

    def _watch(self, name, module):
        forward, make = module.forward, self.library.module(module)

        def run(*args, **kwargs):
            self._path.append(name)
            try:
                if self._paused or not make:
                    return forward(*args, **kwargs)
                with self.paused():
                    result = self._call(forward, args, kwargs)
                    self._doing = type(module).__name__
                    try:
                        make(self, module, args, kwargs, result)
                    except ExportError as error:
                        self.refuse(result, getattr(error, "why", str(error)), type(error))
                return result
            finally:
                self._path.pop()

        own = "forward" in vars(module)
        module.forward = run
        self._undo.callback(
            lambda: setattr(module, "forward", forward) if own else delattr(module, "forward")
        )

    def _watch_method(self, owner, method, added):
        """A method of a sparse tensor that does what a layer does, as dense() is."""
        plain = getattr(owner, method)

        def run(this, *args, **kwargs):
            if self._paused:
                return plain(this, *args, **kwargs)
            with self.paused():
                result = plain(this, *args, **kwargs)
                self._doing = f"{method}()"
                try:
                    added(self, this, args, kwargs, result)
                except ExportError as error:
                    self.refuse(result, getattr(error, "why", str(error)), type(error))
            return result

        self._replace(owner, method, run)

    def _replace(self, owner, method, run):
        """Until the trace ends."""
        plain, own = getattr(owner, method), method in vars(owner)
        setattr(owner, method, run)
        self._undo.callback(
            lambda: setattr(owner, method, plain) if own else delattr(owner, method)
        )


def _bits(tensor):
    """Of a number of features; more than float32's count as that, in which the server computes."""
    return min(torch.finfo(tensor.dtype).bits, 32) if tensor.is_floating_point() else 0


def _memory(tensor):
    kept = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return kept.data_ptr()


def _overlap(one, other):
    """Whether two tensors of one memory share a number; columns of a matrix need not."""
    row = one.stride(0) if one.dim() == 2 else 0
    if other.dim() != 2 or row == 0 or (row, 1) != other.stride() or one.stride(1) != 1:
        return True
    first, second = one.storage_offset() % row, other.storage_offset() % row
    return first < second + other.shape[1] and second < first + one.shape[1]


def _tensors(thing):
    """All tensors in nested lists, tuples and dicts, and the features of sparse tensors."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        yield from _tensors(list(thing.values()))
    elif isinstance(thing, (list, tuple)):
        for item in thing:
            yield from _tensors(item)
    else:
        for name in ("features", "feats", "F"):  # what the libraries call them
            if isinstance(getattr(thing, name, None), torch.Tensor):
                yield getattr(thing, name)
                return
