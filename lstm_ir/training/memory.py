"""`memory`: where loops are cut so that what their gradient saves fits a limit.

Of T steps in segments of K steps the forward pass saves c bytes of carries per segment; on the way back a segment is
run again, which saves s bytes per step while it is worked on. With a second level, segments are cut once more.

    none         T s
    (K,)         c T/K + s K                           least for K = sqrt(T c/s)
    (K1, K2)     c T/K1 + c K1/K2 + s K2               least for T/K1 = K1/K2 = (T s/c)^(1/3)

c and s are read from the gradient with short segments; whether a gradient fits is then counted of it itself. Source:
Griewank, "Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation", 1992.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from lstm_ir.ir import dims
from lstm_ir.ir.errors import DimError, GradientError
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.options import is_int
from lstm_ir.ir.pullback import Kept, Remat

UNITS = {
    "": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
PROBE = 32  # steps of the segments from which c and s are read
Build: TypeAlias = "Callable[[Remat], tuple[Graph, Kept]]"


def limit_of(op: str, memory: Any) -> int:
    """Bytes of a whole number, or of a text such as "256MiB"."""
    if is_int(memory) and memory > 0:
        return int(memory)
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", memory) if isinstance(memory, str) else None
    if found is None or found[2] not in UNITS or not float(found[1]):
        raise GradientError(f'{op}: memory is {memory!r:.80}; expected bytes, or a text such as "256MiB"')
    return int(float(found[1]) * UNITS[found[2]])


def readable(size: int) -> str:
    """Bytes as a text, rounded up to a tenth."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 * UNITS[unit]:
            break
    else:
        unit = "GiB"
    return f"{size}B" if unit == "B" else f"{math.ceil(10 * size / UNITS[unit]) / 10:g}{unit}"


def within(op: str, build: Build, memory: Any, sizes: Mapping[str, int] | None) -> Graph:
    """The gradient that fits, cut no more often than it has to be; GradientError says the least that is possible."""
    limit, env = limit_of(op, memory), _sizes(op, sizes)
    tried: list[tuple[int, Remat]] = []
    for remat in _ways(op, build, env):
        graph, kept = build(remat)
        tried.append((_bytes(op, kept.total, env), remat))
        if tried[-1][0] <= limit:
            return graph
    least, remat = min(tried, key=lambda t: t[0])
    how = "without remat" if remat is None else f"with remat={remat[0] if len(remat) == 1 else remat}"
    raise GradientError(
        f"{op}: memory is {readable(limit)}; the loops save {readable(least)} at least, {how}, "
        f"and {readable(tried[0][0])} without"
    )


def _ways(op: str, build: Build, env: Mapping[str, int]) -> Iterator[tuple[int, ...] | None]:
    """None, the best single length, the best two."""
    yield None
    _, kept = build((PROBE,))
    T = _bytes(op, lambda e: max((dims.evaluate(d, e) for d in kept.lengths), default=0), env)
    short = PROBE
    if T < 2 * PROBE:
        short = max(1, math.isqrt(T))
        _, kept = build((short,))
    own, inside = (_bytes(op, part, env) for part in (kept.outside, kept.within))
    if T < 2 or not own or not inside:
        return
    c, s = own / -(-T // short), inside / short
    best = _one(T, c, s)
    yield (best,)
    parts = max(1.0, (T * s / c) ** (1 / 3))
    near = range(max(1, round(0.8 * T / parts)), min(T, round(1.25 * T / parts)) + 1)
    first = min(near, key=lambda k: -T % k, default=T)
    second = _one(first, c, s)
    if second < first < T:
        yield (first, second)


def _one(T: int, c: float, s: float) -> int:
    """The steps of a segment for which least is saved."""
    middle = math.sqrt(T * c / s)
    near = range(max(1, int(middle / 2)), min(T, math.ceil(2 * middle)) + 1)
    return min(near, key=lambda k: c * -(-T // k) + s * k, default=T)


def _bytes(op: str, count: Callable[[Mapping[str, int]], int], env: Mapping[str, int]) -> int:
    try:
        return count(env)
    except (DimError, KeyError) as e:
        raise GradientError(f"{op}: memory needs the sizes of a call: {e}; give them: sizes={{'T': 1000}}") from None


def _sizes(op: str, sizes: Any) -> dict[str, int]:
    given = {} if sizes is None else sizes
    if not isinstance(given, Mapping) or not all(isinstance(n, str) and is_int(v) for n, v in given.items()):
        raise GradientError(f"{op}: sizes is {sizes!r:.80}; expected numbers by name: {{'T': 1000}}")
    return {n: int(v) for n, v in given.items()}
