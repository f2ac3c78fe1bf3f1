"""While a module is exported, its recurrent layers and packed sequences become ops of `whole_ops.py`.

PyTorch's functions are intercepted by a function mode, which is public. Packed sequences go through two functions and
the `forward` of three layers, which are exchanged for the time of the export, in the exporting thread alone, and only
where PyTorch has them as this file knows them. So is `apply` of autograd.Function, whose gradient an export drops, and
so are hooks on gradients.
"""

from __future__ import annotations

import inspect
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.nn.utils import rnn
from torch.overrides import TorchFunctionMode

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch import whole_ops
from lstm_ir.ir.errors import ModelError

OPS = torch.ops.lstm_ir
LAYERS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}
_ACTIVE = threading.local()
_LOCK = threading.RLock()  # two exports at once would exchange each other's functions
_EXPECTED = {  # what PyTorch's functions take: another release may take something else
    rnn.pack_padded_sequence: ("input", "lengths", "batch_first", "enforce_sorted"),
    rnn.pad_packed_sequence: ("sequence", "batch_first", "padding_value", "total_length"),
    torch.nn.LSTM.forward: ("self", "input", "hx"),
    torch.nn.GRU.forward: ("self", "input", "hx"),
    torch.nn.RNN.forward: ("self", "input", "hx"),
}
_NUMBERS = (bool, int, float, str, torch.SymBool, torch.SymInt, torch.SymFloat, torch.dtype, torch.device)
_FIELDS = ("data", "batch_sizes", "sorted_indices", "unsorted_indices")


class _WholeOps(TorchFunctionMode):  # type: ignore[misc]
    """Calls of `torch.lstm` and its relatives become our ops."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _HOOKS and args[0].requires_grad:
            raise NodeRefusedError(_HOOKED)
        if func in _POOLS and not (kwargs or {}).get("return_indices"):
            return _max_pool1d(*args, **(kwargs or {}))
        name = _FUNCTIONS.get(func)
        if name is None or "batch_sizes" in (kwargs or {}) or (len(args) > 3 and isinstance(args[3], (list, tuple))):
            return func(*args, **(kwargs or {}))  # the form of packed data has a list of weights there
        return getattr(OPS, name)(*_in_order(name, args, kwargs or {}))


def _in_order(name: str, args: Any, kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments of `torch.lstm` and its relatives by place; ModelError for others than are known."""
    rest = _ARGUMENTS[len(args) :]
    if len(args) > len(_ARGUMENTS) or set(kwargs) != set(rest):
        raise ModelError(_unknown(f"torch.{name}"))
    return [*args, *(kwargs[n] for n in rest)]


_ARGUMENTS = (
    "input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first",
)  # fmt: skip
_FUNCTIONS: dict[Any, str] = {getattr(torch._VF, name): name for name in LAYERS.values()}
_HOOKS = (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook)
_HOOKED = (
    "forward puts a hook on the gradient of a tensor, which torch.export drops; a hook that changes no gradient is "
    "left out under `if not torch.compiler.is_exporting()`"
)
_POOLS = (torch.max_pool1d, torch.nn.functional.max_pool1d)


def _max_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                ceil_mode: bool = False, return_indices: bool = False) -> Any:  # fmt: skip
    """Over two axes, the first of size 1: PyTorch's own has a size function that makes numbers of open sizes."""
    taps, pads, steps = (v[0] if isinstance(v, (tuple, list)) else v for v in (kernel_size, padding, dilation))
    strides = stride[0] if isinstance(stride, (tuple, list)) and stride else stride or taps
    wide = torch.max_pool2d(input.unsqueeze(-2), (1, taps), (1, strides), (0, pads), (1, steps), ceil_mode)
    return wide.squeeze(-2)


class _Packed:
    """What packed sequences of one export were made of, by their `batch_sizes`."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, Any]] = {}  # with batch_sizes, whose id would be used again

    def note(self, batch_sizes: Any, lengths: Any) -> None:
        self._held[id(batch_sizes)] = (batch_sizes, lengths)

    def lengths(self, sequence: Any) -> Any:
        found = self._held.get(id(sequence.batch_sizes))
        if found is None:
            raise NodeRefusedError("a PackedSequence that pack_padded_sequence did not make is not taken")
        return found[1]


def _pack(input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> Any:
    """Rows stay in their order: what is sorted by length is sorted back by PyTorch too."""
    held = torch.as_tensor(lengths, dtype=None if isinstance(lengths, torch.Tensor) else torch.int64)
    data, batch_sizes = OPS.pack(input, held, batch_first)
    _ACTIVE.packed.note(batch_sizes, held)
    return rnn.PackedSequence(data, batch_sizes)


def _pad(sequence: Any, batch_first: bool = False, padding_value: float = 0.0, total_length: Any = None) -> Any:
    lengths = _ACTIVE.packed.lengths(sequence)
    steps = sequence.batch_sizes.shape[0]
    y = OPS.pad(sequence.data, lengths, steps, total_length, batch_first, float(padding_value))
    return y, lengths.to(torch.int64)


def _forward(original: Callable[..., Any]) -> Callable[..., Any]:
    """The `forward` of a layer, which gives packed sequences to our ops."""

    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        if not isinstance(input, rnn.PackedSequence) or not active():
            return original(self, input, hx)
        self._update_flat_weights()  # the list of parameters, which stand-ins have taken the place of
        lengths, steps = _ACTIVE.packed.lengths(input), input.batch_sizes.shape[0]
        if hx is None:
            rows = self.num_layers * (2 if self.bidirectional else 1)
            sizes = (self.proj_size or self.hidden_size, self.hidden_size)[: 2 if self.mode == "LSTM" else 1]
            like = {"dtype": input.data.dtype, "device": input.data.device}
            made = [torch.zeros((rows, lengths.shape[0], n), **like) for n in sizes]
            hx = made if self.mode == "LSTM" else made[0]
        layer = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        y, *last = getattr(OPS, f"packed_{LAYERS[self.mode]}")(input.data, lengths, steps, hx, *layer)
        return rnn.PackedSequence(y, input.batch_sizes), tuple(last) if self.mode == "LSTM" else last[0]

    return forward


def _applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """`Function.apply`: of a class that is not PyTorch's own an export keeps `forward` alone, and drops `backward`."""
    results = _apply(cls, *args, **kwargs)
    if cls.__module__.partition(".")[0] == "torch":
        return results
    why = (
        f"the autograd.Function {cls.__name__} has a backward of its own, which torch.export drops; a gradient that "
        "passes y by is written x + (y - x).detach()"
    )
    mark = (lambda v: OPS.own_gradient(v, why)) if torch.is_grad_enabled() else torch.Tensor.detach
    return torch.utils._pytree.tree_map_only(torch.Tensor, mark, results)


