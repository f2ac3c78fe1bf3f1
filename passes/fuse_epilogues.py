"""`fuse-epilogues`: what is computed of a product's elements alone is computed where they are summed up.

    tanh(x w + b)      ->      a loop of one step over all rows: tanh(x w + b)

A product of many rows with a matrix is a kernel of one step (`backends/kernels/cpu/products.py`), which has its sums in
registers; an op behind it was one more pass over the results. Operands beside the product are the same for all rows,
as a bias, or one number for each row, as a mask, or tensors of the result's shape, as a residual. Dense layers of 128
to 2000 units take 0.91 to 1.0 of the time (docs/performance.md).

A convolution is a stencil, of which the same holds (`backends/kernels/cpu/stencil_step.py`): operands differ along
batches, outputs and places, or along some of these. ReLU and a bias cost nothing there, up to half of the time before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value, make, substitute
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.literals import splat
from lstm_ir.ir.location import at
from lstm_ir.ir.reach import reached
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import Shape
from lstm_ir.ops.scan.node import STEP, scan_node
from lstm_ir.passes.base import KernelPass, Notes, register
from lstm_ir.passes.sink_elementwise import of_elements
from lstm_ir.passes.tuned import EPILOGUE_OPS, LOOP_TENSORS, PRODUCT_ELEMENTS, PRODUCT_ROWS, PRODUCT_WORK


@register
@dataclass(frozen=True)
class FuseEpilogues(KernelPass):
    """Elementwise work on a product of many rows, in the product's kernel."""

    name: ClassVar[str] = "fuse-epilogues"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with such products as loops of one step; only a CPU's kernels gain by it."""
        if not self.for_cpu_kernels(target):
            return graph
        called, order = reached(graph.nodes, graph.params), {n: k for k, n in enumerate(graph.nodes)}
        new: dict[Value, Value] = {}
        taken = set[Node]()
        for n in graph.nodes:
            kind = _AfterProduct if _of_many_rows(n) else _AfterStencil if _of_floats(n) else None
            if n in taken or kind is None or n.inputs[0] not in called:
                continue
            fused = kind(graph, order, n, taken)
            if not fused.chain:
                continue
            with at(n.loc.through(self.name)):
                found = fused.value()
            if found is not None:
                notes.fire(f"{', '.join(m.op.name for m in fused.chain)} with the product", n.loc)
                new[fused.chain[-1].values[0]] = found
                taken |= fused.nodes
        return substitute(graph, new)


def _of_many_rows(n: Node) -> bool:
    """Whether it is a product that becomes a kernel: of many rows with a matrix."""
    if n.op.name != "dot_general" or n.attrs["lhs_batching_dimensions"]:
        return False
    a, b = n.inputs[0].type, n.inputs[1].type
    if not a.dtype.is_float or a.dtype.bits < 32 or n.attrs["lhs_contracting_dimensions"] != (a.rank - 1,):
        return False
    if a.rank < 2 or b.rank != 2 or not b.is_static:
        return False
    size, rows = dims.product(b.shape), _rows(n)
    assert isinstance(size, int)
    few = isinstance(rows, int) and (rows < PRODUCT_ROWS or rows * size < PRODUCT_WORK)
    return size >= PRODUCT_ELEMENTS and not few


def _of_floats(n: Node) -> bool:
    """Whether it is a stencil that kernels have."""
    dtype = n.types[0].dtype
    return n.op.name == "stencil" and n.inputs[1].type.is_static and dtype.is_float and dtype.bits >= 32


def _rows(n: Node) -> Dim:
    return dims.product(n.inputs[0].shape[:-1])


