"""Streaming: programs that keep state between calls, and what of a graph may be cut into calls."""
