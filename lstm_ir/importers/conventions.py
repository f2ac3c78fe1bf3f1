"""`li.convert_weights`: one layer's weights from the convention of one library into that of another.

`CONVENTIONS` is the one table of gate orders, layouts and biases; docs/weights.md shows it with what each row rests on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lstm_ir.importers.cell_weights import GATES, Array, CellWeights, Given, blocks
from lstm_ir.importers.weight_layouts import (
    Apart,
    ApartBiases,
    Biases,
    BiasLayout,
    Columns,
    InnerBias,
    Joined,
    JoinedBiases,
    KerasBias,
    LdgoBias,
    Ldigo,
    Matrices,
    OneBias,
    Rows,
    TwoBiases,
    led,
    plain,
)
from lstm_ir.ir.errors import IRError


@dataclass(frozen=True)
class Extra:
    """An array that some LSTMs have: its name or names, the axes of size 1 before, whether it is transposed."""

    names: tuple[str, ...]
    order: str = "ifo"  # of the blocks
    leading: int = 0
    turned: bool = False


@dataclass(frozen=True)
class Form:
    """One cell in one convention. `gates` are ours (i, f, g, o; r, z, n; h) in its order.

    resets: of a GRU whether it resets after the product; None where both exist. adds_forget: the op itself adds a
    number to the bias of f.
    """

    gates: str
    matrices: Matrices
    bias: BiasLayout
    projection: Extra | None = None
    peephole: Extra | None = None
    resets: bool | None = None
    adds_forget: bool = False


@dataclass(frozen=True)
class Convention:
    """A library's way to hold weights: the forms of its cells, and what the names and rows rest on."""

    title: str
    forms: Mapping[str, Form]
    source: str
    reasons: Mapping[str, str]  # of arrays that are refused, why


def _three(orders: tuple[str, str], matrices: Matrices, bias: BiasLayout, **lstm: Any) -> dict[str, Form]:
    """LSTM, GRU and RNN of one layout; both orders of gates."""
    more = {"resets": lstm.pop("resets", None)}
    return {
        "lstm": Form(orders[0], matrices, bias, **lstm), "gru": Form(orders[1], matrices, bias, **more),
        "rnn": Form("h", matrices, bias),
    }  # fmt: skip


_CUDNN = _three(("ifgo", "rzn"), Apart("weight_"), ApartBiases("bias_"), resets=True, projection=Extra(("weight_8",)))
_MPS = Rows("inputWeight", "recurrentWeight"), InnerBias("bias", "secondaryBias")
_NO_MPS_PEEPHOLE = {
    "peephole": "multiplies the cell of the step before in all four gates, which no other convention has"
}
_TF_PEEPHOLES = Extra(("wci", "wcf", "wco"))

