"""Where IREE places the tensors of a call on CPU: at offsets that are multiples of 64, of which it may assume 8.

A dispatch that is run in two places has two offsets of a buffer. Where IREE 3.13 knows no alignment of the one, a row
of a tensor, it states that of the other: with the default, 64 bytes, stores and loads of whole registers then end the
process. IREE's own flag for it, `--iree-stream-resource-min-offset-alignment=8`, places tensors at multiples of 8 as
well: vectors then lie across two lines of the cache. Measured, a GRU's training step at (100,1,128): 1.08 times
the time with numbers, 1.13 with named sizes.
"""

from __future__ import annotations

from iree.compiler import ir

_NAME = "stream.resources"
_NO_LIMIT = 2**63 - 1
# IREE's defaults but for the alignment of offsets.
_CONFIG = (
    f"#stream.resource_config<{{max_allocation_size = {_NO_LIMIT}, min_buffer_offset_alignment = 8, "
    f"max_buffer_range = {_NO_LIMIT}, min_buffer_range_alignment = 64, index_bits = 64, memory_model = Unified}}>"
)


def place(module: ir.Module) -> None:
    """Say it of a module."""
    module.operation.attributes[_NAME] = ir.Attribute.parse(_CONFIG)
