"""IREE's compiler in a child process, and what is kept of its work."""
