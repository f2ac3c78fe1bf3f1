"""The benchmark's figures as a Markdown table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

ROW, LEFT, WIDTH, TOP = 16, 250, 420, 34
SPAN = 3.0  # the axis reaches from 1/8 to 8
TONES = {False: "#4878a8", True: "#b0603c"}  # inference, training


def table(points: Sequence[dict[str, Any]], peak: float) -> str:
    """One row per point; `points` as `Result.as_json` gives them."""
    measured = any(p["memory_mib"] for p in points)
    lines = [
        "| point | lstm-ir ms | torch ms | onnxruntime ms | JAX ms | ratio (90 % interval) | GFLOP/s | of peak |"
        + (" MiB: lstm-ir / torch |" if measured else ""),
        "|---|---|---|---|---|---|---|---|" + ("---|" if measured else ""),
    ]
    for p in points:
        ms = p["median_ms"]
        cells = [f"{ms[w]:.3g}" if w in ms else "-" for w in ("torch", "onnxruntime", "jax")]
        low, high = p["interval"]
        ratio = f"{p['ratio']:.2f} ({low:.2f}-{high:.2f})" + (" slower" if p["slower"] else "")
        lines.append(
            f"| {p['point']} | {ms['lstm-ir']:.3g} | {' | '.join(cells)} | {ratio} "
            f"| {p['gflops']:.0f} | {p['gflops'] / peak:.0%} |" + (f" {_memory(p['memory_mib'])} |" if measured else "")
        )
    return "\n".join(lines) + "\n"


def _memory(used: Mapping[str, float]) -> str:
    return " / ".join(f"{used[w]:.0f}" if w in used else "-" for w in ("lstm-ir", "torch"))


def picture(points: Sequence[dict[str, Any]], title: str) -> str:
    """SVG: each point's ratio and its interval on a logarithmic axis."""
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
        low, high = (_x(v) for v in p["interval"])
        tone = TONES[p["training"]]
        out.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{p["point"]}</text>')
        out.append(f'<line x1="{low}" x2="{high}" y1="{y}" y2="{y}" stroke="{tone}"/>')
        out.append(f'<circle cx="{_x(p["ratio"])}" cy="{y}" r="4" fill="{tone}"/>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _x(ratio: float) -> float:
    part = (math.log2(max(ratio, 1e-9)) + SPAN) / (2 * SPAN)
    return round(LEFT + WIDTH * min(max(part, 0.0), 1.0), 1)
