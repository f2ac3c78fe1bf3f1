"""What of a model is not taken: collected over the whole model, raised as one error."""

from __future__ import annotations

from lstm_ir.ir.errors import ModelError


def printable(text: str) -> str:
    """The text on one line: signs that do not print, which a damaged file may have in a name, as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class Refusals:
    """Lines `name (op): reason`, each once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._lines: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, name: str, op: str, why: Exception) -> None:
        """Note one; of a message about a graph the reason is the first line."""
        reason = str(why).splitlines()[0] if str(why) else type(why).__name__
        self._lines.setdefault(f"{printable(name)} ({printable(op)}): {printable(reason)}")

    def raise_any(self) -> None:
        """ModelError if there is one."""
        if self._lines:
            many = "1 refusal" if len(self._lines) == 1 else f"{len(self._lines)} refusals"
            text = "".join(f"\n  {line}" for line in self._lines)
            raise ModelError(f"{self.file}: {many}{text}", self._lines)
