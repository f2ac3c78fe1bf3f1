"""This project beside torch, onnxruntime and JAX."""
