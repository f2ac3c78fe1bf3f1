"""Recurrences that are written as Python loops over steps, as TorchScript compiles them; small, with random weights."""
# mypy: allow-subclassing-any, allow-untyped-decorators

import torch
from torch import Tensor, nn


class Cell(nn.Module):
    """h = tanh(A x + B h)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 4)


class While(Cell):
    """A counter that the program keeps."""

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """[T,B,3] and [B,4] to [B,4]."""
        t = 0
        while t < x.size(0):
            h = torch.tanh(self.a(x[t : t + 1].squeeze(0)) + self.b(h))
            t += 1
        return h


class For(Cell):
    """The rows by their numbers."""

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """[T,B,3] and [B,4] to [B,4]."""
        for t in range(x.size(0)):
            h = torch.tanh(self.a(x[t]) + self.b(h))
        return h


MODELS = {"while": While, "for": For}
