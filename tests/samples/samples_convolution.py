"""Samples of convolutions, stencils and pools; expected values by loops over places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, case, data, of

import lstm_ir as li
from lstm_ir.ops.primitive.stencil import Taps, stencil, stencil_grad

NUMBERS = (*FLOATS, *INTS)
Pairs = tuple[tuple[int, int], ...]
Ints = tuple[int, ...]


def _convolved(x: Array, w: Array, strides: Ints, pads: Pairs, dilations: Ints, groups: int) -> Array:
    """The definition, by loops."""
    (n, _, *sizes), (o, each, *taps) = x.shape, w.shape
    rank = len(sizes)
    steps = [(sizes[a] + sum(pads[a]) - (taps[a] - 1) * dilations[a] - 1) // strides[a] + 1 for a in range(rank)]
    out = np.zeros((n, o, *steps), x.dtype)
    for f in range(o):
        first = f // (o // groups) * each
        for t in np.ndindex(*steps):
            for k in np.ndindex(*taps):
                at = [t[a] * strides[a] + k[a] * dilations[a] - pads[a][0] for a in range(rank)]
                if all(0 <= i < size for i, size in zip(at, sizes, strict=True)):
                    seen = x[(np.s_[:], np.s_[first : first + each], *at)]
                    out[(np.s_[:], f, *t)] += (seen * w[(f, np.s_[:], *k)]).sum(1, dtype=x.dtype)
    return out


def _line(x: Array, w: Array, stride: int, low: int, high: int, dilation: int, groups: int) -> Array:
    return _convolved(x, w, (stride,), ((low, high),), (dilation,), groups)


@of("convolution")
def _convolution() -> Iterator[Sample]:
    forms = [(1, 0, 0, 1, 1), (2, 1, 2, 1, 1), (1, 2, 0, 2, 1), (3, 1, 1, 1, 2), (2, 4, 3, 2, 2)]
    for k in NUMBERS:
        x, w, v = (data("conv x", k, (2, 4, 11)), data("conv w", k, (6, 4, 3)), data("conv v", k, (6, 2, 3)))
        yield case(
            f"convolution {k}",
            lambda x, w, v: tuple(li.conv1d(x, w if g == 1 else v, s, (a, b), d, g) for s, a, b, d, g in forms),
            [x, w, v],
            lambda x, w, v: tuple(_line(x, w if g == 1 else v, s, a, b, d, g) for s, a, b, d, g in forms),
            kind="summed",
        )
    for N, L in ((3, 11), (1, 3), (0, 4)):
        yield case(
            f"convolution dynamic {N} {L}",
            lambda x, w: (li.conv1d(x, w, padding=1), li.conv1d(x, w, 2, (2, 0))),
            [data("conv x", "f64", (N, 5, L)), data("conv w", "f64", (7, 5, 3))],
            lambda x, w: (_line(x, w, 1, 1, 1, 1, 1), _line(x, w, 2, 2, 0, 1, 1)),
            shapes=[("N", 5, "L")],
            kind="summed",
        )
    yield case(
        "convolution wide and negative padding",
        lambda x, w: (li.conv1d(x, w, padding=(5, 2)), li.conv1d(x, w, padding=-2), li.conv1d(x, w, 2, (-1, 4))),
        [data("conv x", "f64", (2, 4, 11)), data("conv w", "f64", (6, 4, 3))],
        lambda x, w: (
            _line(x, w, 1, 5, 2, 1, 1),
            _line(x[:, :, 2:-2], w, 1, 0, 0, 1, 1),
            _line(x[:, :, 1:], w, 2, 0, 4, 1, 1),
        ),
        kind="summed",
    )
    yield case(
        "convolution of two axes",
        lambda x, w, v, b: (
            li.conv2d(x, w, padding=(1, (2, 0)), bias=b),
            li.conv2d(x, v, (1, 2), ((0, 1), (1, 0)), (2, 1), 2),
        ),
        [
            data("conv x", "f64", (2, 4, 5, 7)),
            data("conv w", "f64", (3, 4, 2, 3)),
            data("conv v", "f64", (6, 2, 2, 3)),
            data("conv b", "f64", (3,)),
        ],
        lambda x, w, v, b: (
            _convolved(x, w, (1, 1), ((1, 1), (2, 0)), (1, 1), 1) + b[:, None, None],
            _convolved(x, v, (1, 2), ((0, 1), (1, 0)), (2, 1), 2),
        ),
        shapes=[("N", 4, "H", "W")],
        kind="summed",
    )


def _transposed(x: Array, w: Array, strides: Ints, pads: Pairs, more: Ints, dilations: Ints, groups: int) -> Array:
    """Each product added where it goes, by loops."""
    (n, c, *steps), (_, each, *taps) = x.shape, w.shape
    rank = len(steps)
    sizes = [
        (steps[a] - 1) * strides[a] - sum(pads[a]) + (taps[a] - 1) * dilations[a] + 1 + more[a] for a in range(rank)
    ]
    out = np.zeros((n, each * groups, *sizes), x.dtype)
    for i in range(c):
        group = i // (c // groups)
        for o in range(each):
            for t in np.ndindex(*steps):
                for k in np.ndindex(*taps):
                    at = [t[a] * strides[a] + k[a] * dilations[a] - pads[a][0] for a in range(rank)]
                    if all(0 <= p < size for p, size in zip(at, sizes, strict=True)):
                        out[(np.s_[:], group * each + o, *at)] += x[(np.s_[:], i, *t)] * w[(i, o, *k)]
    return out


@of("convolution_transpose")
def _convolution_transpose() -> Iterator[Sample]:
    for k in NUMBERS:
        yield case(
            f"convolution_transpose {k}",
            lambda x, w: (
                li.conv_transpose1d(x, w),
                li.conv_transpose1d(x, w, 3, (1, 2), 2),
                li.conv_transpose1d(x, w, 2, 1, 1, groups=2, dilation=3),
            ),
            [data("transposed x", k, (2, 4, 5)), data("transposed w", k, (4, 3, 2))],
            lambda x, w: (
                _transposed(x, w, (1,), ((0, 0),), (0,), (1,), 1),
                _transposed(x, w, (3,), ((1, 2),), (2,), (1,), 1),
                _transposed(x, w, (2,), ((1, 1),), (1,), (3,), 2),
            ),
            kind="summed",
        )
    for N, H, W in ((2, 3, 5), (0, 1, 1)):
        yield case(
            f"convolution_transpose dynamic {N} {H} {W}",
            lambda x, w: li.conv_transpose2d(x, w, (2, 1), ((0, 1), 1), (1, 0)),
            [data("transposed x", "f64", (N, 4, H, W)), data("transposed w", "f64", (4, 3, 2, 3))],
            lambda x, w: _transposed(x, w, (2, 1), ((0, 1), (1, 1)), (1, 0), (1, 1), 1),
            shapes=[("N", 4, "H", "W")],
            kind="summed",
        )


# A stride of 2 down and 3 across in 7 x 9 places; its gradient; edges of which one is cut off.
TAPS = Taps((0, 1, 0), (0, 2, 1), (2, 3), low=(1, -2), high=(0, 1))
TURNED = Taps((0, 3, 1), (4, 0, 1), spacing=(2, 3), low=(3, 2), high=(0, 3))
NEAR = Taps((0, 2, 1), (3, 0, 1), low=(1, 1), high=(0, -1))


def _places(x: Array, taps: Taps, height: int, width: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(i, j, k, row, column) of all that is read and lies in x."""
    for i, j, k in np.ndindex(height, width, len(taps.rows)):
        at = [i * taps.strides[0] + taps.rows[k] - taps.low[0], j * taps.strides[1] + taps.columns[k] - taps.low[1]]
        if all(a % by == 0 for a, by in zip(at, taps.spacing, strict=True)):
            row, column = (a // by for a, by in zip(at, taps.spacing, strict=True))
            if 0 <= row < x.shape[3] and 0 <= column < x.shape[4]:
                yield i, j, k, row, column


def _stencil_by_loops(x: Array, w: Array, taps: Taps, height: int, width: int) -> Array:
    out = np.zeros((*x.shape[:2], w.shape[1], height, width), x.dtype)
    for i, j, k, row, column in _places(x, taps, height, width):
        for m in range(w.shape[1]):
            out[:, :, m, i, j] += (x[:, :, :, row, column] * w[:, m, :, k]).sum(-1, dtype=x.dtype)
    return out


def _stencil_grad_by_loops(x: Array, ct: Array, taps: Taps) -> Array:
    out = np.zeros((x.shape[1], ct.shape[2], x.shape[2], len(taps.rows)), x.dtype)
    for i, j, k, row, column in _places(x, taps, *ct.shape[3:]):
        for m in range(ct.shape[2]):
            out[:, m, :, k] += (x[:, :, :, row, column] * ct[:, :, m : m + 1, i, j]).sum(0, dtype=x.dtype)
    return out


_FORMS = {
    "stride": (TAPS, (4, 9), (2, 2)), "spacing": (TURNED, (3, 2), (5, 5)), "near": (NEAR, (4, 6), (3, 3)),
    # Results that leave places of the operand unread.
    "few of a stride": (TAPS, (4, 9), (1, 1)), "few of a spacing": (replace(NEAR, spacing=(1, 2)), (4, 6), (3, 1)),
}  # fmt: skip


@of("stencil")
def _stencil() -> Iterator[Sample]:
    for form, (taps, sizes, steps) in _FORMS.items():
        for k, each in (*((k, 2) for k in NUMBERS), ("f64", 1)):
            yield case(
                f"stencil {form} {k} {each}",
                partial(stencil, taps=taps, height=steps[0], width=steps[1]),
                [data("stencil x", k, (2, 3, each, *sizes)), data("stencil w", k, (3, 2, each, 3))],
                partial(_stencil_by_loops, taps=taps, height=steps[0], width=steps[1]),
                kind="summed",
            )


@of("stencil_grad")
def _stencil_grad() -> Iterator[Sample]:
    for form, (taps, sizes, steps) in _FORMS.items():
        for k, each in (*((k, 2) for k in NUMBERS), ("f64", 1)):
            yield case(
                f"stencil_grad {form} {k} {each}",
                partial(stencil_grad, taps=taps),
                [data("stencil x", k, (2, 3, each, *sizes)), data("stencil ct", k, (2, 3, 2, *steps))],
                partial(_stencil_grad_by_loops, taps=taps),
                kind="summed",
            )


def _windows(x: Array, taps: Ints, strides: Ints, pads: Pairs, dilations: Ints, steps: Ints) -> Iterator[tuple]:  # type: ignore[type-arg]
    """Of each step what its window sees of x, and how many places of it are in x with its padding."""
    sizes = x.shape[2:]
    for t in np.ndindex(*steps):
        seen, count = [], 0
        for k in np.ndindex(*taps):
            at = [t[a] * strides[a] + k[a] * dilations[a] - pads[a][0] for a in range(len(taps))]
            count += all(p < n + high for p, n, (_, high) in zip(at, sizes, pads, strict=True))
            if all(0 <= p < n for p, n in zip(at, sizes, strict=True)):
                seen.append(x[(..., *at)])
        yield t, np.stack(seen), count


def _largest(x: Array, taps: Ints, strides: Ints, pads: Pairs, dilations: Ints, steps: Ints) -> Array:
    out = np.zeros((*x.shape[:2], *steps), x.dtype)
    for t, seen, _ in _windows(x, taps, strides, pads, dilations, steps):
        out[(..., *t)] = seen.max(0)
    return out


@of("max_pool")
def _max_pool() -> Iterator[Sample]:
    for k in NUMBERS:
        yield case(
            f"max_pool {k}",
            lambda x: (li.max_pool1d(x, 3), li.max_pool1d(x, 2, 3, (0, 1)), li.max_pool1d(x, 3, 2, 1, 2, True)),
            [data("pool", k, (2, 3, 10))],
            lambda x: (
                _largest(x, (3,), (3,), ((0, 0),), (1,), (3,)),
                _largest(x, (2,), (3,), ((0, 1),), (1,), (4,)),
                _largest(x, (3,), (2,), ((1, 1),), (2,), (5,)),
            ),
            kind="exact",
        )
    yield case(
        "max_pool dynamic",
        lambda x: li.max_pool2d(x, (2, 3), (1, 2), ((1, 0), (1, 1))),
        [data("pool", "f64", (2, 3, 4, 5))],
        lambda x: _largest(x, (2, 3), (1, 2), ((1, 0), (1, 1)), (1, 1), (4, 3)),
        shapes=[("N", 3, "H", "W")],
        kind="exact",
    )


def _averaged(x: Array, taps: Ints, strides: Ints, pads: Pairs, steps: Ints, counted: bool) -> Array:
    out = np.zeros((*x.shape[:2], *steps), x.dtype)
    for t, seen, count in _windows(x, taps, strides, pads, (1,) * len(taps), steps):
        out[(..., *t)] = seen.sum(0) / (count if counted else len(seen))
    return out


@of("avg_pool")
def _avg_pool() -> Iterator[Sample]:
    for k in FLOATS:
        yield case(
            f"avg_pool {k}",
            lambda x: (
                li.avg_pool1d(x, 3),
                li.avg_pool1d(x, 4, 3, 2, True),
                li.avg_pool1d(x, 2, 3, (0, 1), count_include_pad=False),
            ),
            [data("pool", k, (2, 3, 10))],
            lambda x: (
                _averaged(x, (3,), (3,), ((0, 0),), (3,), True),
                _averaged(x, (4,), (3,), ((2, 2),), (4,), True),
                _averaged(x, (2,), (3,), ((0, 1),), (4,), False),
            ),
            kind="summed",
        )
    yield case(
        "avg_pool dynamic",
        lambda x: li.avg_pool2d(x, (2, 3), (1, 2), ((1, 0), (1, 1)), count_include_pad=False),
        [data("pool", "f64", (2, 3, 4, 5))],
        lambda x: _averaged(x, (2, 3), (1, 2), ((1, 0), (1, 1)), (4, 3), False),
        shapes=[("N", 3, "H", "W")],
        kind="summed",
    )


def _in(*shape: int | str, k: str = "f32") -> li.Value:
    return li.input("x", shape, k)


bad_of("convolution", (lambda: li.conv1d(_in(2, 4, 9), _in(6, 3, 3)), "x has 4 channels, w takes 3"))
bad_of("convolution", (lambda: li.conv1d(_in(2, 4, 2), _in(6, 4, 3)), "a window of 3 does not fit 2"))
bad_of("convolution", (lambda: li.conv1d(_in(2, 4, 9), _in(5, 2, 3), groups=2), "5 kernels do not divide into 2"))
bad_of("convolution", (lambda: li.conv1d(_in(2, 4, 9), _in(6, 4, 3), stride=0), "are 1 or more"))
bad_of("convolution", (lambda: li.conv1d(_in(2, 4, 9), _in(6, 4, "K")), "the kernel size is K"))
bad_of("convolution", (lambda: li.conv2d(_in(2, 4, 9), _in(6, 4, 3)), "takes x and w of rank 4"))
bad_of("convolution", (lambda: li.conv2d(_in(2, 4, 9, 9), _in(6, 4, 3, 3), (1, 1, 1)), "a whole number or 2 of them"))
bad_of("convolution", (lambda: li.conv2d(_in(2, 4, 9, 9), _in(6, 4, 3, 3), padding=((1, 1),)), "for each of 2 axes"))
bad_of("convolution_transpose", (lambda: li.conv_transpose1d(_in(2, 4, 9), _in(3, 4, 3)), "4 channels, but 3 kernels"))
bad_of(
    "convolution_transpose",
    (lambda: li.conv_transpose1d(_in(2, 4, 9), _in(4, 3, 3), groups=3), "4 kernels do not divide into 3 groups"),
)


def _biased(build: Callable[..., li.Value], *shape: int) -> Callable[[], li.Value]:
    return lambda: build(_in(2, 3, 9), _in(3, 3, 3), bias=_in(*shape))


for op, build in (("convolution", li.conv1d), ("convolution_transpose", li.conv_transpose1d)):
    for wrong in ((6,), (1,), ()):
        bad_of(op, (_biased(build, *wrong), r"bias is f32\[.*\]; expected one number for each kernel, f32\[3\]"))
bad_of(
    "convolution_transpose",
    (lambda: li.conv_transpose1d(_in(2, 3, 9), _in(3, 3, 3), padding=50), "50 and 50 leave nothing of 9 places"),
)
bad_of("stencil", (lambda: stencil(_in(2, 3, 1, 4, 6), _in(3, 2, 1, 3), NEAR, 4, 3), "4 rows from 2 on do not fit"))
BOTH_WAYS = replace(NEAR, strides=(2, 1), spacing=(3, 1))
bad_of("stencil", (lambda: stencil(_in(2, 3, 1, 4, 6), _in(3, 2, 1, 3), BOTH_WAYS, 2, 3), "one of both is 1"))
bad_of("stencil_grad", (lambda: stencil_grad(_in(2, 3, 1, 4, 6), _in(1, 3, 2, 3, 3), NEAR), "2 rows of lhs, 1 of ct"))
bad_of("stencil", (lambda: stencil(_in(2, 3, 1, 4, 6), _in(3, 2, 1, 2), NEAR, 3, 3), "for 2 taps"))
bad_of("max_pool", (lambda: li.max_pool1d(_in(2, 3, 9), 3, padding=3), "paddings 3 and 3 are not in 0..2"))
bad_of("max_pool", (lambda: li.max_pool2d(_in(2, 3, 9), 3), "takes .* of rank 4 for 2 axes"))
bad_of("max_pool", (lambda: li.max_pool1d(_in(2, 3, 2), 3), "a window of 3 does not fit 2"))
bad_of("avg_pool", (lambda: li.avg_pool1d(_in(2, 3, 9, k="i32"), 3), "takes float elements, got i32"))
bad_of("avg_pool", (lambda: li.avg_pool1d(_in(2, 3, 9), 3, 0), "are 1 or more"))
