"""Peers held to the processor level that ours is compiled for, as far as they let themselves be held."""

from __future__ import annotations

import os

from lstm_ir.backends.run.devices import resolve

_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
VARIABLES = (*_AVX2, "XLA_FLAGS")
# What a target of x86-64 lacks -> what holds torch, and XLA's word; the first that fits.
_LEVELS = (
    (
        "avx2",
        {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
        "--xla_cpu_max_isa=SSE4_2",
    ),
    ("avx512f", _AVX2, "--xla_cpu_max_isa=AVX2"),
)


def hold(target: str, threads: int | None) -> str:
    """Set the variables that torch and XLA read when they are loaded, for processes to come too; what was held.

    onnxruntime and NumPy's BLAS have no such variable: they go on with all that the processor has.
    """
    said = []
    variables, flag = _of(target)
    os.environ.update(variables)
    flags = [flag] if flag else []
    if flag:
        said.append("torch and JAX are held to it, onnxruntime and NumPy's product are not")
    if threads == 1:
        flags.append("--xla_cpu_multi_thread_eigen=false")
    if flags:
        os.environ["XLA_FLAGS"] = " ".join([*filter(None, [os.environ.get("XLA_FLAGS")]), *flags])
    return "; ".join(said)


def _of(target: str) -> tuple[dict[str, str], str]:
    """Variables and XLA's flag. None for the processor that this runs on, and for another architecture."""
    info = resolve(target).info
    if target not in ("cpu", "cpu:host") and info.triple.startswith("x86_64"):
        for feature, variables, flag in _LEVELS:
            if feature not in info.features:
                return variables, flag
    return {}, ""
