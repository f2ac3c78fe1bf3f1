"""Kernels for GPUs."""
