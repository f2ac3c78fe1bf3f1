"""The only loop: its op, its builder and its gradient."""
