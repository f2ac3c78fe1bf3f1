"""The gradient of `scan`: a second scan that visits the steps in the opposite order.

    forward    (consts, init, xs)                      -> (finals, ys, saved)
    backward   (consts, d_finals, saved, xs, d_ys)     -> (d_init, d_consts, d_xs)

`saved` are the carries that go into each step, and what cheap ops do not give again, stacked by a
twin of the forward loop that takes its place. The sums over all steps that a constant's gradient is
leave the loop where the constant is an operand of a product, multiplies a batch (of convolutions), is broadcast, or
rows of it are picked: their terms are stacked, and one product, gradient of the batch of all steps or sum follows. With
`remat` the loop is first cut into segments (remat.py). A loop with a matrix state is differentiated through its chunks
(chunkwise.py), which save a state for each chunk; one whose states outgrow the caches is cut into segments, too
(large_states.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lstm_ir.ir.graph import Graph, Node, Value, topological
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.pullback import Cts, Differentiation, Remat, opened, pull_back, session
from lstm_ir.ir.reach import reached
from lstm_ir.ops.primitive.broadcast import BROADCAST
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.gather import GATHER
from lstm_ir.ops.primitive.linear import DOT_GENERAL
from lstm_ir.ops.scan.chunkwise import chunkwise_vjp
from lstm_ir.ops.scan.large_states import segment_steps
from lstm_ir.ops.scan.pair import Pair, PairParts
from lstm_ir.ops.scan.parts import lifted, names_beside
from lstm_ir.ops.scan.remat import segmented_vjp
from lstm_ir.ops.scan.sums import SumTerm, joined
from lstm_ir.ops.scan.unrolled import without_short_loops


def scan_vjp(node: Node, cts: Cts, everything_again: bool = False, inner: Remat = None) -> Any:
    """Gradients of consts, init and xs; none of count. inner: how loops in the body are cut."""
    active = session()
    if active.remat is not None and not everything_again:
        active.saved.lengths.append(Loop(node).length)
        again = partial(scan_vjp, everything_again=True, inner=active.remat[1:] or None)
        found = segmented_vjp(node, cts, active.remat, again)
        if found is not None:
            return found
    elif not everything_again:
        found = chunkwise_vjp(node, cts)
        if found is None and (steps := segment_steps(Loop(node))) is not None:
            found = segmented_vjp(node, cts, (steps,), partial(scan_vjp, everything_again=True))
        if found is not None:
            return found
    return over_steps(node, cts, everything_again, inner)


def over_steps(node: Node, cts: Cts, everything_again: bool = False, inner: Remat = None) -> Any:
    """Gradients by a loop over the steps from the last to the first."""
    loop = Loop(node)
    if not everything_again:  # with `remat` short loops are segments
        loop = without_short_loops(loop)
    loop = lifted(loop)
    back = _Backward(node, loop, cts, everything_again, inner)
    grads = back.run()
    return *_to_operands(node, loop, grads), None


def _to_operands(node: Node, loop: Loop, grads: dict[Value, Value]) -> tuple[Any, Any, Any]:
    """Gradients by body parameter as gradients by operand; lifted constants carried on."""
    consts = Loop(node).consts
    n = len(consts)
    direct = [grads.get(p) for p in loop.const_params]
    seeds: dict[Value, Value] = {}
    for v, g in zip(loop.consts[n:], direct[n:], strict=True):
        if g is not None:
            seeds[v] = seeds[v] + g if v in seeds else g
    further = pull_back(seeds, list(dict.fromkeys(consts))) if seeds else {}
    out: list[Value | None] = []
    for v, g in zip(consts, direct[:n], strict=True):
        more = further.pop(v, None)
        out.append(g if more is None else more if g is None else g + more)
    d_init = tuple(grads.get(p) for p in loop.carry_params)
    return tuple(out), d_init, tuple(grads.get(p) for p in loop.x_params)


@dataclass
class _Backward:
    """One differentiation of one loop."""

    node: Node
    loop: Loop
    cts: Cts
    everything_again: bool
    inner: Remat
    terms: list[SumTerm] = field(default_factory=list)

    def run(self) -> dict[Value, Value]:
        """Gradients by parameter of the loop's body."""
        consts, carries, xs = self._active()
        if not consts and not carries and not xs:
            return {}
        return self._with(consts, carries, xs)

    def _active(self) -> tuple[list[Value], list[Value], list[Value]]:
        """The parameters that gradients flow to: those asked for, and carries that they reach."""
        loop, active = self.loop, session()
        known = dict.fromkeys(Loop(self.node).consts)
        wanted_lifted = self._wanted_lifted(list(known))
        consts = [
            p
            for p, v in zip(loop.const_params, loop.consts, strict=True)
            if p.dtype.is_float and (active.wants(v) if v in known else v in wanted_lifted)
        ]
        xs = [p for p, v in zip(loop.x_params, loop.xs, strict=True) if p.dtype.is_float and active.wants(v)]
        init = zip(loop.carry_params, loop.init, strict=True)
        carries = [p for p, v in init if p.dtype.is_float and active.wants(v)]
        while True:
            moved = reached(loop.body.nodes, [*consts, *carries, *xs])
            more = [
                p
                for p, out in zip(loop.carry_params, loop.next, strict=True)
                if out in moved and p.dtype.is_float and p not in carries
            ]
            if not more:
                order = [p for p in loop.carry_params if p in carries]
                return consts, order, xs
            carries += more

    def _wanted_lifted(self, originals: list[Value]) -> set[Value]:
        active = session()
        nodes = list(topological([v.node for v in self.loop.consts]))
        return reached(nodes, [v for v in originals if active.wants(v)])

    def _with(self, consts: list[Value], carries: list[Value], xs: list[Value]) -> dict[Value, Value]:
        loop = self.loop
        at = {p: i for i, p in enumerate(loop.carry_params)}
        name = names_beside(loop.body.params)
        d_out = {p: parameter(name(f"d_{i}"), p.type) for i, p in enumerate(carries)}
        arrived = self.cts[loop.first_row :]
        d_rows = {
            j: parameter(name(f"d_row{j}"), v.type)
            for j, v in enumerate(loop.rows)
            if arrived[j] is not None and v.dtype.is_float
        }
        seeds: dict[Value, Value] = {}
        for v, ct in [
            *((loop.next[at[p]], d) for p, d in d_out.items()),
            *((loop.rows[j], d) for j, d in d_rows.items()),
        ]:
            seeds[v] = seeds[v] + ct if v in seeds else ct
        inner = Differentiation(self.inner)
        session().saved.inside.append(inner.saved)
        with opened(inner):
            found = pull_back(seeds, [*consts, *carries, *xs], self._hook(set(consts), set(xs)))
        backward = [found.get(p, zeros_like(p)) for p in carries]
        sums = [p for p in consts if p in found]
        rows = [p for p in xs if p in found]
        backward += [found[p] for p in (*sums, *rows)]
        self.terms = joined(self.terms, consts)
        terms = [v for t in self.terms for v in (t.ct, t.other) if v is not None]
        whole = Graph(
            "both", [*loop.body.params, *d_out.values(), *d_rows.values()], [*loop.body.outputs, *backward, *terms]
        )
        whole = inner.resolve(whole)
        done = len(loop.body.outputs)
        resolved = iter(whole.outputs[done + len(backward) :])
        after = [replace(t, ct=next(resolved), other=None if t.other is None else next(resolved)) for t in self.terms]
        plain = whole.outputs[done : done + len(backward)]
        split = (len(carries), len(carries) + len(sums))
        forward = loop.body.outputs if self.everything_again else whole.outputs[:done]
        parts = PairParts(forward, plain, split, after, d_out, d_rows)
        back = Pair(self.node, loop, self.cts, parts, (carries, sums, rows), self.everything_again)
        return back.build()

    def _add_broadcast(self, n: Node, ct: Value) -> None:
        """Cotangents of one constant, broadcast alike at several places, are added in the step: one row leaves it."""
        source = n.inputs[0]
        for i, t in enumerate(self.terms):
            if t.node.op is BROADCAST and t.source is source and t.node.attrs == n.attrs:
                self.terms[i] = SumTerm(n, 0, source, t.ct + ct, None)
                return
        self.terms.append(SumTerm(n, 0, source, ct, None))

    def _hook(self, consts: set[Value], xs: set[Value]) -> Any:
        """Takes out of the loop what a product, a convolution, a broadcast or picked rows add to a constant's gradient,
        and the gradient of a slice that is multiplied by a constant."""
        fixed = set(self.loop.const_params)

        def hook(n: Node, cts: Cts) -> Any:
            batched = Trait.batched in n.op.traits
            if n.op not in (DOT_GENERAL, BROADCAST, GATHER) and not batched:
                return None
            (ct,) = cts
            assert ct is not None
            if n.op is GATHER:
                if n.inputs[0] not in consts:
                    return None
                self.terms.append(SumTerm(n, 0, n.inputs[0], ct, n.inputs[1]))
                return (None, None)
            if n.op is BROADCAST:
                if n.inputs[0] not in consts:
                    return None
                self._add_broadcast(n, ct)
                return (None,)
            late = [i for i, v in enumerate(n.inputs) if v in consts or (v in xs and n.inputs[1 - i] in fixed)]
            late = [i for i in late if not batched or (n.inputs[i] in xs) == (i == 0)]
            if not late:
                return None
            assert n.op.vjp is not None
            grads = list(n.op.vjp(n, cts))
            for i in late:
                self.terms.append(SumTerm(n, i, n.inputs[i], ct, n.inputs[1 - i]))
                grads[i] = None
            return tuple(grads)

        return hook
