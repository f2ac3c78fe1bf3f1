"""Loops and steps that are a recurrent cell become the op of that cell."""