@dataclass
class _Fused(ABC):
    """One product and what follows it, as a loop; nodes of other such loops are `taken`."""

    graph: Graph
    order: Mapping[Node, int]
    product: Node
    taken: set[Node]
    consts: dict[Value, Value] = field(default_factory=dict)  # outside -> inside
    rows: dict[tuple[Value, Shape], Value] = field(default_factory=dict)  # (outside, shape of all rows) -> inside

    def __post_init__(self) -> None:
        self.nodes = {self.product}
        self.chain = self._chain()
        self.nodes = {self.product, *self.chain}
        self._made: dict[Value, Value] = {}

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """What the body has the results as."""

    @abstractmethod
    def _alike(self, n: Node) -> bool:
        """Whether a reshape of results leaves apart what has numbers of its own."""

    @abstractmethod
    def _sums(self) -> Value:
        """The product in the body."""

    @abstractmethod
    def _repeated(self, v: Value, inner: Value, places: tuple[int, ...]) -> Value | None:
        """Inside, an operand `v` that repeats `inner`, whose axes are at these places; None where all of it is read."""

    def _chain(self) -> list[Node]:
        """Nodes behind the product, up to one that is all that others read of them."""
        found, ends = [self.product], 0
        while len(found) <= EPILOGUE_OPS:
            readers = {u for m in found for u in self.graph.users.get(m.values[0], ()) if u not in self.nodes}
            if not readers:
                break
            n = min(readers, key=self.order.__getitem__)
            alike = n.op.name == "reshape" and self._alike(n)
            if n in self.taken or not (alike or of_elements(n)):
                break  # it reads one that stays
            found.append(n)
            self.nodes.add(n)
            read = [m for m in found if not self._read_inside(m)]
            if read == [n] and not alike and n.types[0].dtype.is_float:
                ends = len(found)
        return found[1:ends]

    def _read_inside(self, n: Node) -> bool:
        """Whether the loop alone reads what a node gives."""
        v = n.values[0]
        return v not in self.graph.outputs and self.nodes.issuperset(self.graph.users.get(v, ()))

    def value(self) -> Value | None:
        """The last value of the chain; None where the loop would have many tensors."""
        last = self.chain[-1].values[0]
        out = self._inside(last)
        if len(self.consts) + len(self.rows) + 1 > LOOP_TENSORS:
            return None
        body = Graph("product", [parameter("step", STEP), *self.consts.values(), *self.rows.values()], [out])
        xs = tuple(ops.reshape(v, (1, *shape)) for v, shape in self.rows)
        node = scan_node(body, tuple(self.consts), (), xs, length=1, reverse=(False,) * (len(xs) + 1))
        return ops.reshape(node.values[0], last.shape)

    def _inside(self, v: Value) -> Value:
        """What the body has for a value: all its rows."""
        if v not in self._made:
            self._made[v] = self._computed(v)
        return self._made[v]

    def _computed(self, v: Value) -> Value:
        n = v.node
        if n is self.product:
            return self._sums()
        if n in self.chain and n.op.name == "reshape":
            return self._inside(n.inputs[0])
        if n in self.chain or self._moves(v):
            self.nodes.add(n)
            return make(n.op, *map(self._inside, n.inputs), **n.attrs).values[0]
        return self._given(v)

    def _moves(self, v: Value) -> bool:
        """Whether what makes an operand is done here alone."""
        few = len(self.nodes) < 2 * EPILOGUE_OPS
        return few and of_elements(v.node) and v.node not in self.taken and self._read_inside(v.node)

    def _given(self, v: Value) -> Value:
        """What stays outside: the same for all rows, a number for each, or all of them."""
        number, n = splat(v), v.node
        if number is not None:
            return ops.broadcast_in_dim(constant(number, v.dtype), self.shape, ())
        if n.op.name == "broadcast_in_dim":
            inner = n.inputs[0]
            if dims.product(inner.shape) == 1:
                return ops.broadcast_in_dim(self._const(ops.reshape(inner, ())), self.shape, ())
            found = self._repeated(v, inner, n.attrs["broadcast_dimensions"])
            if found is not None:
                return found
        return self._row(v, self.shape)

    def _const(self, v: Value) -> Value:
        return self.consts.setdefault(v, parameter(f"same{len(self.consts)}", v.type))

    def _row(self, v: Value, shape: Shape) -> Value:
        return self.rows.setdefault((v, shape), parameter(f"row{len(self.rows)}", v.type.with_shape(shape)))


