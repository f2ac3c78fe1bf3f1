"""Elementwise ops of one shape by one kernel, element by element: their results, or the sum of all elements.

Elements are counted, whatever the tensors' axes: what an optimizer does to each weight is one kernel, where IREE makes
one or two of every shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from iree.compiler import ir

from lstm_ir.backends.emit.regions import reduce
from lstm_ir.backends.emit.shapes import reshape
from lstm_ir.backends.kernels.call.call import KernelCall
from lstm_ir.backends.kernels.cpu import shares
from lstm_ir.backends.kernels.cpu.machine import PARTIAL_SUMS, UNIT_VECTORS
from lstm_ir.backends.kernels.text.elementwise import Ops
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, load_vector, put_memories, store_vector
from lstm_ir.backends.kernels.text.node_values import computed
from lstm_ir.backends.kernels.text.statements import TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType, Shape, TensorType


@dataclass(frozen=True)
class ElementChain:
    """Nodes whose values have one shape and one dtype, or are booleans; operands first."""

    nodes: tuple[Node, ...]
    shape: Shape  # of numbers
    dtype: DType
    tensors: tuple[Value, ...]  # read element by element
    repeated: Mapping[Value, Value]  # read as the one number that all elements are -> the tensor that has it
    results: tuple[Value, ...]
    summed: bool  # gives the sum of the one result's elements
    rounds: bool  # whether products round before something is added (`decisions.py`)

    @property
    def elements(self) -> int:
        """Of each tensor."""
        size = dims.product(self.shape)
        assert isinstance(size, int)
        return size


ELEMENTS, GROUPS = argument("elements"), argument("groups")


@dataclass
class ElementsCall(KernelCall):
    """One such call."""

    chain: ElementChain
    word: ClassVar[str] = "elements"

    def kernel(self) -> Kernel:
        """The kernel, whose operands are made later; RefusedError where it or a dispatch does not take them."""
        assert self.e.target is not None
        c = self.chain
        flat, one = TensorType((c.elements,), c.dtype), TensorType((1,), c.dtype)
        for v, to in (*((v, flat) for v in c.tensors), *((v, one) for v in c.repeated.values())):
            self.input(partial(self._flat, v, to), to)
        for _ in c.results:
            self.output(TensorType((PARTIAL_SUMS,), c.dtype) if c.summed else flat)
        made = _ElementsText(self.e.target, c).kernel(self.signature([ELEMENTS, GROUPS]))
        self.check(made.entry.signature)
        return made

    def _flat(self, v: Value, to: TensorType) -> ir.Value:
        return reshape(self.e, self.e.known[v], v.type, to.shape)

    def run(self, kernel: Kernel) -> list[ir.Value]:
        """The dispatch: of each result its elements, or of one their sum."""
        assert self.e.target is not None
        c, symbol = self.chain, self.begin(kernel)
        units = -(-c.elements // (UNIT_VECTORS * lanes_of(self.e.target, c.dtype)))
        groups = shares.groups(self, self.const(units))
        out = self.call(symbol, groups, [self.const(c.elements), groups])
        if c.summed:
            return [reduce(self.e, "add", out[0], self.results[0], 0.0, (0,))]
        return [reshape(self.e, v, t, c.shape) for v, t in zip(out, self.results, strict=True)]


def lanes_of(target: TargetInfo, dtype: DType) -> int:
    """Elements of a vector."""
    return max(1, target.vector_bits // dtype.bits)


class _ElementsText:
    """The kernel's function."""

    def __init__(self, target: TargetInfo, chain: ElementChain) -> None:
        self.t, self.chain = Text(lanes_of(target, chain.dtype)), chain
        self.ops, element = Ops(self.t, chain.rounds), stored_type(chain.dtype)
        self.kind = self.t.vector(element)
        self.tensors = {v: Memory(f"%m_tensor{k}", element, (ELEMENTS,)) for k, v in enumerate(chain.tensors)}
        self.numbers = {v: Memory(f"%m_number{k}", element, (1,)) for k, v in enumerate(chain.repeated)}
        size = PARTIAL_SUMS if chain.summed else ELEMENTS
        self.out = [Memory(f"%m_out{k}", element, (size,)) for k in range(len(chain.results))]

    def kernel(self, taken: KernelSignature) -> Kernel:
        """One function."""
        t = self.t
        put_memories(t, (*taken.reads, *taken.writes), (*self.tensors.values(), *self.numbers.values(), *self.out))
        self.known = {v: self._everywhere(m) for v, m in self.numbers.items()}
        (self._sums if self.chain.summed else self._elements)()
        return Kernel((t.function("", taken, called_by_iree()),))

    def _everywhere(self, m: Memory) -> TextOperand:
        t = self.t
        return t.op("vector.broadcast {} : {} to {}", m.load(t, [t.index(0)]), m.element, self.kind)

    def _results(self, place: TextOperand, mask: TextOperand | None) -> list[TextOperand]:
        """The vectors of all results from this place on."""
        read = dict[Value, TextOperand]()  # of this place
        for v, m in self.tensors.items():
            read[v] = load_vector(self.t, m, [place], mask)
        known = computed(self.ops, self.chain.nodes, {**self.known, **read}, read.__getitem__)
        return [known[v] for v in self.chain.results]

    def _elements(self) -> None:
        t = self.t
        unit = t.index(UNIT_VECTORS * t.lanes)
        low, high = shares.share(t, t.binary("ceildivui", ELEMENTS, unit), GROUPS)
        low, high = t.binary("muli", low, unit), t.binary("minui", t.binary("muli", high, unit), ELEMENTS)
        whole = self._whole(low, high, t.lanes)
        with t.loop(low, whole, t.index(t.lanes)) as place:
            self._store(place, None)
        with t.when(t.compare("ult", whole, high)):
            self._store(whole, t.mask(t.binary("subi", high, whole)))

    def _store(self, place: TextOperand, mask: TextOperand | None) -> None:
        for m, v in zip(self.out, self._results(place, mask), strict=True):
            store_vector(self.t, v, m, [place], mask)

    def _whole(self, low: TextOperand, high: TextOperand, by: int) -> TextOperand:
        """Where the last whole part of so many elements ends."""
        t = self.t
        count = t.binary("divui", t.binary("subi", high, low), t.index(by))
        return t.binary("addi", low, t.binary("muli", count, t.index(by)))

    def _sums(self) -> None:
        """Each partial sum has as many elements, in four vectors: the error of a sum grows with its length."""
        t = self.t
        four, kinds, zero = 4 * t.lanes, [self.kind] * 4, t.constant("0.0", self.kind)
        each = t.binary("ceildivui", ELEMENTS, t.index(PARTIAL_SUMS * four))
        each = t.binary("muli", each, t.index(four))
        first, end = shares.share(t, t.index(PARTIAL_SUMS), GROUPS)
        with t.loop(first, end, t.index(1)) as part:
            low = t.binary("minui", t.binary("muli", part, each), ELEMENTS)
            high = t.binary("minui", t.binary("addi", low, each), ELEMENTS)
            whole = self._whole(low, high, four)
            at, sums, out = t.carried(low, whole, t.index(four), [zero] * 4, kinds)
            places = [t.add(at, j * t.lanes) for j in range(4)]
            t.close([self._added(s, p, None) for s, p in zip(sums, places, strict=True)], kinds)
            at, (rest,), (last,) = t.carried(whole, high, t.index(t.lanes), out[:1], kinds[:1])
            t.close([self._added(rest, at, t.mask(t.binary("subi", high, at)))], kinds[:1])
            one, other = (t.binary("addf", a, b, self.kind) for a, b in ((last, out[1]), (out[2], out[3])))
            total = t.binary("addf", one, other, self.kind)
            m = self.out[0]
            word = t.op("vector.reduction <add>, {} : {} into {}", total, self.kind, m.element)
            m.store(t, word, [part])

    def _added(self, total: TextOperand, place: TextOperand, mask: TextOperand | None) -> TextOperand:
        t = self.t
        (v,) = self._results(place, mask)
        added = t.binary("addf", total, v, self.kind)
        if mask is None:
            return added
        return t.op("arith.select {}, {}, {} : {}, {}", mask, added, total, t.vector("i1"), self.kind)
