"""How a kernel stands in the module."""
