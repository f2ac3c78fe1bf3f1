"""How a kernel is written."""
