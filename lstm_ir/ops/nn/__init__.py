"""Layers and losses, made of other ops."""
