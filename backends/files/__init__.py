"""Packages, weights and states on disk."""
