"""A scan's kernel in the module: operands, weights, the executable and its dispatch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from iree.compiler import ir

from lstm_ir.backends.emitter import Emitter, tensor
from lstm_ir.backends.kernels.access import RefusedError
from lstm_ir.backends.kernels.atoms import Source
from lstm_ir.backends.kernels.function import Function, Layout
from lstm_ir.backends.kernels.memory import Memory
from lstm_ir.backends.kernels.packing import pack, packed_type
from lstm_ir.backends.kernels.plan import Plan, Sweep, walk
from lstm_ir.backends.kernels.schedule import Schedule
from lstm_ir.backends.kernels.team import LINE
from lstm_ir.backends.kernels.text import stored_type
from lstm_ir.backends.kernels.workers import flags_needed, grid
from lstm_ir.dims import Dim
from lstm_ir.graph import Graph, Value
from lstm_ir.types import DType, TensorType

Values = list[ir.Value]
_NAME = "kernel_of_the_loop"
BINDINGS = 32  # tensors of one dispatch: the most that IREE's command buffers take


@dataclass
class Dispatch:
    """Builds one kernel call."""

    e: Emitter
    plan: Plan
    schedule: Schedule
    operands: Values = field(default_factory=list)
    operand_types: list[TensorType] = field(default_factory=list)
    inputs: list[tuple[str, Memory]] = field(default_factory=list)
    results: list[TensorType] = field(default_factory=list)
    outputs: list[tuple[str, Memory]] = field(default_factory=list)
    sizes: dict[Dim, str] = field(default_factory=dict)
    tied: tuple[ir.Value, ir.Value] | None = None  # the flags and their number of teams

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """The dispatch: final carries, then stacked rows."""
        e, plan, n = self.e, self.plan, self.plan.node
        flags = self._invariants(consts)
        memories: dict[Source, Memory] = {}
        for v in self._values_read("value"):
            memories[Source("value", 0, v)] = self._input(flags[v], v.type)
        for k in range(len(plan.scanned)):
            if any(s.index == k for s in self._sources("scan")):
                memories[Source("scan", k)] = self._input(xs[k], n.args[2][k].type)  # type: ignore[index]
        for k, made in enumerate(plan.projections):
            graph = made.graph(n.args[2][made.scan].type)  # type: ignore[index]
            (rows,) = e.graph(graph, [xs[made.scan], flags[made.matrix.value]])
            memories[Source("projection", k)] = self._input(rows, graph.outputs[0].type)
        packed: dict[tuple[Sweep, int], Memory] = {}
        for sweep in (s for c in plan.components for s in c.sweeps):
            q = self.schedule.tiles[sweep].q
            for k, loop in enumerate(sweep.loops):
                matrices = [flags[m.value] for _, m in loop.gates]
                with_k = pack(e, loop, matrices, sweep.width, self.schedule.lanes, q)
                packed[sweep, k] = self._input(
                    with_k, packed_type(loop, sweep.width, self.schedule.lanes, q)
                )
        starts = [self._input(v, p.type) for v, p in zip(init, plan.carries, strict=True)]
        counted = None if count is None else self._input(count, n.args[3].type)  # type: ignore[union-attr]
        finals = [self._output(p.type) for p in plan.carries]
        for k in range(len(plan.stacked)):
            memories[Source("stack", k)] = self._output(n.types[len(plan.carries) + k])
        for i, p in enumerate(plan.carries):
            memories[Source("carry", i)] = self._output(self._scratch(p.type, 2))
        for temp in plan.temps:
            shape: tuple[Dim, ...] = (
                (plan.rows, self._padded(temp.width)) if temp.width else (plan.rows,)
            )
            memories[Source("temp", temp.index)] = self._output(TensorType(shape, temp.atom.dtype))
        chunks, members = grid(e, self._const, plan, self.schedule)
        groups = self._muli(chunks, self._const(len(plan.components)))
        counters = self._counters(groups) if self.schedule.share else None
        layout = Layout(
            memories, packed, finals, starts, counters, counted, 
            self._size(n.attrs["length"]), self._size(plan.rows),
            "%chunks", "%members", self.schedule.tiles, self._relax(),
        )  # fmt: skip
        layout.bindings = [*self.inputs, *self.outputs]
        names = [f"{b}: !stream.binding" for b, _ in self.inputs]
        names += [f"{s}: index" for s in self.sizes.values()] + [
            "%chunks: index",
            "%members: index",
            "%groups: index",
        ]
        layout.arguments = names + [f"{b}: !stream.binding" for b, _ in self.outputs]
        function = Function(plan, layout, self.schedule.lanes).text(_NAME)
        # Loops of one form share a kernel; functions of one module are linked: names must differ.
        symbol = "recurrence_" + sha256(function.encode()).hexdigest()[:12]
        module = module_of_insertion().regions[0].blocks[0]
        names = [op.attributes["sym_name"].value for op in module if "sym_name" in op.attributes]
        if symbol not in names:
            self._executable(symbol, function.replace(_NAME, f"{symbol}_run"))
        out = self._call(symbol, self._muli(groups, members), [chunks, members, groups])
        kept = out[: len(plan.carries) + len(plan.stacked)]
        kinds = [*(p.type for p in plan.carries), *n.types[len(plan.carries) :]]
        return [self._boolean(v, t) for v, t in zip(kept, kinds, strict=True)]

    # -- operands

    def _sources(self, kind: str) -> list[Source]:
        found: dict[Source, None] = {}
        for c in self.plan.components:
            for s in c.sweeps:
                for r in s.roots:
                    for a in walk(r.atom):
                        if a.source is not None and a.source.kind == kind:
                            found[a.source] = None
        return list(found)

    def _values_read(self, kind: str) -> list[Value]:
        return [s.value for s in self._sources(kind) if s.value is not None]

    def _invariants(self, consts: Values) -> dict[Value, ir.Value]:
        """Loop-invariant values of the body, computed before the loop."""
        matrices = [
            m.value
            for c in self.plan.components
            for s in c.sweeps
            for k in s.loops
            for _, m in k.gates
        ]
        matrices += [p.matrix.value for p in self.plan.projections]
        wanted = list(dict.fromkeys([*self._values_read("value"), *matrices]))
        params = self.plan.body.params[1 : 1 + len(consts)]
        part = Graph("invariant", params, wanted)
        return dict(zip(wanted, self.e.graph(part, consts), strict=True))

    def _input(self, v: ir.Value, t: TensorType) -> Memory:
        if t.dtype is DType.i1:
            v = self.e.hlo("convert", [v], t.with_dtype(DType.i8))
            t = t.with_dtype(DType.i8)
        self.operands.append(v)
        self.operand_types.append(t)
        return self._bound(self.inputs, t)

    def _output(self, t: TensorType) -> Memory:
        t = t.with_dtype(DType.i8) if t.dtype is DType.i1 else t
        self.results.append(t)
        return self._bound(self.outputs, t)

    def _bound(self, where: list[tuple[str, Memory]], t: TensorType) -> Memory:
        name = f"{'in' if where is self.inputs else 'out'}{len(where)}"
        sizes = tuple(d if isinstance(d, int) else self._size(d) for d in t.shape)
        m = Memory(f"%m_{name}", stored_type(t.dtype), sizes)
        where.append((f"%b_{name}", m))
        return m

    def _size(self, d: Dim) -> str:
        """The kernel's name for a size."""
        return self.sizes.setdefault(d, f"%d{len(self.sizes)}")

    def _counters(self, groups: ir.Value) -> Memory:
        """Zeroed flags of every team; written in place."""
        flags = flags_needed(self.plan, self.schedule)
        kind = ir.RankedTensorType.get(
            [ir.ShapedType.get_dynamic_size(), flags, LINE], ir.IntegerType.get_signless(32)
        )
        i32 = ir.IntegerType.get_signless(32)
        zero = self.e.make(
            "arith.constant", [], [i32], {"value": ir.IntegerAttr.get(i32, 0)}
        ).result
        self.tied = (self.e.make("flow.tensor.splat", [zero, groups], [kind]).result, groups)
        m = Memory("%m_flags", "i32", ("%groups", flags, LINE))
        self.inputs.append(("%b_flags", m))
        return m

    def _relax(self) -> str:
        triple = "" if self.e.target is None else self.e.target.triple
        if triple.startswith("x86_64"):
            return "pause"
        return "yield" if triple.startswith(("aarch64", "arm64")) else ""

    def _padded(self, width: int) -> int:
        return -(-width // self.schedule.lanes) * self.schedule.lanes

    def _scratch(self, t: TensorType, copies: int) -> TensorType:
        """Memory of a carry: `copies` of it, its rows padded to whole vectors."""
        last = t.shape[-1]
        wide = isinstance(last, int) and (t.rank > 1 or last != self.plan.rows)
        shape = (*t.shape[:-1], self._padded(int(last)) if wide else last)  # type: ignore[arg-type]
        return t.with_shape((copies, *shape))

    def _boolean(self, v: ir.Value, t: TensorType) -> ir.Value:
        return self.e.hlo("convert", [v], t) if t.dtype is DType.i1 else v

    # -- the module

    def _const(self, d: Dim) -> ir.Value:
        if isinstance(d, int):
            index = ir.IndexType.get()
            return self.e.make(
                "arith.constant", [], [index], {"value": ir.IntegerAttr.get(index, d)}
            ).result
        return self.e.size(d)

    def _muli(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.e.make("arith.muli", [a, b], [ir.IndexType.get()]).result

    def _executable(self, symbol: str, function: str) -> None:
        text = "\n".join([
            f"stream.executable private @{symbol} {{",
            f"  stream.executable.export public @{symbol}_run workgroups(%n: index)",
            "      -> (index, index, index) {",
            "    %c1 = arith.constant 1 : index",
            "    stream.return %n, %c1, %c1 : index, index, index",
            "  }", "  builtin.module {", function, "  }", "}",
        ])  # fmt: skip
        try:
            op = ir.Operation.parse(text, source_name=symbol)
        except ir.MLIRError:
            _dump(symbol, text)
            raise
        ir.InsertionPoint.at_block_begin(module_of_insertion().regions[0].blocks[0]).insert(op)

    def _call(self, symbol: str, total: ir.Value, extra: Values) -> Values:
        operands, kinds = list(self.operands), [tensor(t) for t in self.results]
        argument_dims = [
            self._const(d) for t in self.operand_types for d in t.shape if not isinstance(d, int)
        ]
        result_dims = [
            self._const(d) for t in self.results for d in t.shape if not isinstance(d, int)
        ]
        ties = [-1] * len(kinds)
        if self.tied is not None:
            flags, groups = self.tied
            ties.append(len(operands))
            operands.append(flags)
            kinds.append(flags.type)
            argument_dims.append(groups)
            result_dims.append(groups)
        bindings = len(operands) + len(self.results)
        if bindings > BINDINGS:
            raise RefusedError(
                f"it reads and writes {bindings} tensors, a dispatch takes {BINDINGS}"
            )
        arguments = [*operands, *(self._const(d) for d in self.sizes), *extra]
        segments = [1, len(arguments), len(argument_dims), len(result_dims)]
        index = ir.IndexType.get()
        attrs = {
            "entry_points": ir.ArrayAttr.get([ir.Attribute.parse(f"@{symbol}::@{symbol}_run")]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
            "tied_operands": ir.ArrayAttr.get([ir.IntegerAttr.get(index, i) for i in ties]),
        }
        out = self.e.make(
            "flow.dispatch", [total, *arguments, *argument_dims, *result_dims], kinds, attrs
        )
        return list(out.results)


def module_of_insertion() -> ir.Operation:
    """The module that is being written."""
    op = ir.InsertionPoint.current.block.owner
    while op.operation.name != "builtin.module":
        op = op.operation.parent
    return op.operation


def _dump(symbol: str, text: str) -> None:
    """Keep the text of a kernel that MLIR refused where LSTM_IR_DUMP names a folder."""
    folder = os.environ.get("LSTM_IR_DUMP")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{symbol}.mlir").write_text(text, encoding="utf-8")
