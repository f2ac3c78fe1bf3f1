"""Sizes as PyTorch writes them, sympy expressions of its symbols, as dimension expressions of the graph's names."""

from __future__ import annotations

from typing import Any

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim


class Symbols:
    """What each symbol of an exported program is in the graph."""

    def __init__(self) -> None:
        self._dims: dict[str, Dim] = {}

    def bind(self, symbol: str, size: Dim) -> None:
        """From now on the symbol is this size."""
        self._dims[symbol] = size

    def known(self, symbol: str) -> Dim | None:
        """What the symbol is; None where nothing was said of it."""
        return self._dims.get(symbol)

    def dim(self, size: Any) -> Dim:
        """An int, or a `torch.SymInt`, as a dimension."""
        return size if isinstance(size, int) else self.of(expression(size))

    def shape(self, tensor: Any) -> tuple[Dim, ...]:
        """The shape of a tensor without data."""
        return tuple(self.dim(d) for d in tensor.shape)

    def of(self, e: Any) -> Dim:
        """A sympy expression as a dimension. RefusedError for what is none."""
        kind = type(e).__name__
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            found = self._dims.get(e.name)
            if found is None:
                raise NodeRefusedError(f"a size depends on values that only a call knows ({e.name})")
            return found
        if kind in ("Add", "Mul"):
            parts = tuple(self.of(a) for a in e.args)
            return dims.total(parts) if kind == "Add" else dims.product(parts)
        if kind == "Pow" and e.args[1].is_Integer and 0 <= int(e.args[1]) <= 8:
            return dims.product((self.of(e.args[0]),) * int(e.args[1]))
        if kind in ("FloorDiv", "CleanDiv"):
            return self._divided(e)
        if kind in ("Mod", "PythonMod"):
            a, b = (self.of(x) for x in e.args)
            if isinstance(b, int) and b > 0:
                return dims.add(a, dims.mul(dims.floordiv(a, b), -b))
        if kind in ("Max", "Min"):
            return self._extreme(kind, [self.of(a) for a in e.args])
        raise NodeRefusedError(f"the size {e} is not taken: sums, products and divisions by numbers are")

    def _divided(self, e: Any) -> Dim:
        a, b = (self.of(x) for x in e.args)
        if isinstance(b, int) and b > 0:
            return dims.floordiv(a, b)
        if a == b:
            return 1
        raise NodeRefusedError(f"the size {a} // {b} is not taken: sizes are divided by numbers")

    @staticmethod
    def _extreme(kind: str, parts: list[Dim]) -> Dim:
        out = parts[0]
        for p in parts[1:]:
            above = dims.at_least(dims.add(p, dims.mul(out, -1)), 0)
            if above is None:
                raise NodeRefusedError(f"which of the sizes {out} and {p} is larger depends on the call")
            out = p if above == (kind == "Max") else out
        return out


def expression(size: Any) -> Any:
    """The sympy expression of a `torch.SymInt`, `SymFloat` or `SymBool`."""
    return size.node.expr