class _AfterProduct(_Fused):
    """Of a product: results are [rows, columns]."""

    @property
    def shape(self) -> Shape:
        """Of all rows."""
        return (_rows(self.product), self.product.types[0].shape[-1])

    def _alike(self, n: Node) -> bool:
        return n.types[0].shape[-1:] == n.inputs[0].shape[-1:]

    def _sums(self) -> Value:
        lhs, rhs = self.product.inputs
        parts = [self._row(v, (self.shape[0], v.shape[-1])) for v in self._joined(lhs)]
        x = parts[0] if len(parts) == 1 else ops.concat(parts, 1)
        return ops.dot_general(x, self._const(rhs), ((1,), self.product.attrs["rhs_contracting_dimensions"]))

    def _joined(self, rows: Value) -> tuple[Value, ...]:
        """What rows are joined of for this product alone, side by side: the loop reads each where it lies.

        Those of one loop stay joined: its kernel writes them so.
        """
        n = rows.node
        alone = self.graph.users[rows] == (self.product,) and rows not in self.graph.outputs
        if n.op.name != "concatenate" or not alone or n.attrs["dimension"] != rows.rank - 1:
            return (rows,)
        if n.inputs[0].op == "scan" and len({v.node for v in n.inputs}) == 1:
            return (rows,)
        return n.inputs if all(isinstance(v.shape[-1], int) for v in n.inputs) else (rows,)

    def _repeated(self, v: Value, inner: Value, places: tuple[int, ...]) -> Value | None:
        if places == (v.rank - 1,) and inner.shape == v.shape[-1:]:
            return ops.broadcast_in_dim(self._const(inner), self.shape, (1,))
        if inner.shape == v.shape[:-1] and places == tuple(range(v.rank - 1)):
            return ops.broadcast_in_dim(self._row(inner, self.shape[:1]), self.shape, (0,))
        return None


class _AfterStencil(_Fused):
    """Of a stencil: results are [N,G,M,H,W], or with G and M in one axis, or H and W."""

    @property
    def shape(self) -> Shape:
        """The stencil's."""
        return self.product.types[0].shape

    def _outputs(self, shape: Shape) -> tuple[int, ...] | None:
        """The axes of outputs in a shape of the results; None where they do not stand alone."""
        batch, groups, each, *_ = self.shape
        if shape[:1] != (batch,):
            return None
        if shape == self.shape:
            return 1, 2
        return (1,) if shape[1:2] == (dims.mul(groups, each),) else None

    def _alike(self, n: Node) -> bool:
        return self._outputs(n.types[0].shape) is not None

    def _sums(self) -> Value:
        lhs, rhs = self.product.inputs
        return make(self.product.op, self._row(lhs, lhs.shape), self._const(rhs), **self.product.attrs).values[0]

    def _repeated(self, v: Value, inner: Value, places: tuple[int, ...]) -> Value | None:
        mine = self._outputs(v.shape)
        if mine is None or places != tuple(sorted(places)):
            return None
        axes: tuple[int, ...] = ()
        last = tuple(range(mine[-1] + 1, v.rank))
        for part, inside in (((0,), (0,)), (mine, (1, 2)), (last, (3, 4))):
            sizes = tuple(d for p, d in zip(places, inner.shape, strict=True) if p in part)
            if all(d == 1 for d in sizes):
                continue
            if dims.product(sizes) != dims.product(tuple(self.shape[i] for i in inside)):
                return None  # a part of the places, or of the groups
            axes = (*axes, *inside)
        held = self._const(ops.reshape(inner, tuple(self.shape[i] for i in axes)))
        return ops.broadcast_in_dim(held, self.shape, axes)
