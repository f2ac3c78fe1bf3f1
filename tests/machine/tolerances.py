"""How far a compiled result may lie from the NumPy meaning.

Relative to 1 or the value, with reasons.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# (dtype, device) -> tolerance of one op over up to 64 terms
ONE_OP: dict[tuple[str, str], float] = {
    ("f16", "cpu"): 1e-3,  # one rounding to 11 bits (2^-11), of a value that f32 gave to 1e-6
    ("bf16", "cpu"): 8e-3,  # one rounding to 8 bits (2^-8)
    ("f32", "cpu"): 3e-6,  # IREE's polynomials for exp, log, tanh err by 1e-7; sums round 64 times
    ("f64", "cpu"): 1e-12,  # log1p 1e-13; power multiplies the logarithm's error by up to 709
    ("f16", "vulkan"): 2e-3,  # as on the CPU, a different order of sums
    ("bf16", "vulkan"): 1.6e-2,
    ("f32", "vulkan"): 1e-5,  # SPIR-V promises 3 + 2|x| ulp for exp and 2.5 for division; power has 10
}
# Each step of a recurrence passes its error on; tanh and logistic shrink it, so it settles.
RECURRENCE = {("f32", "cpu"): 2e-5, ("f32", "vulkan"): 2e-5, ("f64", "cpu"): 1e-11}

# Of one model by two libraries, of the largest number: their kernels and exporters order sums otherwise.
BETWEEN_RUNTIMES = 1e-4

# Of one module called by two programs: another number of threads may share a sum.
SAME_MODULE = 1e-6


def name_of(a: Array) -> str:
    """The project's name of an array's element type."""
    import lstm_ir as li

    return li.DType.of(a.dtype).value


def agree(got: Array, want: Array, tolerance: dict[tuple[str, str], float], device: str) -> None:
    """Same type, shape, non-finite values and integers; floats within the tolerance."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    a, b = got.astype("f8"), want.astype("f8")
    limit = tolerance[name_of(want), device]
    np.testing.assert_allclose(a, b, rtol=limit, atol=limit)


def close(got: dict[str, Any], want: dict[str, Any], limit: float, where: Any, rounded: Any = None) -> None:
    """Where steps amplify roundings beyond `limit`, four times the error of NumPy's f32 is allowed,
    which `rounded` gives: its tanh is right to 1 ulp, a compiled one to 3."""
    for k, w in want.items():
        assert got[k].shape == w.shape, (where, k)
        largest = float(np.abs(w).max(initial=0))
        worst = float(np.abs(got[k] - w).max(initial=0))
        allowed = limit * max(largest, 1e-30)
        if worst > allowed and rounded is not None:
            allowed = 4 * float(np.abs(rounded()[k] - w).max())
        assert worst <= allowed, (where, k, worst, largest)


def wide(arrays: dict[str, Any]) -> dict[str, Any]:
    return {k: v.astype("f8") if v.dtype.kind == "f" else v for k, v in arrays.items()}
