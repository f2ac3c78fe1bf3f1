"""Kernels for `scan` on CPUs and GPUs; docs/kernels.md describes the method."""
