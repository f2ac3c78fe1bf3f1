"""`li.train_step`: a graph with a loss, as a program that trains."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lstm_ir.ir.cached import cached_property
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import GradientError, IRError
from lstm_ir.ir.graph import Graph, Node, Value, make_node, map_arg
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.program import Program, State, need_graph
from lstm_ir.ir.pullback import rebuilt
from lstm_ir.ir.sizes import sizes_of
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.nn.dropout import DROPOUT
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.reduce import sum
from lstm_ir.training.gradient import grad
from lstm_ir.training.optimizers import Optimizer, is_number

STEP, NORM = "step", "grad_norm"
_COUNT = TensorType((), DType.i64)
Ports = dict[str, str]


def train_step(
    graph: Graph,
    loss: str,
    optimizer: Optimizer,
    trainable: str | Sequence[str] = "*",
    *,
    clip_norm: float | None = None,
    remat: int | None = None,
    stop_on_nan: bool = True,
) -> Program:
    """A program that trains the weights whose names match `trainable` (`decoder/*`) to lower `loss`.

    Entries: `train` takes the graph's inputs, gives the loss and the gradients' norm, and updates; `grads`
    gives loss and `d_NAME` and updates nothing; `apply` takes `d_NAME` and updates; `infer` gives the graph's
    other outputs, without dropout. State: the weights, `step` (steps done; an input `step: i64[]` of
    the graph is fed from it) and the optimizer's slots, `adam/m/NAME`. clip_norm: gradients are scaled so
    that the norm of all is at most this. remat: as in `grad`. stop_on_nan: a step whose loss, norm or
    learning rate (where it is an input) is not finite is an error that names the step, and changes nothing.
    Raises GradientError for a name that matches nothing or is taken, weights of f16 or bf16, a program
    instead of a graph, and as `grad`.
    """
    need_graph("train_step", graph, "train the graph that it was made of, then make the program of the trained graph")
    if not isinstance(optimizer, Optimizer):
        raise GradientError(
            f"train_step: the optimizer is {optimizer!r}; expected one made by li.adam(...), "
            "li.adamw(...), li.momentum(...) or li.sgd(...)"
        )
    if not isinstance(loss, str):
        raise GradientError(f"train_step: loss is {loss!r:.80}; expected the name of an output")
    if not isinstance(stop_on_nan, bool):
        raise GradientError(f"train_step: stop_on_nan is {stop_on_nan!r:.80}; expected True or False")
    if clip_norm is not None and not (is_number(clip_norm) and clip_norm > 0):
        raise GradientError(f"train_step: clip_norm is {clip_norm!r}; it is above 0")
    plan = _Plan(graph, loss, optimizer, tuple(_trainable(graph, trainable)), clip_norm)
    plan.need_own_names()
    wide = grad(graph, loss, plan.names, remat=remat)
    parts = {"train": plan.train(wide), "grads": plan.grads(wide), "apply": plan.apply()}
    others = [n for n in graph.output_names if n != loss]
    if others:
        parts["infer"] = plan.infer(graph, others)
    lr = (optimizer.lr,) if isinstance(optimizer.lr, str) else ()
    watched = {"train": (loss, NORM, *lr), "grads": (loss,), "apply": (NORM, *lr)}
    return Program(
        graph.name,
        {n: p.graph for n, p in parts.items()},
        plan.state,
        {n: (p.reads, p.writes) for n, p in parts.items()},
        watched if stop_on_nan else {},
    )


def _trainable(graph: Graph, names: str | Sequence[str]) -> Iterator[str]:
    patterns = [names] if isinstance(names, str) else names
    if not isinstance(patterns, (list, tuple)) or not all(isinstance(p, str) for p in patterns):
        raise GradientError(f"train_step: trainable is {names!r:.80}; expected a name or a list of names")
    known = {n: v for n, v in graph.weights.items() if v.dtype.is_float}
    for p in patterns:
        if not fnmatch.filter(known, p):
            have = ", ".join(known) or "none"
            raise GradientError(f"train_step: no weight of graph @{graph.name} matches {p!r}; there is {have}")
    for n, v in known.items():
        if any(fnmatch.fnmatchcase(n, p) for p in patterns):
            if v.dtype.bits < 32:
                raise GradientError(f"train_step: {n!r} is {v.type}; only f32 and f64 are trained")
            yield n


@dataclass(frozen=True)
class _BoundEntry:
    """An entry and what is bound in it."""

    graph: Graph
    reads: Ports
    writes: Ports


@dataclass(frozen=True)
class _Plan:
    """What the entries share."""

    source: Graph
    loss: str
    optimizer: Optimizer
    names: tuple[str, ...]
    clip_norm: float | None

    def slot(self, kind: str, weight: str) -> str:
        """The state variable of a slot."""
        return f"{self.optimizer.name}/{kind}/{weight}"

    def need_own_names(self) -> None:
        """Refuse a name that stands for two things."""
        slots = {self.slot(s, n): n for n in self.names for s in self.optimizer.slots}
        own = {STEP: "the step counter"} | {s: f"what is kept for {n!r}" for s, n in slots.items()}
        inputs = dict(zip(self.source.input_names, self.source.params, strict=True))
        fed = [n for n, p in inputs.items() if _counts(p, n)]
        _refuse(own, self.source.weights, "a weight")
        own |= {n: "a weight that is trained" for n in self.names}
        if STEP in inputs and not fed:
            kind = f"input 'step' is {inputs[STEP].type}; it is fed from the step counter"
            raise GradientError(f"train_step: {kind}: make it {_COUNT}, or give it another name")
        _refuse(own, [n for n in inputs if n not in fed], "an input")
        _refuse(own, [self.loss], "the loss")
        _refuse({NORM: "the gradients' norm"}, self.source.output_names, "an output")
        if isinstance(self.optimizer.lr, str):
            own |= {f"d_{n}": f"the gradient of {n!r}" for n in self.names}
            own |= {self.loss: "the loss", NORM: "the gradients' norm"}
            own |= {n: "an input of the graph" for n in inputs}
            _refuse(own, [self.optimizer.lr], "the learning rate")

    @cached_property
    def state(self) -> dict[str, State]:
        """Weights, slots and the counter."""
        weights = {n: self.source.weights[n].node.attrs["value"] for n in self.names}
        start: dict[str, Data] = dict(weights)
        for n, data in weights.items():
            zero = Data.of(np.zeros(data.type.shape, data.type.dtype.numpy))
            start |= {self.slot(s, n): zero for s in self.optimizer.slots}
        start[STEP] = Data.of(np.int64(0))
        return {n: State(n, d) for n, d in start.items()}

    def train(self, wide: Graph) -> _BoundEntry:
        """Loss, gradients and update in one."""
        held = self._held(self.state)
        outputs = _over(wide, held)
        more, new, lr = self._updated(outputs, held)
        shown = {self.loss: outputs[self.loss], **more}
        return self._part("train", wide, shown, held, new, [] if lr is None else [lr])

    def grads(self, wide: Graph) -> _BoundEntry:
        """Loss and gradients."""
        held = self._held([*self.names, STEP])
        return self._part("grads", wide, _over(wide, held), held, {}, [])

    def apply(self) -> _BoundEntry:
        """The update by gradients that are given."""
        held = self._held(self.state)
        given = {f"d_{n}": parameter(f"d_{n}", held[n].type) for n in self.names}
        more, new, lr = self._updated(given, held)
        params = [*given.values(), *([] if lr is None else [lr])]
        return self._part("apply", Graph("apply", [], {}), more, held, new, params)

    def infer(self, graph: Graph, others: Sequence[str]) -> _BoundEntry:
        """The other outputs, nothing dropped."""
        rest = Graph(graph.name, graph.params, {n: graph.output(n) for n in others})
        try:
            still = _still(rest)
        except IRError as e:  # a gradient op among the outputs reads what training alone keeps
            problem = "train_step: the entry infer, where nothing is dropped, cannot be made"
            raise GradientError(f"{problem}: {e}") from None
        held = self._held([*self.names, STEP])
        return self._part("infer", still, _over(still, held), held, {}, [])

    def _held(self, names: Sequence[str] | Mapping[str, State]) -> dict[str, Value]:
        return {n: parameter(n, self.state[n].type) for n in names}

    def _updated(
        self, gradients: Mapping[str, Value], held: Mapping[str, Value]
    ) -> tuple[dict[str, Value], dict[str, Value], Value | None]:
        """The norm before clipping, the new state, and the input that the learning rate comes from."""
        opt, found = self.optimizer, [gradients[f"d_{n}"] for n in self.names]
        norm = _norm(found)
        scale: Value | None = None
        if self.clip_norm is not None:
            scale = e.minimum(self.clip_norm / (norm + 1e-6), 1.0)
        asked = opt.lr if isinstance(opt.lr, str) else None
        lr_in = None if asked is None else parameter(asked, TensorType((), DType.f32))
        count = held[STEP] + constant(1, DType.i64)
        new = {STEP: count}
        for n, g in zip(self.names, found, strict=True):
            kind = g.dtype
            g = g if scale is None else g * e.convert(scale, kind)
            lr = opt.lr if lr_in is None else e.convert(lr_in, kind)
            assert not isinstance(lr, str)
            slots = {s: held[self.slot(s, n)] for s in opt.slots}
            new[n], moved = opt.update(held[n], g, slots, e.convert(count, kind), lr)
            new |= {self.slot(s, n): v for s, v in moved.items()}
        return {NORM: norm}, new, lr_in

    def _part(
        self, name: str, source: Graph, shown: Mapping[str, Value], held: Mapping[str, Value],
        new: Mapping[str, Value], more: Sequence[Value],
    ) -> _BoundEntry:  # fmt: skip
        """The entry's graph: inputs that nothing needs are left out."""
        own = [p for p, n in zip(source.params, source.input_names, strict=True) if not _counts(p, n)]
        outputs = {**shown, **new}
        params = _needed(Graph(name, [*own, *more, *held.values()], outputs))
        reads = {n: n for n, p in held.items() if p in params}
        return _BoundEntry(Graph(name, params, outputs), reads, {n: n for n in new})


