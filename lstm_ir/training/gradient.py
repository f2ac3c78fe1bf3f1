"""`li.grad` and `li.vjp`: the gradient of a graph is a graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lstm_ir.ir.called import told
from lstm_ir.ir.errors import GradientError, message
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.near_names import nearest
from lstm_ir.ir.options import is_int
from lstm_ir.ir.pullback import Differentiation, Kept, Remat, opened, pull_back
from lstm_ir.ops.primitive.fill import ones, zeros_like
from lstm_ir.training.memory import Build, within

Names = str | Sequence[str]
BESIDE = "beside "  # before the names of outputs that `loss_gradients` gives too


_WORDS = {
    **dict.fromkeys(("loss", "output", "outputs", "ys"), "of, the name of an output"),
    **dict.fromkeys(("argnums", "inputs", "params", "xs", "sources", "variables"), "wrt, names of inputs and weights"),
    **dict.fromkeys(("checkpoint", "checkpoints"), "remat, a number of steps"),
    **dict.fromkeys(("allow_unused", "materialize_grads", "unconnected_gradients"), 'missing="zeros"'),
}
"""Of other libraries, and what stands here in their place."""


@told(_WORDS)
def grad(
    graph: Graph, of: str, wrt: Names, *, remat: int | Sequence[int] | None = None, memory: int | str | None = None,
    sizes: Mapping[str, int] | None = None, missing: str = "error",
) -> Graph:  # fmt: skip
    """The scalar output `of` and its gradients: outputs `of`, then `d_NAME` for each name of `wrt`.

    wrt: names of inputs and weights. remat: save the states of loops only at every `remat`-th step
    and run the steps between again on the way back; without it everything that is needed is saved. Two numbers cut
    these stretches once more. memory: remat chosen so that what loops save fits: bytes, or "256MiB"; sizes: what the
    names of sizes are, for this choice alone.
    missing: "zeros" gives zeros of its type for a name of `wrt` that does not influence `of`, or does so through
    integers alone. Raises GradientError for an unknown name, a loss that is not a float scalar, a `wrt` that is not
    of floats or (without "zeros") does not influence the loss, and an op that has no gradient.
    """
    zeros = _zeros("grad", missing)
    loss = _scalar("grad", graph, of)

    def build(cut: Remat) -> tuple[Graph, Kept]:
        return _differentiated("grad", graph, {of: loss}, {of: ones((), loss.dtype)}, [], wrt, cut, zeros=zeros)

    return _cut("grad", build, remat, memory, sizes)


def _cut(op: str, build: Build, remat: Any, memory: Any, sizes: Any) -> Graph:
    """The gradient with `remat`, or with that which the memory takes."""
    if memory is None:
        if sizes is not None:
            raise GradientError(f"{op}: sizes are those at which memory is counted; memory is not given")
        return build(_levels(op, remat))[0]
    if remat is not None:
        raise GradientError(f"{op}: remat and memory are given; memory chooses remat")
    return within(op, build, memory, sizes)


def _levels(op: str, remat: Any) -> Remat:
    if remat is None:
        return None
    many = tuple(remat) if isinstance(remat, (tuple, list)) else (remat,)
    if not many or not all(is_int(k) and k >= 1 for k in many):
        raise GradientError(f"{op}: remat is {remat!r}; it is a number of steps, at least 1, or a few of them")
    if any(b >= a for a, b in itertools.pairwise(many)):
        raise GradientError(f"{op}: remat is {remat!r}; each number of steps is below the one before it")
    return tuple(int(k) for k in many)


def loss_gradients(
    graph: Graph, of: str, wrt: Sequence[str], remat: Any, beside: Iterable[str], memory: Any, sizes: Any
) -> Graph:
    """As `grad`, for `li.train_step`, and by the same pass forward the outputs `beside`, each as "beside NAME"."""
    op = "train_step"
    loss = _scalar(op, graph, of)
    more = {BESIDE + n: graph.output(n) for n in beside}
    hint = "leave it out of `trainable`"

    def build(cut: Remat) -> tuple[Graph, Kept]:
        seed = {of: ones((), loss.dtype)}
        return _differentiated(op, graph, {of: loss}, seed, [], wrt, cut, beside=more, hint=hint)

    return _cut(op, build, remat, memory, sizes)


def _scalar(op: str, graph: Graph, of: str) -> Value:
    """The output `of`, a float without axes; else GradientError."""
    loss = _output(op, graph, of)
    if loss.rank != 0:
        problem = f"the output {of!r} is {loss.type}, not a scalar; use li.vjp, or reduce it"
        raise GradientError(message(op, problem, (), loss.node.loc))
    return loss


@told(_WORDS)
def vjp(
    graph: Graph, of: Names, wrt: Names, *, remat: int | Sequence[int] | None = None, memory: int | str | None = None,
    sizes: Mapping[str, int] | None = None, missing: str = "error",
) -> Graph:  # fmt: skip
    """The outputs `of`, and `d_NAME` = sum over them of cotangent times derivative.

    The cotangents are further inputs, `ct_NAME`, of the outputs' types. `remat` and all after it as in `grad`.
    """
    zeros = _zeros("vjp", missing)
    results = {n: _output("vjp", graph, n) for n in _names("vjp", of)}
    cts = {n: parameter(f"ct_{n}", v.type) for n, v in results.items()}
    taken = set(graph.input_names) & {f"ct_{n}" for n in cts}
    if taken:
        raise GradientError(f"vjp: the graph already has an input {min(taken)!r}")

    def build(cut: Remat) -> tuple[Graph, Kept]:
        return _differentiated("vjp", graph, results, cts, list(cts.values()), wrt, cut, zeros=zeros)

    return _cut("vjp", build, remat, memory, sizes)


def _zeros(op: str, missing: object) -> bool:
    if not isinstance(missing, str) or missing not in ("error", "zeros"):
        raise GradientError(f"{op}: missing is {missing!r:.80}; it is 'error' or 'zeros'")
    return missing == "zeros"


def _differentiated(
    op: str, graph: Graph, results: dict[str, Value], cts: dict[str, Value], more: list[Value], wrt: Names,
    remat: Remat, *, zeros: bool = False, beside: Mapping[str, Value] | None = None,
    hint: str = "missing='zeros' gives zeros",
) -> tuple[Graph, Kept]:  # fmt: skip
    sources = {n: _source(op, graph, n) for n in _names(op, wrt)}
    with opened(Differentiation(remat)) as active:
        seeds: dict[Value, Value] = {}
        for n, v in results.items():
            seeds[v] = seeds[v] + cts[n] if v in seeds else cts[n]
        found = pull_back(seeds, list(sources.values()))
    for n, v in sources.items():
        if v not in found and zeros:
            found[v] = zeros_like(v)
        elif v not in found:
            problem = f"{n!r} does not influence {', '.join(map(repr, results))}; {hint}"
            raise GradientError(message(op, problem, [(n, v.type)], v.node.loc))
    outputs = results | {f"d_{n}": found[v] for n, v in sources.items()}
    taken = set(results) & {f"d_{n}" for n in sources}
    if taken:
        raise GradientError(
            f"{op}: an output is already called {min(taken)!r}; make a Graph that gives it another name"
        )
    made = Graph(f"{graph.name}_grad", [*graph.params, *more], outputs | dict(beside or {}))
    return active.resolve(made), active.saved


def _names(op: str, names: Names) -> list[str]:
    if not isinstance(names, (str, Iterable)) or getattr(names, "ndim", 1) != 1:
        raise GradientError(f"{op}: {names!r} is no name and no list of names")
    names = [names] if isinstance(names, str) else list(names)
    if not all(isinstance(n, str) for n in names):
        raise GradientError(f"{op}: {names} are not all names")
    if not names or len(set(names)) != len(names):
        raise GradientError(f"{op}: {names} is empty or names something twice")
    return names


def _output(op: str, graph: Graph, name: str) -> Value:
    if not isinstance(graph, Graph) or not isinstance(name, str):
        got = f"{type(graph).__name__} and {name!r}"
        raise GradientError(f"{op}: takes a graph and the name of an output, got {got}")
    if name not in graph.output_names:
        raise GradientError(_unknown(op, graph, "output", name, graph.output_names))
    v = graph.output(name)
    if not v.dtype.is_float:
        problem = f"the output {name!r} is {v.type}; only floats have a gradient"
        raise GradientError(message(op, problem, (), v.node.loc))
    return v


def _source(op: str, graph: Graph, name: str) -> Value:
    inputs = dict(zip(graph.input_names, graph.params, strict=True))
    if name in inputs and name in graph.weights:
        raise GradientError(f"{op}: {name!r} is both an input and a weight of graph @{graph.name}")
    known = {**graph.weights, **inputs}
    if name not in known:
        raise GradientError(_unknown(op, graph, "input or weight", name, known))
    v = known[name]
    if not v.dtype.is_float:
        problem = f"{name!r} is {v.type}; only floats have a gradient"
        raise GradientError(message(op, problem, (), v.node.loc))
    return v


def _unknown(op: str, graph: Graph, what: str, name: str, known: Sequence[str] | dict[str, Value]) -> str:
    near = nearest(name, known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    return f"{op}: graph @{graph.name} has no {what} {name!r}; {hint}"
