"""`scan`: the only loop. Its body is a closed graph over a step number, constants, carries and
slices.

    body: (step i32[], consts..., carries..., slices...) -> (carries..., stop?, stacked...)

    n = length if count is None else count
    for s in range(n):                                  # s is the step number
        slices = [x[n-1-s] if r else x[s] for x, r in zip(xs, reverse)]
        carries, stop, rows = body(s, consts, carries, slices)
        ys[k][n-1-s if reverse[len(xs)+k] else s] = rows[k]
        steps = s + 1
        if until and all(stop): break
    # rows of ys at n and after are zero; with until, at steps and after

`reverse` has one flag per scanned operand, then one per stacked result. With `until` the body gives a flag stop i1[]
or flags i1[B] behind its carries, the loop a result steps i32[] behind its last carries, and no row is reversed: where
the last one lies is not known before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.interpret import InterpretedBody
from lstm_ir.ir.opdef import Attr, Range, define, need, need_at_least, need_equal
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.scan.grad import scan_vjp
from lstm_ir.ops.scan.node import STEP

Types = tuple[TensorType, ...]


def _scan_types(
    consts: Types, init: Types, xs: Types, count: TensorType | None, *,
    length: Dim, reverse: tuple[bool, ...], until: bool, body: Graph,
) -> dict[str, Any]:  # fmt: skip
    need_at_least(length, 0, f"its number of steps, {length}, is below 0")
    for x in xs:
        need(x.rank > 0, "a scanned operand has no axes")
        need_equal(x.shape[0], length, f"a scanned operand {x} does not have {length} rows")
    if count is not None:
        need(count.rank == 0 and count.dtype in (DType.i32, DType.i64), f"count is {count}, not i32[] or i64[]")
    want = (STEP, *consts, *init, *(x.with_shape(x.shape[1:]) for x in xs))
    got = tuple(p.type for p in body.params)
    need(len(got) == len(want), f"the body takes {len(got)} parameters, the loop gives {len(want)}")
    for p, w in zip(body.params, want, strict=True):
        need(p.type == w, f"the body's parameter {p.node.attrs['name']} is {p.type}, the loop gives {w}")
    outs = tuple(v.type for v in body.outputs)
    need(len(outs) >= len(init), f"the body gives {len(outs)} results for {len(init)} carries")
    for k, (a, b) in enumerate(zip(init, outs, strict=False)):
        need(a == b, f"carry {k} ({body.output_names[k]}) goes in as {a} and comes out as {b}")
    first = len(init) + until
    if until:
        flag = outs[len(init)] if len(outs) > len(init) else None
        fits = flag is not None and flag.dtype is DType.i1 and flag.rank < 2
        need(fits, f"with until the body's result behind its carries is {flag or 'absent'}, not i1[] or i1[B]")
        need(not any(reverse), "until does not go with reverse: the last row is not known before the loop ends")
    stacked = outs[first:]
    flags = len(xs) + len(stacked)
    need(len(reverse) == flags, f"reverse has {len(reverse)} flags for {flags} scanned and stacked values")
    ys = tuple(t.with_shape((length, *t.shape)) for t in stacked)
    return {"finals": init, "steps": STEP if until else None, "ys": ys}


def _scan_numpy(
    consts: Any, init: Any, xs: Any, count: Any, *, length: int, reverse: Any, until: bool, body: InterpretedBody,
) -> list[Any]:  # fmt: skip
    n = length if count is None else int(count)
    carries, first = list(init), len(init) + until
    rows: list[list[Any]] = []
    for s in range(n):
        slices = [x[n - 1 - s if r else s] for x, r in zip(xs, reverse, strict=False)]
        out = body(np.int32(s), *consts, *carries, *slices)
        carries = out[: len(init)]
        rows.append(out[first:])
        if until and np.all(out[len(init)]):
            break
    stacked = []
    probe = rows[0] if rows else body.zeros()[first:]
    for k, r in enumerate(reverse[len(xs) :]):
        y = np.zeros((length, *probe[k].shape), probe[k].dtype)
        for s, row in enumerate(rows):
            y[n - 1 - s if r else s] = row[k]
        stacked.append(y)
    return [*carries, *([np.int32(len(rows))] if until else []), *stacked]


def _scan_ranges(node: Node) -> tuple[Range, ...]:
    return () if node.arg("count") is None else (Range("count", 0, node.attrs["length"]),)


SCAN = define(
    "scan", "consts* init* xs* count?",
    attrs={"length": Attr("dim"), "reverse": Attr("bools"), "until": Attr("bool", False), "body": Attr("graph")},
    results="finals steps ys", types=_scan_types, numpy=_scan_numpy, vjp=scan_vjp, ranges=_scan_ranges,
)  # fmt: skip
