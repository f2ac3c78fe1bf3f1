"""StableHLO text on XLA's CPU compiler, through jaxlib: a second compiler of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import lstm_ir as li

Array = np.ndarray[Any, Any]

# Of jaxlib 0.10.2: it loses what a loop of one step inside a loop of one step writes. Named as it says itself.
SIMPLIFIER = "simplify-while-loops,while-loop-simplifier"


def run(graph: li.Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of `li.lower(graph)`, compiled and run by XLA."""
    import jax
    from jax.extend import backend
    from jaxlib import xla_client as xc

    client = backend.get_backend("cpu")
    devices = xc.DeviceList(tuple(client.local_devices()[:1]))
    options = xc.CompileOptions()
    options.env_option_overrides = [("xla_disable_hlo_passes", SIMPLIFIER)]
    exe = client.compile_and_load(li.lower(graph), devices, options)
    weights = [v.node.attrs["value"].array for v in graph.weights.values()]
    with jax.enable_x64(True):
        arrays = [jax.device_put(a) for a in (*(inputs[n] for n in graph.input_names), *weights)]
        out = [np.asarray(a) for a in exe.execute(arrays)]
    return dict(zip(graph.output_names, out, strict=True))