CONVENTIONS: dict[str, Convention] = {
    "lstm_ir": Convention(
        "the core ops of this project",
        _three(("ifgo", "rzn"), Rows("w_ih", "w_hh"), InnerBias("b", "b_hn"), projection=Extra(("w_hr",)),
               peephole=Extra(("peephole",))),
        "docs/core-ops.md", {},
    ),
    "torch": Convention(
        "PyTorch's LSTM, GRU, RNN and their cells; without `_l0`",
        _three(("ifgo", "rzn"), Rows("weight_ih", "weight_hh"), TwoBiases("bias_ih", "bias_hh"), resets=True,
               projection=Extra(("weight_hr",))),
        "documentation of torch.nn.LSTM and torch.nn.GRU; run", {},
    ),
    "keras": Convention(
        "Keras' LSTM, GRU, SimpleRNN",
        _three(("ifgo", "zrn"), Columns("kernel", "recurrent_kernel"), KerasBias("bias")),
        "keras/src/layers/rnn/{lstm,gru,simple_rnn}.py; run", {},
    ),
    "tf_block": Convention(
        "TensorFlow's LSTMBlockCell, BlockLSTM and GRUBlockCell",
        {"lstm": Form("igfo", Joined(("w",), (4,)), OneBias(("b",), (4,), True), peephole=_TF_PEEPHOLES,
                      adds_forget=True),
         "gru": Form("rzn", Joined(("w_ru", "w_c"), (2, 1)), OneBias(("b_ru", "b_c"), (2, 1), True), resets=False)},
        "docs/tf-block-ops.md; run", {},
    ),
    "tf_block_v2": Convention(
        "TensorFlow's BlockLSTMV2",
        {"lstm": Form("ifgo", Joined(("w",), (4,)), OneBias(("b",), (4,), True), peephole=_TF_PEEPHOLES)},
        "docs/tf-block-ops.md; run", {},
    ),
    "tf1": Convention(
        "TensorFlow 1's LSTMCell, BasicLSTMCell, GRUCell, BasicRNNCell",
        {"lstm": Form("igfo", Joined(("kernel",), (4,)), OneBias(("bias",), (4,), True), adds_forget=True,
                      projection=Extra(("projection/kernel",), turned=True),
                      peephole=Extra(("w_i_diag", "w_f_diag", "w_o_diag"))),
         "gru": Form("rzn", Joined(("gates/kernel", "candidate/kernel"), (2, 1)),
                     OneBias(("gates/bias", "candidate/bias"), (2, 1), True), resets=False),
         "rnn": Form("h", Joined(("kernel",), (1,)), OneBias(("bias",), (1,), True))},
        "keras/layers/rnn/legacy_cells.py of Keras 2.15; the equations, not run", {},
    ),
    "onnx": Convention(
        "ONNX's LSTM, GRU, RNN",
        _three(("iofg", "zrn"), Rows("W", "R", 1), JoinedBiases("B"), peephole=Extra(("P",), "iof", 1)),
        "operators LSTM-22, GRU-22, RNN-22 of ONNX; run", {},
    ),
    "cudnn": Convention(
        "cuDNN's matrices and biases by linLayerID, as CudnnRNNParamsToCanonicalV2 gives them",
        _CUDNN, "cudnnGetRNNWeightParams; docs/cudnn-rnn.md", {},
    ),
    "cudnn_params": Convention(
        "the params vector of CudnnRNNV3, of one layer and direction",
        _CUDNN, "docs/cudnn-rnn.md", {},
    ),
    "mps": Convention(
        "MPSGraph's LSTM, GRU, singleGateRNN",
        _three(("ifgo", "zrn"), *_MPS), "docs/mpsgraph.md, from Apple's documentation", _NO_MPS_PEEPHOLE,
    ),
    "mps_flagged": Convention(
        "MPSGraph's LSTM with forgetGateLast, GRU with resetGateFirst",
        {"lstm": Form("igfo", *_MPS), "gru": Form("rzn", *_MPS)},
        "docs/mpsgraph.md, from Apple's documentation", _NO_MPS_PEEPHOLE,
    ),
    "onednn": Convention(
        "oneDNN's RNN primitives, layouts ldigo and ldgo; the GRU that resets after is linear-before-reset",
        _three(("ifgo", "zrn"), Ldigo("weights_layer", "weights_iter"), LdgoBias("bias"),
               projection=Extra(("weights_projection",), leading=2, turned=True),
               peephole=Extra(("weights_peephole",), leading=2)),
        "doc/primitives/rnn.md of oneDNN; not run", {},
    ),
    "coreml": Convention(
        "Core ML's MIL operations lstm, gru, rnn",
        _three(("ifog", "rnz"), Rows("weight_ih", "weight_hh"), OneBias(("bias",)), resets=True,
               peephole=Extra(("peephole",))),
        "coremltools, mil/ops/defs/iOS15/recurrent.py; not run", {},
    ),
}  # fmt: skip


