"""Whole models of the benchmark, each for this project, torch, onnxruntime and JAX."""
