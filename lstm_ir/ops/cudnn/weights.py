"""CudnnRNN's params vector from and to PyTorch's state_dict and Keras' weights, as NumPy arrays.

    params = from_torch(torch_lstm.state_dict(), rnn_mode="lstm")
    params = from_keras([layer.get_weights() for layer in layers], rnn_mode="gru")

PyTorch has the same gates and matrices: bias_ih is bW, bias_hh is bR, weight_hr is P. Keras has
columns for output units, the GRU's gates as z, r, h, and one bias where the vector has two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lstm_ir.ir.errors import IRError
from lstm_ir.ir.foreign_arrays import as_numpy
from lstm_ir.ir.types import DType
from lstm_ir.ops.cudnn.contract import DIRECTIONS, check_attrs, network
from lstm_ir.ops.cudnn.layout import Network, WeightRegion

Array = np.ndarray[Any, Any]
KERAS_GATES = {"lstm": (0, 1, 2, 3), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""Position in Keras' blocks of every gate of the vector; it is its own inverse."""
BIASES = ("bias_ih", "bias_hh")


class LayerWeights(NamedTuple):
    """One pseudo-layer: W [G*H,in], R [G*H,Q], P [Q,H] or None, bW and bR [G*H]."""

    W: Array
    R: Array
    P: Array | None
    b_in: Array
    b_rec: Array


def from_torch(state: Mapping[str, Any], *, rnn_mode: str = "lstm", prefix: str = "") -> Array:
    """The vector of a torch.nn.LSTM, GRU or RNN from its state_dict; names begin with `prefix`.

    Without any bias (bias=False) they are zeros. IRError names what is missing or left over.
    """
    _need_names(state)
    named = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    layers = {int(m[1]) for m in map(re.compile(r"weight_hh_l(\d+)").match, named) if m}
    if not layers or layers != set(range(len(layers))):
        raise IRError(f"from_torch: no weight_hh_l0 .. under {prefix!r}; there are {_few(state)}")
    tails = ("", "_reverse") if "weight_hh_l0_reverse" in named else ("",)
    ends = [f"_l{k}{tail}" for k in sorted(layers) for tail in tails]
    _need_all_or_no_biases(named, ends, prefix)
    cells = [_torch_cell(named, end) for end in ends]
    if named:
        raise IRError(f"from_torch: {_few(named)} is no weight of such a network")
    return packed(cells, rnn_mode, len(tails))


def _need_names(state: Any) -> None:
    """Refuse what is no state_dict; a module has one."""
    if not isinstance(state, Mapping):
        hint = "; give its state_dict()" if hasattr(state, "state_dict") else ""
        raise IRError(f"from_torch: expected a state_dict, got {type(state).__name__}{hint}")
    wrong = [k for k in state if not isinstance(k, str)]
    if wrong:
        raise IRError(f"from_torch: expected a state_dict, whose keys are names; got {wrong[0]!r}")


def _need_all_or_no_biases(named: Mapping[str, Any], ends: list[str], prefix: str) -> None:
    """Refuse a network that has lost some of its biases."""
    biases = [name + end for end in ends for name in BIASES]
    lost = [prefix + name for name in biases if name not in named]
    if 0 < len(lost) < len(biases):
        kept = f"{len(biases) - len(lost)} of {len(biases)} biases are there"
        why = "a network has all, or with bias=False none"
        raise IRError(f"from_torch: {', '.join(lost)} missing; {kept}, {why}")


def _torch_cell(named: dict[str, Any], tail: str) -> LayerWeights:
    """Takes the arrays of one pseudo-layer out of `named`."""
    for needed in ("weight_ih", "weight_hh"):
        if needed + tail not in named:
            raise IRError(f"from_torch: {needed + tail} is missing")

    def taken(name: str, rank: int) -> Array:
        return _array(named.pop(name + tail), f"from_torch: {name}{tail}", rank)

    W, R = taken("weight_ih", 2), taken("weight_hh", 2)
    P = taken("weight_hr", 2) if "weight_hr" + tail in named else None
    if BIASES[0] + tail not in named:
        zeros = np.zeros(len(R), R.dtype)
        return LayerWeights(W, R, P, zeros, zeros)
    return LayerWeights(W, R, P, *(taken(name, 1) for name in BIASES))


