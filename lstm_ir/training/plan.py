"""The entries of a program that trains, and its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lstm_ir.ir.cached import cached_property
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import GradientError, IRError
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.program import State, from_state
from lstm_ir.ir.sizes import sizes_of
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.reduce import sum
from lstm_ir.training.carried import Carried
from lstm_ir.training.gradient import BESIDE
from lstm_ir.training.inference import inferring
from lstm_ir.training.masters import rounded
from lstm_ir.training.optimizer import Optimizer
from lstm_ir.training.rates import STEP, Plateau, Rates, computed, input_of, plateau_of

NORM, MICRO, METRIC = "grad_norm", "micro_step", "metric"
_COUNT = TensorType((), DType.i64)
Ports = dict[str, str]


@dataclass(frozen=True)
class BoundEntry:
    """An entry, what is bound in it, and what must be finite in it."""

    graph: Graph
    reads: Ports
    writes: Ports
    finite: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What the entries share. `outputs` are those that `train` gives beside the loss."""

    source: Graph
    loss: str
    optimizer: Optimizer
    names: tuple[str, ...]
    clip_norm: float | None = None
    outputs: tuple[str, ...] = ()
    accumulate: int = 1
    carried: Carried = field(default_factory=Carried)
    precision: str | None = None
    running: Mapping[str, str] = field(
        default_factory=dict
    )  # running statistics, and outputs that are their next values

    @cached_property
    def each(self) -> dict[str, Optimizer]:
        """The optimizer of every weight."""
        return self.optimizer.each(self.names)

    @cached_property
    def plateau(self) -> Plateau | None:
        """The plateau that scales rates."""
        return plateau_of(o.lr for o in (self.optimizer, *self.each.values()))

    @cached_property
    def kind(self) -> DType:
        """The widest float of what is trained: that of rates and of the norm."""
        wide = any(self.source.weights[n].dtype is DType.f64 for n in self.names)
        return DType.f64 if wide else DType.f32

    @cached_property
    def rate_inputs(self) -> tuple[str, ...]:
        """Learning rates that are inputs."""
        asked = (input_of(o.lr) for o in self.each.values())
        return tuple(dict.fromkeys(n for n in asked if n is not None))

    @property
    def rest(self) -> list[str]:
        """The outputs but the loss and what is carried."""
        gone = {self.loss, *self.carried.outputs.values(), *self.running.values()}
        return [n for n in self.source.output_names if n not in gone]

    @property
    def beside(self) -> list[str]:
        """The outputs of the graph that `train` needs beside the loss."""
        return list(dict.fromkeys((*self.outputs, *self.carried.outputs.values(), *self.running.values())))

    def slot(self, kind: str, weight: str) -> str:
        """The state variable of what the optimizer keeps."""
        return f"{self.optimizer.name}/{kind}/{weight}"

    def sum_of(self, weight: str) -> str:
        """The state variable of the sum of gradients."""
        return f"accumulated/{weight}"

    def need_own_names(self) -> None:
        """Refuse a name that stands for two things."""
        slots = {self.slot(s, n): n for n, o in self.each.items() for s in o.kept()}
        own = {STEP: "the step counter"} | {s: f"what is kept for {n!r}" for s, n in slots.items()}
        if self.accumulate > 1:
            own |= {MICRO: "the counter of the accumulation"}
            own |= {self.sum_of(n): f"the sum of the gradients of {n!r}" for n in self.names}
        if self.plateau is not None:
            own |= dict.fromkeys(self.plateau.start(self.kind), "what the plateau keeps")
        inputs = dict(zip(self.source.input_names, self.source.params, strict=True))
        fed = [n for n, p in inputs.items() if _counts(p, n)]
        _refuse(own, self.source.weights, "a weight")
        own |= {n: "a weight that is trained" for n in self.names} | dict.fromkeys(self.running, "a running statistic")
        if STEP in inputs and not fed:
            kind = f"input 'step' is {inputs[STEP].type}; it is fed from the step counter"
            raise GradientError(f"train_step: {kind}: make it {_COUNT}, or give it another name")
        _refuse(own, [n for n in inputs if n not in fed or n in self.carried.state], "an input")
        _refuse(own | dict.fromkeys(self.carried.state, "what is carried"), [self.loss], "the loss")
        shown = {NORM: "the gradients' norm"} | {n: "a learning rate" for n in self._shown_rates}
        _refuse(shown, self.source.output_names, "an output")
        _refuse(own, self.outputs, "an output of train")
        _refuse(dict.fromkeys(self.carried.state, "what is carried"), self.rest, "an output")
        own |= {f"d_{n}": f"the gradient of {n!r}" for n in self.names}
        own |= {self.loss: "the loss", **shown}
        own |= {n: "an input of the graph" for n in inputs} | {n: "an output of train" for n in self.outputs}
        # The rate that goes in and the one that was used, which a plateau makes smaller, may have one name.
        rest = {n: why for n, why in own.items() if n not in self._shown_rates}
        _refuse(rest, self.rate_inputs, "the input of the learning rate")

    @property
    def _shown_rates(self) -> list[str]:
        return [n for n, r in self.optimizer.rates().items() if computed(r)]

    @cached_property
    def state(self) -> dict[str, State]:
        """Weights, what the optimizer keeps, counters, sums, and what is carried."""
        weights = {n: self.source.weights[n].node.attrs["value"] for n in self.names}
        start: dict[str, Data] = dict(weights)
        for n, data in weights.items():
            for s, value in self.each[n].kept().items():
                start[self.slot(s, n)] = Data.of(np.full(data.type.shape, value, data.type.dtype.numpy))
        start[STEP] = Data.of(np.int64(0))
        if self.accumulate > 1:
            start[MICRO] = Data.of(np.int64(0))
            for n, data in weights.items():
                start[self.sum_of(n)] = Data.of(np.zeros(data.type.shape, data.type.dtype.numpy))
        if self.plateau is not None:
            start |= self.plateau.start(self.kind)
        start |= {n: self.source.weights[n].node.attrs["value"] for n in self.running}
        return {n: State(n, d) for n, d in start.items()} | dict(self.carried.state)

    def train(self, wide: Graph) -> BoundEntry:
        """Loss, gradients and update in one."""
        held = self._held(self.state)
        found = self._over(wide, held)
        rates = Rates(held, self.kind)
        more, new = self._accumulated(found, held, rates)
        shown = {self.loss: found[self.loss], **more} | {n: found[BESIDE + n] for n in self.outputs}
        new |= {n: found[BESIDE + out] for n, out in {**self.carried.outputs, **self.running}.items()}
        watched = (self.loss, *more, *rates.inputs)
        return self._part("train", wide.params, shown, held, new, list(rates.inputs.values()), watched)

    def grads(self, wide: Graph) -> BoundEntry:
        """Loss and gradients, and the next values of what is carried, which are inputs here."""
        held = self._held([*self.names, *self.running, *self._counters])
        found = self._over(wide, held)
        shown = {n: v for n, v in found.items() if not n.startswith(BESIDE)}
        shown |= {n: found[BESIDE + out] for n, out in self.carried.outputs.items()}
        return self._part("grads", wide.params, shown, held, {}, [], (self.loss,))

    def apply(self) -> BoundEntry:
        """The update by gradients that are given."""
        held = self._held([n for n in self.state if n not in self.carried.state and n not in self.running])
        rates = Rates(held, self.kind)
        given = {f"d_{n}": parameter(f"d_{n}", held[n].type) for n in self.names}
        more, new = self._updated(given, held, rates)
        params = [*given.values(), *rates.inputs.values()]
        return self._part("apply", (), more, held, new, params, (*more, *rates.inputs))

    def infer(self, name: str, outputs: Sequence[str]) -> BoundEntry:
        """These outputs, nothing dropped, and the next values of what is carried, which are inputs here."""
        rest = Graph(self.source.name, self.source.params, {n: self.source.output(n) for n in outputs} | self._next)
        try:
            still = inferring(rest)
        except IRError as e:  # a gradient op among the outputs reads what training alone keeps
            problem = f"train_step: the entry {name}, where nothing is dropped, cannot be made"
            raise GradientError(f"{problem}: {e}") from None
        held = self._held([*self.names, *self.running, *self._counters])
        return self._part(name, still.params, self._over(still, held), held, {}, [])

    def report(self, plateau: Plateau) -> BoundEntry:
        """The plateau's state after a metric."""
        held = self._held(plateau.start(self.kind))
        metric = parameter(METRIC, self.source.output(self.loss).type)
        new = plateau.reported(e.convert(metric, self.kind), held)
        return self._part("plateau", (), {"scale": new["plateau/scale"]}, held, new, [metric])

    def reset(self) -> BoundEntry:
        """What is carried starts again; weights and all else stay."""
        held = self._held(self.carried.state)
        return BoundEntry(Graph("reset", list(held.values()), {}), {n: n for n in held}, {})

    @property
    def _next(self) -> dict[str, Value]:
        return {n: self.source.output(out) for n, out in self.carried.outputs.items()}

    @property
    def _counters(self) -> list[str]:
        return [STEP, MICRO] if self.accumulate > 1 else [STEP]

    def _held(self, names: Iterable[str]) -> dict[str, Value]:
        return {n: parameter(n, self.state[n].type) for n in names}

    def _accumulated(
        self, outputs: Mapping[str, Value], held: Mapping[str, Value], rates: Rates
    ) -> tuple[dict[str, Value], dict[str, Value]]:
        """As `_updated`; with accumulation the mean of the sums, and only where they are complete."""
        if self.accumulate == 1:
            return self._updated(outputs, held, rates)
        sums = {n: held[self.sum_of(n)] + outputs[f"d_{n}"] for n in self.names}
        means = {f"d_{n}": v / float(self.accumulate) for n, v in sums.items()}
        more, new = self._updated(means, held, rates)
        count = held[MICRO] + constant(1, DType.i64)
        full = e.greater_equal(count, constant(self.accumulate, DType.i64))
        new = {n: e.select(full, v, held[n]) for n, v in new.items()}
        new[MICRO] = e.select(full, constant(0, DType.i64), count)
        new |= {self.sum_of(n): e.select(full, zeros_like(v), v) for n, v in sums.items()}
        return more, new

    def _updated(
        self, gradients: Mapping[str, Value], held: Mapping[str, Value], rates: Rates
    ) -> tuple[dict[str, Value], dict[str, Value]]:
        """The norm before clipping and computed rates, and the new state."""
        found = [gradients[f"d_{n}"] for n in self.names]
        norm = self._norm(found)
        scale: Value | None = None
        if self.clip_norm is not None:
            scale = e.minimum(self.clip_norm / (norm + 1e-6), 1.0)
        count = held[STEP] + constant(1, DType.i64)
        new = {STEP: count}
        for n, g in zip(self.names, found, strict=True):
            opt, kind = self.each[n], g.dtype
            g = g if scale is None else g * e.convert(scale, kind)
            slots = {s: held[self.slot(s, n)] for s in opt.kept()}
            new[n], moved = opt.update(held[n], g, slots, e.convert(count, kind), rates.of(opt.lr, kind))
            new |= {self.slot(s, n): v for s, v in moved.items()}
        shown = self.optimizer.rates()
        return {NORM: norm} | {n: rates.value(shown[n]) for n in self._shown_rates}, new

    def _norm(self, values: Sequence[Value]) -> Value:
        """sqrt of the sum of all squares, f32[] or f64[]."""
        total = constant(0.0, self.kind)
        for v in values:
            total = total + e.convert(sum(v * v), self.kind)
        return e.sqrt(total)

    def _over(self, graph: Graph, held: Mapping[str, Value]) -> dict[str, Value]:
        """The graph's outputs, with weights, what is carried, and the input `step` taken from the state."""
        fed: dict[Value, Value] = {}
        for p, n in zip(graph.params, graph.input_names, strict=True):
            if _counts(p, n):
                fed[p] = self._batches(held)
            elif n in held and n in self.carried.state:
                fed[p] = held[n]
        weights = {n: rounded(held[n], self.precision) for n in graph.weights if n in held}
        return from_state(graph, weights, fed)

    def _batches(self, held: Mapping[str, Value]) -> Value:
        """How many batches came before: each draws its own random numbers."""
        if self.accumulate == 1:
            return held[STEP]
        return held[STEP] * constant(self.accumulate, DType.i64) + held[MICRO]

    def _part(
        self, name: str, params: Iterable[Value], shown: Mapping[str, Value], held: Mapping[str, Value],
        new: Mapping[str, Value], more: Sequence[Value], finite: tuple[str, ...] = (),
    ) -> BoundEntry:  # fmt: skip
        """The entry's graph: inputs that nothing needs are left out."""
        named = ((p, p.node.attrs["name"]) for p in params)
        own = [p for p, n in named if not _counts(p, n) and not (n in held and n in self.carried.state)]
        outputs = {**shown, **new}
        needed = _needed(Graph(name, [*own, *more, *held.values()], outputs))
        reads = {n: n for n, p in held.items() if p in needed}
        return BoundEntry(Graph(name, needed, outputs), reads, {n: n for n in new}, finite)


def _refuse(own: Mapping[str, str], names: Iterable[str], what: str) -> None:
    taken = sorted(set(own) & set(names))
    if taken:
        problem = f"{what} is called {taken[0]!r}, as {own[taken[0]]} is"
        raise GradientError(f"train_step: {problem}; give it another name")


def _counts(p: Value, name: str) -> bool:
    """An input of the graph that the counter feeds."""
    return name == STEP and p.type == _COUNT


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
