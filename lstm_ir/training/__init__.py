"""Gradients, optimizers, programs that train and programs that keep state."""
