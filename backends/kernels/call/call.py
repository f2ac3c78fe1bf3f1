"""A kernel call in the module: its operands, sizes and results, the dispatch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import ClassVar, NamedTuple, TypeVar

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.mlir_types import tensor
from lstm_ir.backends.emit.options import DispatchLimits, words
from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.body.hoisting import Projection
from lstm_ir.backends.kernels.body.plan import KLoop, LoopPlan, Sweep, walk
from lstm_ir.backends.kernels.call.executables import symbol_of
from lstm_ir.backends.kernels.call.given import given
from lstm_ir.backends.kernels.call.packing import Packed, PackedForm, grouped, pack, packed_type
from lstm_ir.backends.kernels.text.kernel import BINDING, Kernel, KernelSignature
from lstm_ir.backends.kernels.text.memory import Memory
from lstm_ir.backends.kernels.text.statements import Name, argument
from lstm_ir.backends.kernels.text.text import stored_dtype, stored_type
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.literals import symmetric
from lstm_ir.ir.reach import reached
from lstm_ir.ir.types import DType, TensorType

T = TypeVar("T")
Values = list[ir.Value]
Make = Callable[[], ir.Value]  # what makes a value, when the kernel is known to fit a dispatch


class Written(NamedTuple):
    """A tensor that a kernel writes in place; where it is tied IREE knows of it, and it is the last result too."""

    value: ir.Value
    sizes: Values  # named ones
    tied: bool = True


def ready(v: ir.Value) -> Make:
    """A value that is there."""
    return lambda: v


@dataclass
class KernelCall:
    """What every kernel call has, whatever it computes and its processor.

    First it says what the kernel takes, which is checked, and only then puts anything into the module.
    """

    e: Emitter
    steps: list[Callable[[], object]] = field(default_factory=list, kw_only=True)
    operands: list[Make] = field(default_factory=list, kw_only=True)
    operand_types: list[TensorType] = field(default_factory=list, kw_only=True)
    inputs: list[tuple[Name, Memory]] = field(default_factory=list, kw_only=True)
    results: list[TensorType] = field(default_factory=list, kw_only=True)
    outputs: list[tuple[Name, Memory]] = field(default_factory=list, kw_only=True)
    sizes: dict[Dim, Name] = field(default_factory=dict, kw_only=True)
    # Result -> the operand whose memory it takes.
    over: dict[int, int] = field(default_factory=dict, kw_only=True)
    narrow: ClassVar[bool] = False  # indices are passed as i32: of one word, not of two
    memory: ClassVar[type[Memory]] = Memory  # of a binding
    word: ClassVar[str] = "recurrence"  # that names of such kernels begin with

    # -- operands

    def deferred(self, make: Callable[[], T]) -> Callable[[], T]:
        """What is put into the module, once, when the kernel is known to fit a dispatch."""
        step = cache(make)
        self.steps.append(step)
        return step

    def input(self, make: Make, t: TensorType) -> Memory:
        """A tensor that the kernel reads."""
        stored = t.with_dtype(stored_dtype(t.dtype))

        def held() -> ir.Value:
            return make() if stored == t else self.e.hlo(_changed(t), [make()], stored)

        self.operands.append(self.deferred(held))
        self.operand_types.append(stored)
        return self.bound(self.inputs, stored)

    def output(self, t: TensorType) -> Memory:
        """A tensor that the kernel gives."""
        t = t.with_dtype(stored_dtype(t.dtype))
        self.results.append(t)
        return self.bound(self.outputs, t)

    def replaced(self, m: Memory, t: TensorType) -> Memory:
        """A result in the memory of an operand that nothing reads any more."""
        self.over[len(self.results)] = next(i for i, (_, x) in enumerate(self.inputs) if x is m)
        self.results.append(t)
        return m

    def bound(self, where: list[tuple[Name, Memory]], t: TensorType) -> Memory:
        """The memory of the next binding."""
        name = f"{'in' if where is self.inputs else 'out'}{len(where)}"
        sizes = tuple(d if isinstance(d, int) else self.size(d) for d in t.shape)
        m = self.memory(f"%m_{name}", stored_type(t.dtype), sizes)
        where.append((Name(f"%b_{name}", BINDING), m))
        return m

    def size(self, d: Dim) -> Name:
        """The kernel's name for a size."""
        return self.sizes.setdefault(d, argument(f"d{len(self.sizes)}"))

    def signature(self, extra: Sequence[Name]) -> KernelSignature:
        """What the kernel takes: tensors it reads, sizes, `extra` indices, tensors it gives."""
        numbers = (*self.sizes.values(), *extra)
        reads, writes = (tuple(b for b, _ in some) for some in (self.inputs, self.outputs))
        return KernelSignature(reads, tuple(map(short, numbers)) if self.narrow else numbers, writes)

    @property
    def limits(self) -> DispatchLimits:
        """What a dispatch takes."""
        return self.e.options.dispatch

    def check(self, taken: KernelSignature) -> None:
        """RefusedError where the dispatch would take more."""
        have, tensors, numbers = self.limits, taken.tensors, len(taken.numbers)
        needed = 2 * tensors + numbers if self.narrow else words(tensors, numbers)
        if tensors > have.tensors:
            why = f"it reads and writes {tensors} tensors, a dispatch takes {have.tensors}"
        elif needed > have.words:
            why = f"the offsets of {tensors} tensors and its sizes may take {needed} words"
            why = f"{why}, a dispatch takes {have.words}"
        else:
            return
        raise RefusedError(why, write=instead.ONE_TENSOR)

    def as_typed(self, v: ir.Value, t: TensorType) -> ir.Value:
        """A result as its graph has it: kernels keep booleans as bytes, and integers without a sign."""
        return v if stored_dtype(t.dtype) is t.dtype else self.e.hlo(_changed(t), [v], t)

    # -- the module

    def const(self, d: Dim) -> ir.Value:
        """A size as an index value."""
        return self.e.index(d) if isinstance(d, int) else self.e.size(d)

    def muli(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a * b."""
        return self.e.arith("muli", a, b)

    def begin(self, kernel: Kernel) -> str:
        """Makes the operands of a kernel that fits; gives the symbol of its executable."""
        self.check(kernel.entry.signature)
        for step in self.steps:
            step()
        return self.executable(kernel)

    def executable(self, kernel: Kernel) -> str:
        """The symbol of the executable that will hold the kernel."""
        symbol = symbol_of(kernel, self.word)
        self.e.kernels[symbol] = kernel
        return symbol

    def call(self, symbol: str, total: ir.Value, extra: Values, written: Written | None = None) -> Values:
        """The dispatch of `total` workgroups; `extra` are index operands after the sizes."""
        operands, kinds = [v() for v in self.operands], [tensor(t) for t in self.results]
        argument_dims = [self.const(d) for t in self.operand_types for d in t.shape if not isinstance(d, int)]
        result_dims = [self.const(d) for t in self.results for d in t.shape if not isinstance(d, int)]
        ties = [self.over.get(i, -1) for i in range(len(kinds))]
        if written is not None:
            if written.tied:
                ties.append(len(operands))
                kinds.append(written.value.type)
                result_dims += written.sizes
            operands.append(written.value)
            argument_dims += written.sizes
        numbers = [*(self.const(d) for d in self.sizes), *extra]
        if self.narrow:
            i32 = ir.IntegerType.get_signless(32)
            numbers = [self.e.make("arith.index_cast", [n], [i32]).result for n in numbers]
        arguments = [*operands, *numbers]
        segments = [1, len(arguments), len(argument_dims), len(result_dims)]
        index = ir.IndexType.get()
        attrs = {
            "entry_points": ir.ArrayAttr.get([ir.Attribute.parse(f"@{symbol}::@{symbol}_run")]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
            "tied_operands": ir.ArrayAttr.get([ir.IntegerAttr.get(index, i) for i in ties]),
        }
        out = self.e.make("flow.dispatch", [total, *arguments, *argument_dims, *result_dims], kinds, attrs)
        return list(out.results)


Known = Callable[[], Mapping[Value, ir.Value]]  # values that the loop does not change


@dataclass
class LoopCall(KernelCall):
    """What every call of a loop's kernel has."""

    plan: LoopPlan
    joined: bool = field(default=True, kw_only=True)  # weights of several passes may share a tensor

    def sources(self, kind: str) -> list[MemorySource]:
        """Memories of one kind that the loop reads."""
        found: dict[MemorySource, None] = {}
        for c in self.plan.components:
            for s in c.sweeps:
                for r in s.roots:
                    for a in walk(r.atom):
                        if a.source is not None and a.source.kind == kind:
                            found[a.source] = None
        return list(found)

    def values_read(self, kind: str) -> list[Value]:
        """Invariant values that the loop reads, apart from matrices."""
        return [s.value for s in self.sources(kind) if s.value is not None]

    def bind_inputs(
        self, consts: Sequence[Make], xs: Sequence[Make], forms: Mapping[Sweep, PackedForm]
    ) -> tuple[dict[MemorySource, Memory], dict[tuple[Sweep, int], Packed]]:
        """Everything that the loop reads but does not carry, and the packed weights by pass."""
        plan = self.plan
        known = self.deferred(lambda: self.invariants([v() for v in consts]))
        memories: dict[MemorySource, Memory] = {}
        for v in self.values_read("value"):
            memories[MemorySource("value", 0, v)] = self.input(partial(_one, known, v), v.type)
        for k in range(len(plan.scanned)):
            if any(s.index == k for s in self.sources("scan")):
                memories[MemorySource("scan", k)] = self.scanned(plan.loop.xs[k], xs[k])
        for k, made in enumerate(plan.projections):
            matrix = self.deferred(partial(self._weights, made, known))
            graph = made.graph(plan.loop.x_types[made.scan])
            memories[MemorySource("projection", k)] = self.projected(k, graph, xs[made.scan], matrix)
        packed: dict[tuple[Sweep, int], Packed] = {}
        outside = dict(zip(plan.loop.const_params, plan.loop.consts, strict=True))
        for sweep in (s for c in plan.components for s in c.sweeps):
            for group in grouped(sweep.loops, together=self.joined):
                loops = [sweep.loops[k] for k in group]
                form = forms[sweep].of(loops, len(sweep.dots))
                weights = partial(self._packed, loops, known, form)
                m = self.input(weights, packed_type(loops, form))
                first = 0
                for k in group:
                    gates = [matrix.value for _, matrix in sweep.loops[k].gates]
                    whole = sweep.loops[k].in_words and all(symmetric(v, outside) for v in gates)
                    packed[sweep, k] = Packed(m, first, whole)
                    first += sweep.loops[k].packed
        return memories, packed

    def _weights(self, projection: Projection, known: Known) -> ir.Value:
        matrix = known()[projection.matrix.value]
        with self._once([matrix]):
            return self.e.graph(projection.weights(), [matrix])[0]

    def _packed(self, loops: list[KLoop], known: Known, form: PackedForm) -> ir.Value:
        values = known()
        with self._once([values[m.value] for k in loops for _, m in k.gates]):
            return self.packed(loops, values, form)

    def _once(self, values: Values) -> AbstractContextManager[None]:
        """What is made of weights of the module is made before a choice of variants, at load; what is made of those
        that a call brings is made by the variant that the call takes."""
        return nullcontext() if any(map(given, values)) else self.e.before_choice()

    def packed(self, loops: list[KLoop], known: Mapping[Value, ir.Value], form: PackedForm) -> ir.Value:
        """The weights of passes that share a tensor."""
        return pack(self.e, loops, known, form)

    def scanned(self, v: Value, make: Make) -> Memory:
        """What the loop reads row by row."""
        return self.input(make, v.type)

    def projected(self, k: int, graph: Graph, x: Make, matrix: Make) -> Memory:
        """Projection `k` of the plan: a product of all rows of x, which the loop reads row by row."""
        return self.input(lambda: self.e.graph(graph, [x(), matrix()])[0], graph.outputs[0].type)

    def invariants(self, consts: Values) -> dict[Value, ir.Value]:
        """Loop-invariant values of the body, computed before the loop."""
        matrices = [m.value for c in self.plan.components for s in c.sweeps for k in s.loops for _, m in k.gates]
        matrices += [p.matrix.value for p in self.plan.projections]
        wanted = list(dict.fromkeys([*self.values_read("value"), *matrices]))
        params = self.plan.loop.const_params
        brought = reached(self.plan.loop.body.nodes, (p for p, v in zip(params, consts, strict=True) if given(v)))
        found: dict[Value, ir.Value] = {}
        for late in (False, True):
            some = [v for v in wanted if (v in brought) == late]
            if some:
                with nullcontext() if late else self.e.before_choice():
                    made = self.e.graph(Graph("invariant", params, some), consts)
                found |= zip(some, made, strict=True)
        return found

    def unpacked(self, out: Values) -> Values:
        """The loop's results among those of the dispatch: final carries, then stacked rows."""
        plan = self.plan
        kinds = [*(p.type for p in plan.carries), *plan.loop.y_types]
        return [self.as_typed(v, t) for v, t in zip(out[: len(kinds)], kinds, strict=True)]


def _changed(t: TensorType) -> str:
    """The op between elements of a type and what kernels keep of them."""
    return "convert" if t.dtype is DType.i1 else "bitcast_convert"


def _one(known: Known, v: Value) -> ir.Value:
    return known()[v]


def short(number: Name) -> Name:
    """An index as a narrow kernel is given it."""
    return Name(f"{number.text}_i32", "i32")


def module_of_insertion() -> ir.Operation:
    """The module that is being written."""
    op = ir.InsertionPoint.current.block.owner
    while op.operation.name != "builtin.module":
        op = op.operation.parent
    return op.operation


def insert_first(text: str) -> None:
    """The operations of a module's text, before all others of the module that is being written."""
    at = ir.InsertionPoint.at_block_begin(module_of_insertion().regions[0].blocks[0])
    for op in ir.Module.parse(text).body:
        op.operation.clone(at)


@contextmanager
def at_entry(e: Emitter) -> Iterator[None]:
    """Ops made inside stand first in the function, unless this is the body of a loop.

    IREE submits what stands before a barrier and what stands after it one after the other.
    """
    if e.in_loop:
        yield
        return
    block = ir.InsertionPoint.current.block
    while block.owner.operation.name not in ("func.func", "util.initializer"):  # which weights alone decide
        block = block.owner.operation.block
    with ir.InsertionPoint.at_block_begin(block):
        yield
