"""The graph that a package was made of: its text, the arrays that the text names by hash, and how it was compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lstm_ir.ir.errors import PackageError

if TYPE_CHECKING:
    from lstm_ir.ir.program import Program

Array = np.ndarray[Any, Any]
TEXT_LIMIT = 64 << 20  # bytes of a graph's text


class Recipe(NamedTuple):
    """What a package was compiled for: target words, and options that change modules. Paths and flags are none."""

    targets: tuple[str, ...]
    options: Mapping[str, Any]


class PackedGraph(NamedTuple):
    """A program as text. `constants` are the arrays that the text names by hash and that are no weight and no state."""

    text: str
    constants: Mapping[str, Array]  # by SHA-256, as the text has it
    recipe: Recipe

    @classmethod
    def of(cls, program: Program, targets: Sequence[str], options: Mapping[str, Any]) -> PackedGraph:
        """The program's text, without the places of its lines in somebody's files."""
        from lstm_ir.ir.printer import named_by_hash, print_program  # who loads a package does without

        text = print_program(program)
        if len(text.encode()) > TEXT_LIMIT:
            raise PackageError(
                f"the graph's text has {len(text.encode())} bytes; at most {TEXT_LIMIT} go into a package: "
                "export with graph=False (--no-graph)"
            )
        held = {d.sha256 for d in (*program.weights.values(), *(s.initial for s in program.state.values()))}
        constants = {h: d.array for h, d in named_by_hash(program).items() if h not in held}
        return cls(text, constants, Recipe(tuple(targets), dict(options)))
