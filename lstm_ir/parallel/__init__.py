"""Training by several processes: each computes the gradients of its rows, all apply their average."""

from lstm_ir.parallel.trainer import Trainer as Trainer

__all__ = ["Trainer"]
