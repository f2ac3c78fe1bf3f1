"""`scan`: the only loop. Its body is a closed graph over a step number, constants, carries and
slices.

    body: (step i32[], consts..., carries..., slices...) -> (carries..., stacked...)

    n = length if count is None else count
    for s in range(n):                                  # s is the step number
        slices = [x[n-1-s] if r else x[s] for x, r in zip(xs, reverse)]
        carries, rows = body(s, consts, carries, slices)
        ys[k][n-1-s if reverse[len(xs)+k] else s] = rows[k]
    # rows of ys at n and after are zero

`reverse` has one flag per scanned operand, then one per stacked result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.interpret import Body
from lstm_ir.ir.opdef import Attr, Range, define, need, need_equal
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.scan.grad import scan_vjp
from lstm_ir.ops.scan.node import STEP

Types = tuple[TensorType, ...]


def _scan_types(
    consts: Types, init: Types, xs: Types, count: TensorType | None, *,
    length: Dim, reverse: tuple[bool, ...], body: Graph,
) -> dict[str, Any]:  # fmt: skip
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
    stacked = outs[len(init) :]
    flags = len(xs) + len(stacked)
    need(len(reverse) == flags, f"reverse has {len(reverse)} flags for {flags} scanned and stacked values")
    return {"finals": init, "ys": tuple(t.with_shape((length, *t.shape)) for t in stacked)}


def _scan_numpy(
    consts: Any, init: Any, xs: Any, count: Any, *, length: int, reverse: Any, body: Body,
) -> list[Any]:  # fmt: skip
    n = length if count is None else int(count)
    carries = list(init)
    rows: list[list[Any]] = []
    for s in range(n):
        slices = [x[n - 1 - s if r else s] for x, r in zip(xs, reverse, strict=False)]
        out = body(np.int32(s), *consts, *carries, *slices)
        carries = out[: len(init)]
        rows.append(out[len(init) :])
    stacked = []
    probe = rows[0] if rows else body.zeros()[len(init) :]
    for k, r in enumerate(reverse[len(xs) :]):
        y = np.zeros((length, *probe[k].shape), probe[k].dtype)
        for s, row in enumerate(rows):
            y[n - 1 - s if r else s] = row[k]
        stacked.append(y)
    return [*carries, *stacked]


def _scan_ranges(node: Node) -> tuple[Range, ...]:
    return () if node.arg("count") is None else (Range("count", 0, node.attrs["length"]),)


SCAN = define(
    "scan", "consts* init* xs* count?",
    attrs={"length": Attr("dim"), "reverse": Attr("bools"), "body": Attr("graph")},
    results="finals ys", types=_scan_types, numpy=_scan_numpy, vjp=scan_vjp, ranges=_scan_ranges,
)  # fmt: skip