def _refuse(own: Mapping[str, str], names: Iterable[str], what: str) -> None:
    taken = sorted(set(own) & set(names))
    if taken:
        problem = f"{what} is called {taken[0]!r}, as {own[taken[0]]} is"
        raise GradientError(f"train_step: {problem}; give it another name")


def _counts(p: Value, name: str) -> bool:
    """An input of the graph that the counter feeds."""
    return name == STEP and p.type == _COUNT


def _norm(values: Sequence[Value]) -> Value:
    """sqrt of the sum of all squares, f32[] or f64[]."""
    kind = DType.f64 if any(v.dtype is DType.f64 for v in values) else DType.f32
    total = constant(0.0, kind)
    for v in values:
        total = total + e.convert(sum(v * v), kind)
    return e.sqrt(total)


def _over(graph: Graph, held: Mapping[str, Value]) -> dict[str, Value]:
    """The graph's outputs, with weights, and the input `step`, taken from the state."""
    env = {v: held[n] for n, v in graph.weights.items() if n in held}
    env |= {p: held[STEP] for p, n in zip(graph.params, graph.input_names, strict=True) if _counts(p, n)}
    return dict(zip(graph.output_names, rebuilt(graph.outputs, env), strict=True))


def _needed(graph: Graph) -> list[Value]:
    """The inputs that are read, and those that alone say how large something is."""
    read = {p for p in graph.params if p in graph.users or p in graph.outputs}
    sizes = sizes_of(n for n in graph.nodes if n.op.name != "parameter")
    out = [p for p in graph.params if p in read]
    for p in graph.params:
        known = set().union(*(q.type.names for q in out))
        if p not in read and p.type.names & sizes - known:
            out.append(p)
    return [p for p in graph.params if p in out]


def _still(graph: Graph) -> Graph:
    """The graph in which nothing is drawn at random: no dropout, and every op told that training is
    over, which may change the type of what it keeps for a gradient."""
    env: dict[Value, Value] = {}
    for old in graph.nodes:
        node = old.with_args(tuple(map_arg(a, env) for a in old.args)) if env else old
        for o, v in zip(old.values, _inferring(node), strict=True):
            if v is not o:
                env[o] = v
    return graph.replace([env.get(v, v) for v in graph.outputs])


def _inferring(n: Node) -> Sequence[Value]:
    """The results of a node in inference, in its bodies too."""
    if n.op is DROPOUT:
        return n.inputs[:1]
    new: dict[str, object] = {k: _still(a) for k, a in n.attrs.items() if isinstance(a, Graph)}
    new = {k: a for k, a in new.items() if a is not n.attrs[k]}
    if n.op.training is not None and n.attrs[n.op.training]:
        new[n.op.training] = False
    return make_node(n.op, n.args, {**n.attrs, **new}, n.loc).values if new else n.values
