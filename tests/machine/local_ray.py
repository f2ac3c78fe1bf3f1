"""A Ray of one machine for tests: on loopback, without dashboard and usage reports, ended by whoever started it."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from child import environment
from device import need

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # then nodes have the loopback address
    "RAY_AUTH_MODE": "disabled",  # else a token is written into the home folder
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_enable_metrics_collection": "0",
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # it would end workers where other tests take the memory
}


@contextmanager
def running(cpus: int) -> Iterator[Any]:
    """The module `ray`, connected to a cluster of its own with so many processors and a folder that goes with it."""
    need("ray")
    before = dict(os.environ)
    os.environ.update(QUIET, PYTHONPATH=environment()["PYTHONPATH"])
    try:
        with tempfile.TemporaryDirectory(prefix="lir") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, of its libraries
            import ray

            ray.init(
                num_cpus=cpus, include_dashboard=False, _node_ip_address="127.0.0.1", _temp_dir=folder,
                log_to_driver=False, logging_level="ERROR", object_store_memory=200 << 20,
            )  # fmt: skip
            try:
                yield ray
            finally:
                ray.shutdown()
    finally:
        os.environ.clear()
        os.environ.update(before)
