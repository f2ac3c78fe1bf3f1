"""Writes ops of a StableHLO module with IREE's MLIR bindings: literals, sizes, and forms of values.

Where every size is an int only StableHLO is made. Named sizes become `?`; their run-time values
come from the entry block's `tensor.dim`, and the ops that StableHLO cannot say for `?`
(reshape, updates, batched dots) are made with `tensor`, `linalg` and `scf`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from iree.compiler import ir

from lstm_ir.backends.emit.mlir_types import SIGNED, array_attr, element, tensor
from lstm_ir.ir import dims
from lstm_ir.ir.data import Data
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType, Shape, TensorType

_WAYS = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")  # of arith.cmpi, in MLIR's order


def _host_number(value: float, dtype: DType) -> tuple[ir.Type, ir.Attribute]:
    """A number for the host, which has f32, f64 and signless integers: others as integers of their bits."""
    bits = np.asarray(value, dtype.numpy)
    if dtype in (DType.f32, DType.f64):
        one = element(dtype)
        return one, ir.FloatAttr.get(one, float(bits))
    one = ir.IntegerType.get_signless(dtype.bits)
    return one, ir.IntegerAttr.get(one, int(bits.view(f"i{bits.itemsize}")))


class Builder:
    """Makes ops at the current insertion point, in a function that `begin` started."""

    def __init__(self, target: TargetInfo | None) -> None:
        self.target = target
        self.sizes: dict[str, ir.Value] = {}  # dimension name -> index
        self._exprs: dict[Dim, ir.Value] = {}
        self.anchor: ir.Operation | None = None
        self.unseen: dict[tuple[DType, str], ir.Value] = {}  # of `unseen.py`

    def begin(self, anchor: ir.Operation, sizes: Mapping[str, ir.Value]) -> None:
        """Start a function: sizes are computed before `anchor`."""
        self.anchor, self.sizes = anchor, dict(sizes)
        self._exprs, self.unseen = {}, {}

    # -- ops

    def make(
        self,
        name: str,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        attrs: Mapping[str, ir.Attribute] | None = None,
        regions: int = 0,
    ) -> ir.Operation:
        """Any op by its MLIR name."""
        return ir.Operation.create(
            name, results=list(results), operands=list(operands), attributes=dict(attrs or {}), regions=regions
        )

    @property
    def is_spirv(self) -> bool:
        """Whether the target takes SPIR-V, or Metal's translation of it."""
        return self.target is not None and self.target.kind in ("vulkan", "metal")

    @property
    def is_cuda_or_hip(self) -> bool:
        """Whether IREE makes vectors of threads for the target, by LLVM."""
        return self.target is not None and self.target.kind in ("cuda", "hip")

    def hidden(self, v: ir.Value) -> ir.Value:
        """The value, which IREE may not compute at compile time."""
        return self.make("util.optimization_barrier", [v], [v.type]).result

    def choice(self, condition: ir.Value, types: Sequence[TensorType]) -> ir.Operation:
        """Two empty branches that give such tensors, the first where the condition holds, which IREE may not know: of
        branches of one condition it makes one, in which a result may lie at another offset, for which it takes 0."""
        return self.make("scf.if", [self.hidden(condition)], [tensor(t) for t in types], regions=2)

    def op(self, name: str, operands: Sequence[ir.Value], result: TensorType, **attrs: ir.Attribute) -> ir.Value:
        """An op with one tensor result."""
        return self.make(name, operands, [tensor(result)], attrs).result

    def hlo(self, name: str, operands: Sequence[ir.Value], result: TensorType, **attrs: ir.Attribute) -> ir.Value:
        """stablehlo.`name` with one result."""
        return self.op(f"stablehlo.{name}", operands, result, **attrs)

    # -- constants

    def constant(self, array: np.ndarray[Any, Any] | float, dtype: DType) -> ir.Value:
        """A literal tensor."""
        a = np.ascontiguousarray(np.asarray(array, dtype=dtype.numpy))
        kind = ir.RankedTensorType.get(list(np.shape(array)), element(dtype))
        if dtype is DType.i1 and a.size > 1:
            return self._booleans(a)
        if dtype is DType.i1 or a.size == 0:
            dense = self._text(kind, a)
        else:
            bits = a.view(np.uint16) if dtype is DType.bf16 else a
            if dtype is DType.bf16 and a.size > 1 and self.is_spirv:
                return self._bits_of_bf16(bits)
            dense = ir.DenseElementsAttr.get(bits, type=kind)
        return self.make("stablehlo.constant", [], [kind], {"value": dense}).result

    def _bits_of_bf16(self, bits: np.ndarray[Any, Any]) -> ir.Value:
        """Memory of 16-bit integers: on SPIR-V a literal of bf16 becomes f32 in a dispatch that copies it."""
        held = ir.RankedTensorType.get(list(bits.shape), ir.IntegerType.get_signless(16))
        dense = {"value": ir.DenseElementsAttr.get(bits.view(np.int16), type=held)}
        literal = self.make("stablehlo.constant", [], [held], dense).result
        t = TensorType(bits.shape, DType.bf16)
        return self.view(literal, t, tensor(t))

    def _booleans(self, a: np.ndarray[Any, Any]) -> ir.Value:
        """Bytes that differ from 0: the bindings read bits as a splat, or not at all."""
        bytes_ = TensorType(a.shape, DType.i8)
        held = self.constant(a.astype(np.int8), DType.i8)
        word = ir.Attribute.parse("#stablehlo<comparison_direction NE>")
        to = bytes_.with_dtype(DType.i1)
        return self.hlo("compare", [held, self.full(0, bytes_)], to, comparison_direction=word)

    @staticmethod
    def _text(kind: ir.Type, a: np.ndarray[Any, Any]) -> ir.Attribute:
        """A literal of one boolean, or of nothing."""
        inside = "" if a.size == 0 else "true" if a.reshape(-1)[0] else "false"
        return ir.Attribute.parse(f"dense<{inside}> : {kind}")

    def full(self, value: float, t: TensorType) -> ir.Value:
        """A tensor of one number."""
        if t.is_static:
            splat = {"value": self._splat(value, t)}
            return self.make("stablehlo.constant", [], [tensor(t)], splat).result
        one = self.constant(np.asarray(value), t.dtype)
        return self.broadcast(one, t.with_shape(()), t, ())

    def filled(self, value: float, t: TensorType, own: bool = False) -> ir.Value:
        """As `full`, and a buffer in IREE, not a dispatch: what loops and writes start from.

        IREE 3.13 clones a dispatch that reads nothing into the submissions that use it, and may
        leave the original in none ("streamable op expected to be in an execution region").
        With `own`, the buffer is never merged with another of the same size, nor made outside a loop.
        """
        if self.target is None or t.dtype is DType.i1 or (t.is_static and not own):
            return self.full(value, t)
        one, number = _host_number(value, t.dtype)
        scalar = self.make("arith.constant", [], [one], {"value": number}).result
        if own:
            scalar = self.hidden(scalar)
        sizes = [self.size(d) for d in t.shape if not isinstance(d, int)]
        kind = tensor(t)
        made = self.make("flow.tensor.splat", [scalar, *sizes], [ir.RankedTensorType.get(kind.shape, one)]).result
        if t.dtype in SIGNED:
            return self._of_elements(made, element(t.dtype))
        return made if one == element(t.dtype) else self.view(made, t, kind)

    def view(self, v: ir.Value, t: TensorType, to: ir.Type) -> ir.Value:
        """The memory of `v`, of the shape of `t`, as elements of another type of as many bits."""
        sizes = [self.size(d) for d in t.shape if not isinstance(d, int)]
        attrs = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(sizes), len(sizes)])}
        return self.make("flow.tensor.bitcast", [v, *sizes, *sizes], [to], attrs).result

    def barrier(self, v: ir.Value, t: TensorType) -> ir.Value:
        """`v`, in no dispatch with what reads it."""
        if t.dtype in SIGNED:  # barriers of unsigned elements are refused
            twin = t.with_dtype(SIGNED[t.dtype])
            held = self.barrier(self.hlo("bitcast_convert", [v], twin), twin)
            return self.hlo("bitcast_convert", [held], t)
        sizes = [self.size(d) for d in t.shape if not isinstance(d, int)]
        return self.make("iree_tensor_ext.compute_barrier.start", [v, *sizes], [v.type]).result

    def opaque(self, v: ir.Value, t: TensorType) -> ir.Value:
        """`v`, made where it stands: a fill that a loop and what follows it read is else cloned into
        both, and the first one is left in no submission (see `filled`)."""
        if t.dtype in SIGNED:  # barriers of unsigned elements are refused
            twin = t.with_dtype(SIGNED[t.dtype])
            held = self.opaque(self.hlo("bitcast_convert", [v], twin), twin)
            return self.hlo("bitcast_convert", [held], t)
        return self.tie(self.hidden(v), t)

    @staticmethod
    def _splat(value: float, t: TensorType) -> ir.Attribute:
        if any(d == 0 for d in t.shape):
            return ir.Attribute.parse(f"dense<> : {tensor(t)}")
        one = element(t.dtype)
        if t.dtype.is_float:
            scalar: ir.Attribute = ir.FloatAttr.get(one, float(np.asarray(value, t.dtype.numpy)))
        else:
            scalar = ir.IntegerAttr.get(one, int(value))
        return ir.DenseElementsAttr.get_splat(tensor(t), scalar)

    def data(self, data: Data) -> ir.Value:
        """A constant of the graph."""
        return self.constant(data.array, data.type.dtype)

    # -- sizes

    def index(self, n: int) -> ir.Value:
        """An index constant, made here."""
        index = ir.IndexType.get()
        attrs = {"value": ir.IntegerAttr.get(index, n)}
        return self.make("arith.constant", [], [index], attrs).result

    def compare(self, way: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """arith.cmpi of two integers or indices: "eq", "slt" (signed less), "uge", ..."""
        bit, word = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
        return self.make("arith.cmpi", [a, b], [bit], {"predicate": ir.IntegerAttr.get(word, _WAYS.index(way))}).result

    def size(self, d: Dim) -> ir.Value:
        """The value of a dimension as an index, computed once at the function's head."""
        found = self._exprs.get(d)
        if found is None:
            assert self.anchor is not None
            with ir.InsertionPoint(self.anchor):
                found = self._exprs[d] = self._compute(d)
        return found

    def _compute(self, d: Dim) -> ir.Value:
        index = ir.IndexType.get()
        if isinstance(d, int):
            return self.index(d)
        total: ir.Value | None = None
        for mono, k in d.terms:
            term = self.size(k)
            for i, atom in enumerate(mono):
                if isinstance(atom, dims.Floor):
                    divided = [self.size(atom.numerator), self.size(atom.divisor)]
                    factor = self.make("arith.floordivsi", divided, [index]).result
                else:
                    factor = self.sizes[atom]
                bare = i == 0 and k == 1
                term = factor if bare else self.arith("muli", term, factor)
            total = term if total is None else self.arith("addi", total, term)
        assert total is not None
        return total

    def shape(self, shape: Shape) -> ir.Value:
        """The shape as tensor<rank x index>."""
        kind = ir.RankedTensorType.get([len(shape)], ir.IndexType.get())
        return self.make("tensor.from_elements", [self.size(d) for d in shape], [kind]).result

    def scalar(self, index: ir.Value, dtype: DType, own: bool = False) -> ir.Value:
        """An index as a tensor of rank 0.

        IREE computes on the host what reads such tensors, and waits for what else it reads ("shape
        computations"). With `own` it is a buffer, for what is computed from data.
        """
        width = ir.IntegerType.get_signless(dtype.bits)
        cast = self.make("arith.index_cast", [index], [width]).result
        kind = ir.RankedTensorType.get([], width)
        if not own or self.target is None:
            return self.make("tensor.from_elements", [cast], [kind]).result
        made = self.make("flow.tensor.splat", [cast], [kind]).result
        return self.opaque(made, TensorType((), dtype))

    def arith(self, name: str, *operands: ir.Value) -> ir.Value:
        """arith.`name` of index values (of `select` a flag comes first)."""
        return self.make(f"arith.{name}", operands, [ir.IndexType.get()]).result

    def extract(self, v: ir.Value) -> ir.Value:
        """The index held by an integer tensor of rank 0; the host waits for it."""
        one = ir.RankedTensorType(v.type).element_type
        held = self.make("tensor.extract", [v], [one]).result
        return self.make("arith.index_cast", [held], [ir.IndexType.get()]).result

    # -- shapes of values

    def broadcast(self, v: ir.Value, t: TensorType, to: TensorType, places: Sequence[int]) -> ir.Value:
        """`t` placed at axes `places` of `to`."""
        at = array_attr(places)
        if to.is_static and t.is_static:
            return self.hlo("broadcast_in_dim", [v], to, broadcast_dimensions=at)
        stretched = [a for a in range(t.rank) if t.shape[a] == 1 and to.shape[places[a]] != 1]
        same = [a for a in range(t.rank) if a not in stretched]
        return self.hlo(
            "dynamic_broadcast_in_dim",
            [v, self.shape(to.shape)],
            to,
            broadcast_dimensions=at,
            known_expanding_dimensions=array_attr(stretched),
            known_nonexpanding_dimensions=array_attr(same),
        )

    def tie(self, v: ir.Value, t: TensorType) -> ir.Value:
        """The same value, with the function's named sizes, which what left a loop has lost."""
        if t.is_static:
            return v
        if self.target is None:
            return self.extract_slice(v, t, [0] * t.rank, t.shape, tensor(t))
        if t.dtype in SIGNED:  # flow has no unsigned elements
            twin = t.with_dtype(SIGNED[t.dtype])
            tied = self.tie(self.hlo("bitcast_convert", [v], twin), twin)
            return self.hlo("bitcast_convert", [tied], t)
        sizes = [self.size(d) for d in t.shape if not isinstance(d, int)]
        return self.make("flow.tensor.tie_shape", [v, *sizes], [tensor(t)]).result

    def extract_slice(
        self,
        v: ir.Value,
        t: TensorType,
        offsets: Sequence[ir.Value | int],
        sizes: Sequence[Dim | ir.Value],
        result: ir.RankedTensorType,
    ) -> ir.Value:
        """tensor.extract_slice with unit strides; drops unit axes where `result` has fewer."""
        return self._slice_op("tensor.extract_slice", [v], offsets, sizes, result)

    def insert_slice(
        self, v: ir.Value, into: ir.Value, offsets: Sequence[ir.Value | int], sizes: Sequence[Dim | ir.Value]
    ) -> ir.Value:
        """tensor.insert_slice with unit strides."""
        return self._slice_op("tensor.insert_slice", [v, into], offsets, sizes, into.type)

    def _slice_op(
        self, name: str, operands: list[ir.Value], offsets: Sequence[Any], sizes: Sequence[Any], result: ir.Type
    ) -> ir.Value:
        one = ir.RankedTensorType(result).element_type
        if isinstance(one, ir.IntegerType) and one.is_unsigned:  # `tensor` knows no sign
            signless = ir.IntegerType.get_signless(one.width)
            plain = [self._of_elements(v, signless) for v in operands]
            kind = ir.RankedTensorType.get(ir.RankedTensorType(result).shape, signless)
            return self._of_elements(self._slice_op(name, plain, offsets, sizes, kind), one)
        dynamic = ir.ShapedType.get_dynamic_size()
        static: list[list[int]] = []
        moving: list[list[ir.Value]] = []
        for group in (offsets, sizes):
            static.append([g if isinstance(g, int) else dynamic for g in group])
            open_ = [g for g in group if not isinstance(g, int)]
            moving.append([self.size(g) if isinstance(g, dims.Expr) else g for g in open_])
        if 0 in static[1]:  # the verifier refuses offset 0 of an axis with size 0
            if operands[1:]:
                return operands[1]
            return self.make("tensor.empty", moving[1], [result]).result
        segments = [1] * len(operands) + [len(moving[0]), len(moving[1]), 0]
        attrs = {
            "static_offsets": array_attr(static[0]),
            "static_sizes": array_attr(static[1]),
            "static_strides": array_attr([1] * len(sizes)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
        }
        return self.make(name, [*operands, *moving[0], *moving[1]], [result], attrs).result

    def _of_elements(self, v: ir.Value, one: ir.Type) -> ir.Value:
        """The same bits as elements of another type."""
        kind = ir.RankedTensorType.get(ir.RankedTensorType(v.type).shape, one)
        return self.make("stablehlo.bitcast_convert", [v], [kind]).result
