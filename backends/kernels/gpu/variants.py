"""The form of a loop on a GPU: all steps in one dispatch, a dispatch per step and phase, or for Vulkan one per chunk.

Mesa's software driver ends the loops of a shader after `ROUNDS` rounds, without an error. A loop that may
run for longer there is several dispatches. Where the number of steps is named, the module holds both
forms, and `scf.if` on that number picks one, once per call.
"""

from __future__ import annotations

from collections.abc import Callable

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.places import mlir_loc
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.body.planner import make_plan
from lstm_ir.backends.kernels.call.call import Values
from lstm_ir.backends.kernels.gpu.chunks import ChunkedDispatch
from lstm_ir.backends.kernels.gpu.dispatch import GpuDispatch
from lstm_ir.backends.kernels.gpu.machine import ROUNDS
from lstm_ir.backends.kernels.gpu.rounds import Rounds
from lstm_ir.backends.kernels.gpu.schedule import choose
from lstm_ir.backends.kernels.gpu.steps import StepDispatch
from lstm_ir.ir.graph import Node


def on_gpu(e: Emitter, n: Node, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> tuple[Values, str]:
    """The loop's results, and what --explain says; RefusedError for a body without kernels."""
    assert e.target is not None
    plan = make_plan(n, False, decided=e.decided.nodes)  # the pass hoist-projection has moved what can be moved
    schedule = choose(plan, e.target, e.options.thresholds.whole_loop)
    given = (consts, init, xs, count)
    with mlir_loc(n.loc, n.op.name):
        if not schedule.whole:
            return StepDispatch(e, plan, schedule=schedule).run(*given), schedule.note
        whole = GpuDispatch(e, plan, schedule=schedule)
        put = whole.planned(*given)
        length, some = plan.loop.length, _most_steps(e, whole.rounds)
        if some is None or (isinstance(length, int) and length <= some):
            return put(), schedule.note
        put_chunks = ChunkedDispatch(e, plan, schedule=schedule, some=some).planned(*given)
        note = f"{schedule.note}, at most {some} of them"
        if isinstance(length, int):
            return put_chunks(), note
        return _picked(e, n, e.size(length), some, (put, put_chunks)), note


def _most_steps(e: Emitter, rounds: Rounds) -> int | None:
    """Steps of one dispatch, an even number, as a carry has two copies; None: all."""
    assert e.target is not None
    most = e.options.thresholds.chunk_steps
    if most is None and e.target.kind == "vulkan":
        most = rounds.most_steps(ROUNDS)
    if most is not None and most < 2:
        raise RefusedError("a step has more rounds than Mesa's software driver runs in a dispatch")
    return most if most is None else most - most % 2


def _picked(e: Emitter, n: Node, length: ir.Value, most: int, put: tuple[Callable[[], Values], ...]) -> Values:
    """What the first puts for up to `most` steps, and the second for more."""
    choice = e.choice(e.compare("ule", length, e.size(most)), n.types)
    outer, e.outside = e.outside, e.outside or choice
    try:
        for region, form in zip(choice.regions, put, strict=True):
            with ir.InsertionPoint(region.blocks.append()):
                e.make("scf.yield", form(), [])
    finally:
        e.outside = outer
    return [e.tie(v, t) for v, t in zip(choice.results, n.types, strict=True)]
