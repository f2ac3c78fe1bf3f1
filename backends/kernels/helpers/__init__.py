"""Helper threads' part of a kernel: what the caller publishes, and where."""