def convert_weights(
    arrays: Mapping[str, Any],
    *,
    source: str,
    target: str,
    cell: str = "lstm",
    reset_after: bool | None = None,
    forget_bias: float = 1.0,
    hidden_size: int | None = None,
    projection_size: int | None = None,
) -> dict[str, Array]:
    """The weights of one recurrent layer in one direction, from one convention into another.

    arrays: by the names that `source` has (docs/weights.md lists them), floats of one dtype. source, target:
    words such as "torch", "keras", "onnx". cell: "lstm", "gru" or "rnn". reset_after: of a GRU, where its reset
    gate acts; needed where the arrays of `source` do not say it. forget_bias: the number that TensorFlow 1's cells
    and block ops add to the bias of f. hidden_size, projection_size: of the vector "cudnn_params". Gives new arrays
    by the names of `target`. Raises IRError for arrays that do not fit, and for what the target does not have:
    a peephole, a projection, the other reset of a GRU, a bias inside the product.
    """
    where = f"convert_weights: {source}"
    form = _form(source, cell)
    wanted = _form(target, cell)
    given = Given(arrays, where)
    if source == "cudnn_params":
        given = _unpacked(given, cell, hidden_size, projection_size)
    w = _read(given, form, cell, reset_after, CONVENTIONS[source].reasons).checked(where)
    w = w.with_forget(forget_bias if form.adds_forget else 0.0)
    if cell == "gru" and wanted.resets is not None and wanted.resets != w.reset_after:
        raise IRError(f"{where} to {target}: this GRU resets {_when(w.reset_after)} the product with h, "
                      f"{target} {_when(wanted.resets)} it alone")  # fmt: skip
    w = w.with_forget(-forget_bias if wanted.adds_forget else 0.0)
    out = _written(w, wanted, f"{where} to {target}", target)
    if target == "cudnn_params":
        out = {"params": np.concatenate([a.reshape(-1) for a in out.values()])}
    return {name: np.array(a, order="C") for name, a in out.items()}  # the caller's own


def _form(name: str, cell: str) -> Form:
    if name not in CONVENTIONS:
        raise IRError(f"convert_weights: the convention {name!r} is not known; there are {', '.join(CONVENTIONS)}")
    if cell not in GATES:
        raise IRError(f"convert_weights: cell is {cell!r}, not one of {', '.join(GATES)}")
    forms = CONVENTIONS[name].forms
    if cell not in forms:
        raise IRError(f"convert_weights: {name} has no {cell}; it has {', '.join(forms)}")
    return forms[cell]


def _when(after: bool | None) -> str:
    return "after" if after else "before"


def _read(g: Given, form: Form, cell: str, told: bool | None, reasons: Mapping[str, str]) -> CellWeights:
    G, order = len(form.gates), GATES[cell]
    w_hr = _extra(g, form.projection, 2)
    w_ih, w_hh = form.matrices.read(g, G, None if w_hr is None else len(w_hr))
    b = form.bias.read(g, G)
    peephole = _extra(g, form.peephole, 1)
    g.check_all_read(reasons)
    for a in (w_ih, w_hh, b.b_in, b.b_rec):
        if a is not None and len(a) % G:
            raise IRError(f"{g.where}: an array of {len(a)} rows is not {G} gates of one size")
    w_ih, w_hh = (blocks(a, form.gates, order) for a in (w_ih, w_hh))
    b_in, b_rec = (None if a is None else blocks(a, form.gates, order) for a in (b.b_in, b.b_rec))
    if b.inner is not None:
        b_rec = np.concatenate([np.zeros(2 * len(b.inner), b.inner.dtype), b.inner])
    if peephole is not None and form.peephole is not None:
        if len(peephole) % 3:
            raise IRError(f"{g.where}: the peephole has {len(peephole)} numbers, not 3 blocks of one size")
        peephole = blocks(peephole, form.peephole.order, "ifo")
    after = _resets(g, form, b.after, told) if cell == "gru" else None
    return CellWeights(cell, w_ih, w_hh, b_in, b_rec, w_hr, peephole, after)


