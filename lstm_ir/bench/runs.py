"""Several runs of a list as one: medians over the runs, and the spread between them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from lstm_ir.ir.output_file import replacing

Figures = dict[str, Any]


def joined(runs: Sequence[Figures]) -> Figures:
    """The figures of one subject from all its runs, each as `Result.as_json` gives them.

    Times, ratios and rates are medians over the runs. The interval of a ratio is the least and the greatest of the
    runs, where there are several, else that of the one run. A way is slower where more than half of the runs say so.
    Errors and memory are the largest, compile times those of the first run, the only one that does not read the
    cache. `runs` holds each run as it was.
    """
    first = runs[0]
    if len(runs) == 1:
        return {**first, "runs": list(runs)}
    out = dict(first)
    for key in ("median_ms", "spread_ms", "ratio", "gflops"):
        out[key] = {w: statistics.median(values) for w, values in _by_who(runs, key).items()}
    for key in ("errors", "memory_mib"):
        out[key] = {w: max(values) for w, values in _by_who(runs, key).items()}
    ratios = _by_who(runs, "ratio")
    out["interval"] = {w: [min(values), max(values)] for w, values in ratios.items()}
    out["slower"] = {w: 2 * sum(values) > len(values) for w, values in _by_who(runs, "slower").items()}
    out["slower_runs"] = {w: sum(values) for w, values in _by_who(runs, "slower").items()}
    out["range_ms"] = {w: [min(values), max(values)] for w, values in _by_who(runs, "median_ms").items()}
    peers = [w for w in out["median_ms"] if w not in out["ratio"]]
    out["best"] = min(peers, key=out["median_ms"].__getitem__)
    out["missing"] = {w: why for r in runs for w, why in r["missing"].items()}
    return {**out, "runs": list(runs)}


def _by_who(runs: Sequence[Figures], key: str) -> dict[str, list[Any]]:
    """The values of all runs that have one, by runner."""
    found: dict[str, list[Any]] = {}
    for r in runs:
        for who, value in r[key].items():
            found.setdefault(who, []).append(value)
    return found


def save(points: Sequence[Figures], path: str, about: Mapping[str, Any]) -> None:
    """Figures as JSON."""
    text = json.dumps({**about, "points": list(points)}, indent=1)
    with replacing(path) as f:
        f.write(text.encode())
