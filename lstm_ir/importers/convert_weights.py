"""`li.convert_weights`: one layer's weights from the convention of one library into that of another."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from lstm_ir.importers.cell_weights import GATES, Array, CellWeights, Given, blocks
from lstm_ir.importers.conventions import CONVENTIONS, Extra, Form
from lstm_ir.importers.weight_layouts import Biases, led, plain
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.options import is_int


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
    for word, value in (("hidden_size", hidden_size), ("projection_size", projection_size)):
        if value is not None and not is_int(value):
            raise IRError(f"convert_weights: {word} is {value!r:.40}, not a number of units")
    if isinstance(forget_bias, bool) or not isinstance(forget_bias, int | float | np.floating | np.integer):
        raise IRError(f"convert_weights: forget_bias is {forget_bias!r:.40}, not a number")
    where = f"convert_weights: {source}"
    form, wanted = _form(source, cell), _form(target, cell)
    if reset_after is not None and cell != "gru":
        raise IRError(f"{where}: reset_after is of a gru, not of a cell {cell!r}")
    given = Given(arrays, where)
    if source == "cudnn_params":
        given = _unpacked(given, cell, *(None if n is None else int(n) for n in (hidden_size, projection_size)))
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
    if not isinstance(name, str) or name not in CONVENTIONS:
        raise IRError(f"convert_weights: the convention {name!r} is not known; there are {', '.join(CONVENTIONS)}")
    if not isinstance(cell, str) or cell not in GATES:
        raise IRError(f"convert_weights: cell is {cell!r}, not one of {', '.join(GATES)}")
    forms = CONVENTIONS[name].forms
    if cell not in forms:
        raise IRError(f"convert_weights: {name} has no {cell}; it has {', '.join(forms)}")
    return forms[cell]


def _when(after: bool | None) -> str:
    return "after" if after else "before"


def _read(g: Given, form: Form, cell: str, reset_after: bool | None, reasons: Mapping[str, str]) -> CellWeights:
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
    after = _resets(g, form, b.after, reset_after) if cell == "gru" else None
    return CellWeights(cell, w_ih, w_hh, b_in, b_rec, w_hr, peephole, after)


def _resets(g: Given, form: Form, in_arrays: bool | None, reset_after: bool | None) -> bool:
    """Whether the GRU resets after the product: as the convention has it, the arrays say or the caller."""
    known = form.resets if in_arrays is None else in_arrays
    if known is None and reset_after is None:
        raise IRError(f"{g.where}: the arrays do not say where the reset gate of a GRU acts; give reset_after")
    if known is not None and reset_after is not None and known != reset_after:
        raise IRError(f"{g.where}: reset_after is {reset_after}, but these arrays reset {_when(known)} the product")
    return bool(reset_after if known is None else known)


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
    out = form.matrices.write(blocks(w.w_ih, order, form.gates), blocks(w.w_hh, order, form.gates), G)
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
    shapes: dict[str, tuple[int, ...]] = {f"weight_{k}": (H, inputs - P if k < G else P) for k in range(2 * G)}
    shapes |= {} if projection is None else {"weight_8": (P, H)}
    shapes |= {f"bias_{k}": (H,) for k in range(2 * G)}
    ends = np.cumsum([prod(s) for s in shapes.values()])
    parts = np.split(params, ends[:-1])
    return Given({n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}, g.where)