def _resets(g: Given, form: Form, said: bool | None, told: bool | None) -> bool:
    """Whether the GRU resets after the product: as the convention has it, the arrays say or the caller."""
    known = form.resets if said is None else said
    if known is None and told is None:
        raise IRError(f"{g.where}: the arrays do not say where the reset gate of a GRU acts; give reset_after")
    if known is not None and told is not None and known != told:
        raise IRError(f"{g.where}: reset_after is {told}, but these arrays reset {_when(known)} the product")
    return bool(told if known is None else known)


def _extra(g: Given, extra: Extra | None, rank: int) -> Array | None:
    """The array [P,H] or [3H]; blocks of their own names one after the other."""
    if extra is None or not g.together(list(extra.names)):
        return None
    if rank == 1 and extra.leading == 2:  # [1,1,3,H]
        return plain(g, extra.names[0], 2, 2).reshape(-1)
    found = [plain(g, n, rank, extra.leading) for n in extra.names]
    a = found[0] if len(found) == 1 else np.concatenate(found)
    return a.T if extra.turned else a


def _written(w: CellWeights, form: Form, where: str, target: str) -> dict[str, Array]:
    G, order = len(form.gates), GATES[w.cell]
    for what, array, extra in (("projection", w.w_hr, form.projection), ("peephole", w.peephole, form.peephole)):
        if array is not None and extra is None:
            raise IRError(f"{where}: the weights have a {what}, {target} has none")
    out = form.matrices.write(*(blocks(a, order, form.gates) for a in (w.w_ih, w.w_hh)), G)
    if w.w_hr is not None and form.projection is not None:
        a = w.w_hr.T if form.projection.turned else w.w_hr
        out[form.projection.names[0]] = led(a, form.projection.leading)
    turned = (None if a is None else blocks(a, order, form.gates) for a in (w.b_in, w.b_rec, w.outer))
    b_in, b_rec, outer = turned
    zeros = np.zeros(len(w.w_hh), w.w_hh.dtype)
    try:
        out |= form.bias.write(Biases(b_in, b_rec, w.inner, outer, w.reset_after, zeros), G)
    except IRError as e:
        raise IRError(f"{where}: {e}") from None
    if w.peephole is not None and form.peephole is not None:
        out |= _peepholes(blocks(w.peephole, "ifo", form.peephole.order), form.peephole, w.hidden)
    return out


def _peepholes(a: Array, extra: Extra, H: int) -> dict[str, Array]:
    if len(extra.names) == 3:
        return dict(zip(extra.names, np.split(a, 3), strict=True))
    return {extra.names[0]: a.reshape(1, 1, 3, H) if extra.leading == 2 else led(a, extra.leading)}


def _unpacked(g: Given, cell: str, hidden: int | None, projection: int | None) -> Given:
    """The vector as the matrices and biases that it joins; one layer, one direction."""
    params, G, H = g.get("params", 1), len(GATES[cell]), hidden
    g.check_all_read({})
    if not isinstance(H, int) or H < 1:
        raise IRError(f"{g.where}: the vector does not say its sizes; give hidden_size (got {hidden!r})")
    P = H if projection is None else projection
    rest = len(params) - 2 * G * H - (0 if projection is None else P * H)
    inputs, over = divmod(rest, G * H)
    if over or inputs < P:
        raise IRError(
            f"{g.where}: params has {len(params)} numbers, no {cell} of {H} units and {P} outputs has so many"
        )
    shapes = {f"weight_{k}": (H, inputs - P if k < G else P) for k in range(2 * G)}
    shapes |= {} if projection is None else {"weight_8": (P, H)}
    shapes |= {f"bias_{k}": (H,) for k in range(2 * G)}
    ends = np.cumsum([prod(s) for s in shapes.values()])
    parts = np.split(params, ends[:-1])
    return Given({n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}, g.where)
