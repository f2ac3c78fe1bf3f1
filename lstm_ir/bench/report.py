"""The benchmark's figures as a Markdown table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from lstm_ir.bench.elsewhere import PACKAGE
from lstm_ir.bench.measure import NAMES, NUMBERS, WAYS

ROW, LEFT, WIDTH, TOP = 16, 250, 420, 34
SPAN = 3.0  # the axis reaches from 1/8 to 8
TONES = {False: "#4878a8", True: "#b0603c"}  # inference, training


PEERS = {"torch": "torch", "torch.compile": "torch.compile", "onnxruntime": "onnxruntime", "jax": "JAX"}


def table(points: Sequence[dict[str, Any]], peak: float) -> str:
    """One row per subject; `points` as `runs.joined` gives them. Shares of the peak are of named sizes."""
    measured = any(p["memory_mib"] for p in points)
    count = max(len(p.get("runs", [p])) for p in points)
    span = "90 % interval" if count == 1 else f"least and greatest of {count} runs"
    peers = [w for w in PEERS if w in ("torch", "onnxruntime", "jax") or any(w in p["median_ms"] for p in points)]
    heads = ["point", "names ms", "numbers ms", "package ms", *(f"{PEERS[w]} ms" for w in peers),
             f"ratio of names ({span})", "of numbers", "of package", "of peak"]  # fmt: skip
    heads += ["MiB: lstm-ir / torch"] if measured else []
    lines = [_row(heads), "|" + "---|" * len(heads)]
    for p in points:
        ratios = []
        for way in WAYS:
            low, high = p["interval"][way]
            spread = f" ({low:.2f}-{high:.2f})" if way == NAMES or count > 1 else ""
            ratios.append(f"{p['ratio'][way]:.2f}{spread}" + (" slower" if p["slower"][way] else ""))
        cells = [_milliseconds(p, w) for w in (*WAYS, *peers)]
        memory = [_memory(p["memory_mib"])] if measured else []
        lines.append(_row([p["point"], *cells, *ratios, f"{p['gflops'][NAMES] / peak:.0%}", *memory]))
    return "\n".join(lines) + "\n"


def _milliseconds(p: Mapping[str, Any], who: str) -> str:
    """The median; with several runs their spread, in percent of it."""
    if who not in p["median_ms"]:
        return "-"
    middle = p["median_ms"][who]
    low, high = p.get("range_ms", {}).get(who, (middle, middle))
    return f"{middle:.3g}" + (f" (±{(high - low) / 2 / middle:.0%})" if "range_ms" in p else "")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _memory(used: Mapping[str, float]) -> str:
    return " / ".join(f"{used[w]:.0f}" if w in used else "-" for w in ("lstm-ir", "torch"))


def picture(points: Sequence[dict[str, Any]], title: str) -> str:
    """SVG: each point's ratios on a logarithmic axis: a dot for named sizes, with its interval, a ring for numbers,
    a square for the package."""
    height = TOP + ROW * len(points) + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="16" font-size="12">{escape(title)}</text>',
    ]
    for k in range(-3, 4):
        x, bold = _x(2.0**k), "#444" if k == 0 else "#ddd"
        out.append(f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{height - 24}" stroke="{bold}"/>')
        label = f"{2**k}x" if k >= 0 else f"1/{2**-k}"
        out.append(f'<text x="{x}" y="{height - 10}" text-anchor="middle">{label}</text>')
    for n, p in enumerate(points):
        y = TOP + ROW * n + ROW // 2
        low, high = (_x(v) for v in p["interval"][NAMES])
        at = {way: _x(p["ratio"][way]) for way in WAYS}
        tone = TONES[p["training"]]
        out.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{p["point"]}</text>')
        out.append(f'<line x1="{low}" x2="{high}" y1="{y}" y2="{y}" stroke="{tone}"/>')
        out.append(f'<circle cx="{at[NAMES]}" cy="{y}" r="4" fill="{tone}"/>')
        out.append(f'<circle cx="{at[NUMBERS]}" cy="{y}" r="4" fill="none" stroke="{tone}"/>')
        out.append(f'<rect x="{at[PACKAGE] - 3}" y="{y - 3}" width="6" height="6" fill="none" stroke="{tone}"/>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _x(ratio: float) -> float:
    part = (math.log2(max(ratio, 1e-9)) + SPAN) / (2 * SPAN)
    return round(LEFT + WIDTH * min(max(part, 0.0), 1.0), 1)
