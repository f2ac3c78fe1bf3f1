"""Where `lstm-ir` starts: without the library of the command line, one message instead of a traceback."""

from __future__ import annotations

import sys

from lstm_ir.ir.errors import MissingLibraryError
from lstm_ir.ir.foreign_errors import refusals_become


def main() -> None:
    """Run one verb and exit, as `group.main`."""
    try:
        with refusals_become(MissingLibraryError, "lstm-ir"):
            from lstm_ir.cli import group
    except MissingLibraryError as e:
        print(f"lstm-ir: {e}", file=sys.stderr)
        sys.exit(1)
    group.main()


if __name__ == "__main__":
    main()
