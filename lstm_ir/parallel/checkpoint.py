"""The file that a trainer goes on from, written after so many steps; one that cannot be written stays due."""

from __future__ import annotations

from pathlib import Path

from lstm_ir.ir.errors import PackageError
from lstm_ir.parallel.replica import Replica


class Checkpoint:
    """A safetensors file of a replica's state, or none where `path` is None."""

    def __init__(self, replica: Replica, path: Path | None, every: int) -> None:
        """every: steps from one to the next."""
        self._replica, self._path, self._every = replica, path, every
        self.due = False

    def stepped(self) -> None:
        """A step is done."""
        self.due = self._path is not None and self._replica.step % self._every == 0

    def write(self) -> None:
        """Write the file where it is due; PackageError where it cannot be written, and then it stays due."""
        if self.due:
            try:
                self._replica.save(self._path)
            except Exception as e:
                raise PackageError(f"step {self._replica.step} is done, its checkpoint is not written: {e}") from e
            self.due = False
