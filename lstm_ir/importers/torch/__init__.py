"""Modules of PyTorch as graphs: `li.from_torch`, and trained weights back: `li.to_torch`."""
