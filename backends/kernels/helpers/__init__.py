"""Helper threads' part of a kernel: what the caller offers them, and where."""
