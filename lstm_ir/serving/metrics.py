"""Figures of a server for Prometheus: requests by model and status, what waits, calls and their rows, sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lstm_ir.serving.batcher import Batcher
from lstm_ir.serving.limits import Budget
from lstm_ir.serving.served_model import ServedModel
from lstm_ir.serving.sessions import Sessions


class Metrics:
    """A registry of its own, so that two servers of one process do not meet."""

    def __init__(self, models: Mapping[str, ServedModel], budget: Budget) -> None:
        import prometheus_client as prometheus

        self.registry = prometheus.CollectorRegistry()
        self._requests = prometheus.Counter(
            "lstm_ir_requests", "Requests and messages that were answered", ["model", "status"], registry=self.registry
        )
        self._seconds = prometheus.Histogram(
            "lstm_ir_request_seconds", "From the body's end to the answer", ["model"], registry=self.registry,
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
        )  # fmt: skip
        self.streams = prometheus.Gauge("lstm_ir_streams", "Open streams", registry=self.registry)
        self.registry.register(_Collector(models, budget))

    def answered(self, model: str, status: int, seconds: float | None) -> None:
        """One request to a model that exists; seconds: None where its body did not come."""
        self._requests.labels(model, str(status)).inc()
        if seconds is not None:
            self._seconds.labels(model).observe(seconds)

    def text(self) -> tuple[bytes, str]:
        """The page, and its content type."""
        import prometheus_client as prometheus

        return prometheus.generate_latest(self.registry), prometheus.CONTENT_TYPE_LATEST


class _Collector:
    """What batchers and sessions count themselves, looked at when the page is asked for."""

    def __init__(self, models: Mapping[str, ServedModel], budget: Budget) -> None:
        self._models, self._budget = models, budget

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        def of(server: Batcher | Sessions) -> dict[str, float]:
            c = server.counters
            found: dict[str, float] = {
                "accepted": c.accepted, "refused": c.refused, "expired": c.expired, "calls": c.groups,
                "call_requests": c.jobs, "call_rows": c.rows,
            }  # fmt: skip
            return found | ({"sessions_evicted": server.evicted} if isinstance(server, Sessions) else {})

        counters = {
            "accepted": "Requests that were queued", "refused": "Requests for which the queue had no room",
            "expired": "Requests whose deadline passed in the queue", "calls": "Calls of the executable",
            "call_requests": "Requests in these calls", "call_rows": "Rows in these calls",
            "sessions_evicted": "Sessions that were closed since they were idle",
        }  # fmt: skip
        counts = {name: of(model.server) for name, model in self._models.items()}
        for what, text in counters.items():
            family = CounterMetricFamily(f"lstm_ir_{what}", text, labels=["model"])
            for name, found in counts.items():
                if what in found:
                    family.add_metric([name], found[what])
            yield family
        waiting = GaugeMetricFamily("lstm_ir_waiting", "Requests whose call has not begun", labels=["model"])
        sessions = GaugeMetricFamily("lstm_ir_sessions", "Open sessions", labels=["model"])
        for name, model in self._models.items():
            waiting.add_metric([name], model.server.waiting)
            if isinstance(model.server, Sessions):
                sessions.add_metric([name], len(model.server))
        yield waiting
        yield sessions
        yield GaugeMetricFamily("lstm_ir_pending_bytes", "Bytes of bodies that are held", value=self._budget.held)