def global_gradient_hooks() -> tuple[Any, Any]:
    """Hooks on the gradients of every module."""
    return modules._global_backward_hooks, modules._global_backward_pre_hooks


def _hooked(module: Any, args: Any, results: Any) -> Any:
    """What a module gives that has hooks on its gradients, which an export drops."""
    if not any((module._backward_hooks, module._backward_pre_hooks, *global_gradient_hooks())):
        return None
    if not active() or not torch.is_grad_enabled():
        return None
    if type(module).__module__.startswith("torch.export."):  # what PyTorch puts around the module
        return None
    name = type(module).__name__
    if module._forward_hooks:  # PyTorch's hook on gradients stands behind them, this one before
        raise NodeRefusedError(f"the module {name} has a hook on its gradients and one on its forward; remove one")
    why = f"the module {name} has a hook on its gradients, which torch.export drops; remove it before the import"

    def mark(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return OPS.own_gradient(v, why) if v.is_floating_point() else v
        if isinstance(v, rnn.PackedSequence):
            return rnn.PackedSequence(OPS.own_gradient(v.data, why), v.batch_sizes)
        if v is None or isinstance(v, _NUMBERS):
            return v
        raise NodeRefusedError(f"the module {name} has a hook on its gradients, and gives a {type(v).__name__}")

    return torch.utils._pytree.tree_map(mark, results, is_leaf=lambda v: isinstance(v, rnn.PackedSequence))


def active() -> bool:
    """Whether this thread is exporting."""
    return getattr(_ACTIVE, "packed", None) is not None


def called(name: str, args: Any, kwargs: Any) -> Any:
    """A call of a function whose code was exchanged: ours while this thread exports, else PyTorch's."""
    ours, original = _EXCHANGED[name]
    return (ours if active() else original)(*args, **kwargs)


# The code that stands in for PyTorch's reads no name of this file: it runs among the globals of PyTorch's.


def _pack_entry(*args: Any, **kwargs: Any) -> Any:
    from lstm_ir.importers.torch.interception import called  # among PyTorch's globals

    return called("pack_padded_sequence", args, kwargs)


def _pad_entry(*args: Any, **kwargs: Any) -> Any:
    from lstm_ir.importers.torch.interception import called  # among PyTorch's globals

    return called("pad_packed_sequence", args, kwargs)


class _ApplyEntry:
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  PyTorch's is a method of the class
        from lstm_ir.importers.torch.interception import called  # among PyTorch's globals

        assert __class__  # type: ignore[name-defined]
        return called("apply", (cls, *args), kwargs)


def _copy(function: Any) -> Any:
    """The function as it is now, whatever becomes of its code."""
    made = (function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    return types.FunctionType(*made)


_APPLY = torch.autograd.Function.__dict__["apply"].__func__
_apply = _copy(_APPLY)

_EXCHANGED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "pack_padded_sequence": (_pack, _copy(rnn.pack_padded_sequence)),
    "pad_packed_sequence": (_pad, _copy(rnn.pad_packed_sequence)),
    "apply": (_applied, _apply),
}


def check() -> None:
    """ModelError where this PyTorch is not as this file knows it."""
    for function, names in _EXPECTED.items():
        if tuple(inspect.signature(function).parameters) != names or function.__closure__:
            raise ModelError(_unknown(function.__qualname__))
    if tuple(inspect.signature(_APPLY).parameters) != ("cls", "args", "kwargs") or not _APPLY.__closure__:
        raise ModelError(_unknown("autograd.Function.apply"))
    if rnn.PackedSequence._fields != _FIELDS:
        raise ModelError(_unknown("PackedSequence"))


def _unknown(what: str) -> str:
    return f"from_torch: torch {torch.__version__} has another {what} than the releases that are known (2.13)"


@contextmanager
def intercepted() -> Iterator[None]:
    """Recurrent layers and packed sequences as our ops, in this thread."""
    assert whole_ops.OWN
    with _LOCK, ExitStack() as stack:
        check()
        _ACTIVE.packed = _Packed()
        stack.callback(setattr, _ACTIVE, "packed", None)
        # Modules hold these functions by name: the functions stay, their code is another.
        for function, entry in (
            (rnn.pack_padded_sequence, _pack_entry), (rnn.pad_packed_sequence, _pad_entry), (_APPLY, _ApplyEntry.apply),
        ):  # fmt: skip
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = entry.__code__
        for layer in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            stack.callback(setattr, layer, "forward", layer.forward)
            layer.forward = _forward(layer.forward)
        stack.callback(modules.register_module_forward_hook(_hooked).remove)
        stack.enter_context(_WholeOps())
        yield
