"""The only loop: its op, its builder and its gradient. Importing this registers the op."""

from lstm_ir.ops.scan import op