def to_torch(
    params: Any,
    *,
    num_layers: int,
    num_units: int,
    input_size: int,
    rnn_mode: str = "lstm",
    direction: str = "unidirectional",
    num_proj: int = 0,
) -> dict[str, Array]:
    """Arrays by PyTorch's names, in its order, for load_state_dict (linear_input)."""
    sizes = _sizes("to_torch", num_layers, num_units, input_size, num_proj)
    net = _network(sizes, rnn_mode, direction)
    out: dict[str, Array] = {}
    for p, cell in enumerate(unpacked(params, net)):
        tail = f"_l{p // net.D}{'_reverse' if p % net.D else ''}"
        found = {"weight_ih": cell.W, "weight_hh": cell.R}
        found |= {"bias_ih": cell.b_in, "bias_hh": cell.b_rec}
        found |= {} if cell.P is None else {"weight_hr": cell.P}
        out |= {name + tail: a for name, a in found.items()}
    return out


def from_keras(layers: Sequence[Sequence[Any]], *, rnn_mode: str = "lstm", direction: str = "unidirectional") -> Array:
    """The vector of Keras' LSTM, GRU (reset_after=True) or SimpleRNN layers, first layer first.

    Each entry is what get_weights() gives: kernel [in,G*H], recurrent kernel [H,G*H] and, with
    use_bias, a bias [G*H] (GRU: [2,G*H]); of a Bidirectional layer forward first, then backward.
    """
    check_attrs(rnn_mode, "linear_input", direction, 0.0, 0)
    D = DIRECTIONS[direction]
    cells = []
    for k, weights in enumerate(_listed(layers, "layers")):
        given = _listed(weights, f"weights of layer {k}")
        arrays = [_array(a, f"from_keras: layer {k}, weight {n}") for n, a in enumerate(given)]
        each = len(arrays) // D
        if len(arrays) != each * D or each not in (2, 3):
            raise IRError(f"from_keras: layer {k} has {len(arrays)} weights for {D} directions")
        cells += [_keras_cell(arrays[d * each : (d + 1) * each], rnn_mode) for d in range(D)]
    return packed(cells, rnn_mode, D)


