"""Dropout and its kin: nothing in inference; by keys of the graph's own generator where the model trains."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value


@taken("Dropout", "rate", masks=True)
def dropout(c: LayerCall) -> Value:
    """A share of the elements is 0 in training, the others grow; along axes of size 1 in noise_shape all do alike."""
    x, rate = c.x, c.real("rate")
    if not c.training or rate == 0:
        return x
    shape = _noise_shape(c, x)
    return li.dropout(x, rate, c.key()) if shape == x.shape else x * li.dropout(li.ones(shape, x.dtype), rate, c.key())


def _noise_shape(c: LayerCall, x: Value) -> tuple[Dim, ...]:
    """The shape of what is drawn: that of x, or 1 where noise_shape says so."""
    given = c.get("noise_shape")
    if given is None:
        return x.shape
    if not isinstance(given, (list, tuple)) or len(given) != x.rank:
        raise NodeRefusedError(f"noise_shape is {given!r:.40}, for {x.type}")
    found = tuple(d if n is None or n == d else 1 if n == 1 else None for n, d in zip(given, x.shape, strict=True))
    if None in found:
        raise NodeRefusedError(f"noise_shape is {given!r:.40}, for {x.type}")
    return tuple(d for d in found if d is not None)


def spatial(name: str) -> None:
    """Register a dropout of whole channels."""

    @taken(name, "rate data_format", masks=True)
    def build(c: LayerCall) -> Value:
        x, rate = c.x, c.real("rate")
        if not c.training or rate == 0:
            return x
        kept = (0, x.rank - 1) if c.channels_last else (0, 1)
        shape = tuple(d if k in kept else 1 for k, d in enumerate(x.shape))
        return x * li.dropout(li.ones(shape, x.dtype), rate, c.key())


for _name in ("SpatialDropout1D", "SpatialDropout2D"):
    spatial(_name)


@taken("GaussianNoise", "stddev", masks=True)
def gaussian_noise(c: LayerCall) -> Value:
    """Noise is added in training."""
    x, deviation = c.x, c.real("stddev")
    if not c.training or deviation == 0:
        return x
    return x + li.random_normal(c.key(), x.shape, 0.0, deviation, x.dtype)


@taken("GaussianDropout", "rate", masks=True)
def gaussian_dropout(c: LayerCall) -> Value:
    """Multiplied with noise around 1 in training."""
    x, rate = c.x, c.real("rate")
    if not c.training or rate == 0:
        return x
    return x * li.random_normal(c.key(), x.shape, 1.0, (rate / (1 - rate)) ** 0.5, x.dtype)


_ALPHA = 1.6732632423543772848170429916717  # of SELU, and its scale
_SCALE = 1.0507009873554804934193349852946


@taken("AlphaDropout", "rate", masks=True)
def alpha_dropout(c: LayerCall) -> Value:
    """What is dropped becomes -1.758, all is scaled: mean and variance stay (Klambauer et al. 2017)."""
    x, rate = c.x, c.real("rate")
    if not c.training or rate == 0:
        return x
    kept = li.dropout(li.ones(_noise_shape(c, x), x.dtype), rate, c.key()) > 0.0
    low = -_ALPHA * _SCALE
    a = ((1 - rate) * (1 + rate * low**2)) ** -0.5
    y: Value = li.where(kept, x, li.full(x.shape, low, x.dtype)) * a - a * low * rate
    return y
