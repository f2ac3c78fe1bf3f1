"""Why the compiler gave no module: ours first, IREE's words below."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.ir.errors import CompileError


class CompilerError(CompileError):
    """The compiler gave no module.

    The text begins with what the project knows, `head` and `more`; what IREE said stands below.
    """

    def __init__(
        self, head: str, said: str = "", places: Sequence[tuple[str, int]] = (), below: str = "",
        more: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`said`: the first fault that IREE names; `places`: file and line of what it names; `below`: its messages."""
        lines = [head, *(f"  {m}" for m in more)]
        if not more:
            lines += [f"  at {file}:{line}" for file, line in places]
        lines += [f"  IREE says: {said}"] if said else []
        super().__init__("\n".join([*lines, below] if below else lines))
        self.head, self.said, self.places, self.below = head, said, tuple(places), below

    @property
    def reason(self) -> str:
        """The fault in one line, and where it is if the compiler says so."""
        at = f" at {':'.join(map(str, self.places[0]))}" if self.places else ""
        return f"{self.said or self.head.splitlines()[0]}{at}"

    def with_advice(self, more: Sequence[str]) -> CompilerError:
        """The same error with lines that say what was being lowered, and what to try."""
        return type(self)(self.head, self.said, self.places, self.below, more)


class CompilerRefusedError(CompilerError):
    """The compiler ended without a module, by itself."""


class CompilerSlowError(CompilerError):
    """The compiler ran past its time limit."""
