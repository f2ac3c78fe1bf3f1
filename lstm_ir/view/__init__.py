"""Graphs and profiles as pictures."""
