"""The stages of a graph, and which ops may occur at each; pipelines check this at the borders.

source      every op
core        no composite or foreign op: after `expand`
scheduled   primitives and scan alone: after `expand` and `decompose`
"""

from __future__ import annotations

from collections.abc import Mapping

from lstm_ir.ir.opdef import Level

SOURCE = frozenset(Level)
CORE = frozenset({Level.primitive, Level.core})
SCHEDULED = frozenset({Level.primitive})

STAGES: Mapping[str, frozenset[Level]] = {"source": SOURCE, "core": CORE, "scheduled": SCHEDULED}

REMOVES: Mapping[str, Level] = {"expand": Level.composite, "decompose": Level.core}
"""The level of which no op may be left after a pass, by the pass's name."""