def _listed(value: Any, what: str) -> list[Any]:
    """A sequence of arrays or of layers' arrays; a layer itself has get_weights()."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        hint = "; give what its get_weights() gives" if hasattr(value, "get_weights") else ""
        raise IRError(f"from_keras: the {what} are {type(value).__name__}, no list{hint}")
    return list(value)


def _keras_cell(arrays: list[Array], mode: str) -> LayerWeights:
    if arrays[0].ndim < 2 or arrays[1].ndim < 2:
        shapes = f"{arrays[0].shape} and {arrays[1].shape}"
        raise IRError(f"from_keras: kernels of shapes {shapes} are no matrices")
    kernel, recurrent = (_gates(a.T, mode) for a in arrays[:2])
    zeros = np.zeros(len(kernel), kernel.dtype)
    if len(arrays) == 2:
        return LayerWeights(kernel, recurrent, None, zeros, zeros)
    bias = arrays[2]
    if mode != "gru":
        return LayerWeights(kernel, recurrent, None, zeros, _gates(bias, mode))
    if bias.ndim != 2:
        raise IRError(
            f"from_keras: a GRU's bias is {bias.shape}, not (2, 3*units): with reset_after=False "
            "Keras resets before the product, which no CudnnRNN mode does"
        )
    return LayerWeights(kernel, recurrent, None, _gates(bias[0], mode), _gates(bias[1], mode))


def to_keras(
    params: Any,
    *,
    num_layers: int,
    num_units: int,
    input_size: int,
    rnn_mode: str = "lstm",
    direction: str = "unidirectional",
) -> list[list[Array]]:
    """Per layer what Keras' set_weights takes, with biases; bW + bR where Keras has one bias."""
    sizes = _sizes("to_keras", num_layers, num_units, input_size, 0)
    net = _network(sizes, rnn_mode, direction)
    out: list[list[Array]] = [[] for _ in range(net.L)]
    for p, cell in enumerate(unpacked(params, net)):
        gru = rnn_mode == "gru"
        b = np.stack([cell.b_in, cell.b_rec], 1) if gru else cell.b_in + cell.b_rec
        turned = [np.ascontiguousarray(_gates(a, rnn_mode).T) for a in (cell.W, cell.R, b)]
        out[p // net.D] += turned
    return out


def _gates(a: Array, mode: str) -> Array:
    """Blocks of rows between Keras' order and the vector's."""
    order = KERAS_GATES[mode]
    if len(a) % len(order):
        raise IRError(f"an array of shape {a.shape} is not {len(order)} gates of equal size")
    blocks = np.split(a, len(order))
    return np.concatenate([blocks[k] for k in order])


def packed(cells: Sequence[LayerWeights], rnn_mode: str, D: int) -> Array:
    """The vector of pseudo-layers; IRError for a shape that does not fit."""
    if not cells:
        raise IRError("params: no layers")
    check_attrs(rnn_mode, "linear_input", "unidirectional", 0.0, 0)
    first = cells[0]
    proj = 0 if first.P is None else len(first.P)
    G = len(KERAS_GATES[rnn_mode])
    if len(first.R) % G:
        raise IRError(f"params: {len(first.R)} rows are not the {G} gates of {rnn_mode}")
    H = len(first.R) // G
    direction = "bidirectional" if D == 2 else "unidirectional"
    net = _network([len(cells) // D, H, first.W.shape[1], proj], rnn_mode, direction)
    out = np.zeros(net.size, first.W.dtype)
    for p, (blocks, cell) in enumerate(zip(net.blocks, cells, strict=True)):
        for region, value in zip(blocks, cell, strict=True):
            if (region is None) != (value is None):
                raise IRError(f"params: pseudo-layer {p}: a projection is missing or too many")
            if region is not None and value is not None:
                _place(out, region, value)
    return out


def _place(out: Array, region: WeightRegion, value: Array) -> None:
    if value.shape != region.shape:
        where = f"params: pseudo-layer {region.p}: {region.kind}"
        raise IRError(f"{where} has shape {value.shape}, expected {region.shape}")
    if value.dtype != out.dtype:
        raise IRError(f"params: {region.kind} is {value.dtype}, the first weight {out.dtype}")
    out[region.offset : region.offset + region.size] = value.ravel()


def unpacked(params: Any, net: Network) -> list[LayerWeights]:
    """The pseudo-layers of a vector, as copies."""
    flat = _array(params, "params")
    if flat.shape != (net.size,):
        raise IRError(f"params has shape {flat.shape}, these sizes have ({net.size},)")

    def cut(r: WeightRegion | None) -> Array:
        assert r is not None  # without skip_input only P may be absent
        return flat[r.offset : r.offset + r.size].reshape(r.shape).copy()

    return [
        LayerWeights(cut(b.W), cut(b.R), None if b.P is None else cut(b.P), cut(b.b_in), cut(b.b_rec))
        for b in net.blocks
    ]


def _network(sizes: Sequence[int], mode: str, direction: str) -> Network:
    """Of num_layers, num_units, input_size and num_proj."""
    L, H, I, proj = sizes
    attrs = {"rnn_mode": mode, "input_mode": "linear_input", "direction": direction}
    check_attrs(mode, "linear_input", direction, 0.0, proj)
    return network(L, I, H, **attrs, num_proj=proj)


def _sizes(what: str, *values: Any) -> list[int]:
    """num_layers, num_units, input_size and num_proj as integers."""
    names = ("num_layers", "num_units", "input_size", "num_proj")
    for name, v in zip(names, values, strict=True):
        if isinstance(v, (bool, np.bool_)) or not isinstance(v, (int, np.integer)):
            raise IRError(f"{what}: {name} is {v!r}, not an integer")
    return [int(v) for v in values]


def _array(value: Any, what: str, rank: int | None = None) -> Array:
    """A NumPy array of the floats that NumPy, PyTorch or Keras holds."""
    near = value.cpu() if hasattr(value, "cpu") else value
    found = np.asarray(as_numpy(near, lambda got: IRError(f"{what} is {got}")))
    kind = found.dtype
    if kind not in [d.numpy for d in DType if d.is_float]:
        raise IRError(f"{what} has {kind} elements, not floats")
    if rank is not None and found.ndim != rank:
        raise IRError(f"{what} has shape {found.shape}, expected {rank} sizes")
    return found


def _few(names: Mapping[str, Any]) -> str:
    found = list(names)
    return ", ".join(found[:4]) + (", .." if len(found) > 4 else "") if found else "nothing"
