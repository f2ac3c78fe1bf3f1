"""Random modules of PyTorch: results and gradients of what `from_torch` makes of them beside PyTorch's own.

Recurrent layers of every form, packed ones among them, between convolutions, norms, pools, attention, cells in loops
and shapes; the numbers of rows and steps stay open, and calls have others than the example. A share is compiled. What
is refused by name is counted, not compared.
"""

from __future__ import annotations

import warnings

import campaign
import numpy as np

import lstm_ir as li

Rng = np.random.Generator
SHAPES = ((3, 7), (2, 5), (4, 2), (1, 6), (2, 1))  # rows and steps of calls


def prepare() -> None:
    """PyTorch is imported before the first trial's time begins."""
    import torch_random  # noqa: F401


def trial(rng: Rng, number: int) -> str:
    from torch_cases import gradients, held
    from torch_random import call, drawn, unrolled

    module, d, width = drawn(rng)
    words = "; ".join(d.words)
    sizes = {"x": ("B", "T", None)} | ({"lengths": ("B",)} if d.lengths else {})
    example = call(d, width, *SHAPES[0])
    calls = [call(d, width, *SHAPES[k]) for k in rng.choice(range(1, len(SHAPES)), 2, replace=False)]
    compiled = rng.random() < 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            targets = ("cpu",) if compiled else ()
            graph = held(module, example, sizes, calls, rng, grad=False, targets=targets)
            with unrolled():
                gradients(graph, module, calls[-1], rng, targets)
        except li.ModelError as e:
            assert e.refusals, f"{words}: {e}"
            return "refused"
        except Exception as e:
            raise AssertionError(words) from e
    return "compiled" if compiled else "results and gradients"


if __name__ == "__main__":
    campaign.main(trial, seconds=90, prepare=prepare)
