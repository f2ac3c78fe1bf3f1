"""One rule for each op: what it becomes in the module."""
