"""`li.train_step`: a graph with a loss, as a program that trains."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from lstm_ir.ir.called import told
from lstm_ir.ir.errors import GradientError
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.options import is_int
from lstm_ir.ir.program import Program
from lstm_ir.training.carried import source_of, with_running
from lstm_ir.training.gradient import loss_gradients
from lstm_ir.training.masters import check_precision
from lstm_ir.training.optimizer import Optimizer, matched
from lstm_ir.training.plan import Plan
from lstm_ir.training.rates import is_number

_WORDS = {
    **dict.fromkeys(("clip", "clipnorm", "max_norm", "max_grad_norm", "clip_grad_norm"), "clip_norm"),
    **dict.fromkeys(("eval", "validate", "validation"), "evaluate=True, for an entry that does so"),
    **dict.fromkeys(("accumulation_steps", "gradient_accumulation_steps", "accumulate_grad_batches"), "accumulate"),
    **dict.fromkeys(("params", "parameters", "trainable_weights", "wrt"), "trainable, names of weights"),
    **dict.fromkeys(("lr", "learning_rate"), "it to the optimizer: li.adam(lr)"),
    **dict.fromkeys(("dtype", "amp", "mixed_precision"), 'precision, "bf16" or "f16"'),
    "metrics": "outputs, names of outputs of the graph that `train` gives too",
}
"""Of other libraries, and what stands here in their place."""


@told(_WORDS)
def train_step(
    graph: Graph | Program,
    loss: str,
    optimizer: Optimizer,
    trainable: str | Sequence[str] = "*",
    *,
    outputs: str | Sequence[str] = (),
    infer: str | Sequence[str] | None = None,
    evaluate: bool = False,
    grads: bool = False,
    accumulate: int = 1,
    clip_norm: float | None = None,
    remat: int | Sequence[int] | None = None,
    memory: int | str | None = None,
    sizes: Mapping[str, int] | None = None,
    stop_on_nan: bool = True,
    precision: str | None = None,
) -> Program:
    """A program that trains the weights whose names match `trainable` (`decoder/*`) to lower `loss`.

    graph: with the loss, a float scalar, among its outputs; or a program of `stateful`: then `train` carries its
    state from call to call, without a gradient across calls, and an entry `reset` starts it again.
    Entries: `train` takes the graph's inputs, gives the loss and the gradients' norm, and updates; `infer` gives the
    graph's other outputs, without dropout. State: the weights, `step` (updates done; an input `step: i64[]` of
    the graph is fed from it) and the optimizer's slots, `adam/m/NAME`; also
    weights that a `batch_norm` in training takes as mean and var: `train` moves them, the other entries use them.
    outputs: names of outputs that `train` gives too, as they are in training. infer: names of the outputs that
    `infer` gives, by default all but the loss. evaluate: an entry `evaluate`, which gives the loss and all other
    outputs, without dropout, and updates nothing. grads: entries `grads`, which gives loss and `d_NAME` and updates
    nothing, and `apply`, which takes `d_NAME` and updates: `lstm_ir.parallel.Trainer` needs them. accumulate: so many
    calls of `train` make one update, by the mean of their gradients. clip_norm: gradients are scaled so that the norm
    of all is at most this. remat, memory, sizes: as in `grad`.
    stop_on_nan: a step whose loss, norm or learning rate (where it is no number) is not finite is an error that
    names the step, and changes nothing. precision: "bf16" or "f16": trained f32 weights of two axes or more are
    read rounded so, in every entry, by any op; the weights themselves, gradients, sums and the optimizer stay f32.
    Raises GradientError for a name that matches nothing or is taken, weights of f16 or bf16, a program
    that is not made by `stateful`, and as `grad`.
    """
    given, carried = source_of(graph)
    if not isinstance(optimizer, Optimizer):
        raise GradientError(
            f"train_step: the optimizer is {optimizer!r}; expected one made by li.adam(...), "
            "li.adamw(...), li.momentum(...), li.sgd(...), li.rmsprop(...) or li.adagrad(...)"
        )
    if not isinstance(loss, str):
        raise GradientError(f"train_step: loss is {loss!r:.80}; expected the name of an output")
    for name, flag in (("stop_on_nan", stop_on_nan), ("evaluate", evaluate), ("grads", grads)):
        if not isinstance(flag, bool):
            raise GradientError(f"train_step: {name} is {flag!r:.80}; expected True or False")
    if clip_norm is not None and not (is_number(clip_norm) and clip_norm > 0):
        raise GradientError(f"train_step: clip_norm is {clip_norm!r}; expected a number above 0")
    if not is_int(accumulate) or accumulate < 1:
        raise GradientError(f"train_step: accumulate is {accumulate!r:.80}; a number of calls, at least 1")
    check_precision(precision)
    source, running = with_running(given)
    names = tuple(_trainable(source, trainable, running))
    shown = tuple(_shown(given, outputs, loss, "outputs"))
    kept = None if infer is None else tuple(_shown(given, infer, loss, "infer"))
    plan = Plan(source, loss, optimizer, names, clip_norm, shown, int(accumulate), carried, precision, running)
    plan.need_own_names()
    wide = loss_gradients(source, loss, plan.names, remat, plan.beside, memory, sizes)
    parts = {"train": plan.train(wide)}
    if grads:
        parts |= {"grads": plan.grads(wide), "apply": plan.apply()}
    inferred = plan.rest if kept is None else [n for n in kept if n in plan.rest]
    if inferred:
        parts["infer"] = plan.infer("infer", inferred)
    if evaluate:
        parts["evaluate"] = plan.infer("evaluate", [loss, *plan.rest])
    if plan.plateau is not None:
        parts["plateau"] = plan.report(plan.plateau)
    if carried.state:
        parts["reset"] = plan.reset()
    return Program(
        source.name,
        {n: p.graph for n, p in parts.items()},
        plan.state,
        {n: (p.reads, p.writes) for n, p in parts.items()},
        {n: p.finite for n, p in parts.items() if p.finite} if stop_on_nan else {},
    )


def _trainable(graph: Graph, names: str | Sequence[str], running: Collection[str]) -> Iterator[str]:
    patterns = [names] if isinstance(names, str) else names
    if not isinstance(patterns, (list, tuple)) or not all(isinstance(p, str) for p in patterns):
        raise GradientError(f"train_step: trainable is {names!r:.80}; expected a name or a list of names")
    known = {n: v for n, v in graph.weights.items() if v.dtype.is_float}
    chosen: set[str] = set()
    for p in patterns:
        found = matched(known, p)
        chosen.update(found)
        if not found:
            have = ", ".join(known) or "none"
            raise GradientError(f"train_step: no weight of graph @{graph.name} matches {p!r}; there is {have}")
    for n, v in known.items():
        if n in running and n in patterns:
            raise GradientError(f"train_step: {n!r} is a running statistic, which a batch norm moves; leave it out")
        if n not in running and n in chosen:
            if v.dtype.bits < 32:
                raise GradientError(f"train_step: {n!r} is {v.type}; only f32 and f64 are trained")
            yield n


def _shown(graph: Graph, outputs: str | Sequence[str], loss: str, option: str) -> Iterator[str]:
    names = [outputs] if isinstance(outputs, str) else outputs
    if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
        raise GradientError(f"train_step: {option} is {outputs!r:.80}; expected a name or a list of names")
    for n in dict.fromkeys(names):
        if n not in graph.output_names or n == loss:
            have = ", ".join(o for o in graph.output_names if o != loss) or "none"
            raise GradientError(f"train_step: {option}: graph @{graph.name} has no other output {n!r}; there is {have}")
        yield n
