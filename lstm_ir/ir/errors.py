"""The project's error classes, and the one layout that every message about a graph has."""

from __future__ import annotations

from collections.abc import Iterable


class LstmIrError(Exception):
    """Base of all errors that this project raises on purpose."""


class IRError(LstmIrError, ValueError):
    """A graph, node, type or program that is not well formed."""


class ArgumentError(IRError, TypeError):
    """A builder called with arguments that it does not have, or without those that it needs."""


class DimError(IRError):
    """A dimension that is not a size, or two that cannot be decided to be equal."""


class BroadcastError(IRError):
    """Sizes of one axis that are neither equal nor 1; `sizes` are their texts."""

    def __init__(self, message: str, sizes: Iterable[str]) -> None:
        super().__init__(message)
        self.sizes = tuple(sizes)


class ParseError(IRError):
    """A text file that does not follow the grammar; carries line and column (from 1)."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class VerifyError(IRError):
    """A graph whose types, names or structure contradict themselves."""


class AbsentResultError(IRError, AttributeError):
    """A result that an op has, but not for these operands and attributes."""


class ValueRangeError(LstmIrError, ValueError):
    """A value at run time outside what the op's definition allows."""


class CallError(LstmIrError, ValueError):
    """A call with a missing, extra, misshapen or mistyped array."""


class PassError(LstmIrError, RuntimeError):
    """A pass failed, or broke the contract of passes."""


class LoweringError(LstmIrError, NotImplementedError):
    """An op, dtype or form that the target cannot express; names all three."""


class GradientError(LstmIrError, ValueError):
    """A gradient that does not exist or was asked for wrongly."""


class TargetError(LstmIrError, ValueError):
    """An unknown target, or a device that is not there."""


class CompileError(LstmIrError, RuntimeError):
    """The compiler refused, crashed, or ran past its time limit."""


class OptionError(CompileError, ValueError):
    """An option that there is not, or a value that it cannot have."""


class PackageError(LstmIrError, ValueError):
    """A package, weight file or state file that is damaged, foreign or unsafe."""


class KeyTypeError(PackageError, TypeError):
    """A key of a signature that is neither text nor bytes: a number of bytes would be so many zeros."""


class ModelError(LstmIrError, ValueError):
    """A foreign model that cannot be read, or that holds what the importer does not take.

    `refusals` has one line for each node that is not taken, with its name, its op and the reason.
    """

    def __init__(self, message: str, refusals: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.refusals = tuple(refusals)


class MissingLibraryError(LstmIrError, ModuleNotFoundError):
    """A library that this needs is not installed; the message names what to install. `name` is the module's."""


class DeviceError(LstmIrError, RuntimeError):
    """The runtime or the device reported a failure."""


class LostDeviceError(DeviceError):
    """The device is gone, and with it what was loaded onto it; loading again may bring another."""


class BusyError(LstmIrError, RuntimeError):
    """A request or a session for which there is no room now; later there may be."""


class DeadlineError(LstmIrError, TimeoutError):
    """A request whose time was over before its call began; nothing was computed for it."""


class UnknownSessionError(CallError):
    """A session that is not open: never opened, closed, or left idle for too long."""


def message(
    op: str, problem: str, operands: Iterable[tuple[str, object]] = (), loc: object = None, context: str | None = None
) -> str:
    """The four lines that describe a fault in a graph.

    dot: lhs columns (5) differ from rhs rows (3)
      operands: lhs: f32[3x5], rhs: f32[3x7]
      at model.py:78
      in graph @cell, after pass fuse-gates
    """
    lines = [f"{op}: {problem}"]
    shown = ", ".join(f"{n}: {'None' if t is None else t}" for n, t in operands)
    if shown:
        lines.append(f"  operands: {shown}")
    if loc is not None:
        lines.append(f"  at {loc}")
    if context:
        lines.append(f"  in {context}")
    return "\n".join(lines)
