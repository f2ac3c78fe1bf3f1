"""Dropout and its kin: nothing in inference; by keys of the graph's own generator where the model trains."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import RefusedError
from lstm_ir.ir.graph import Value


@taken("Dropout", "rate", masks=True, refused="noise_shape in training")
def dropout(c: LayerCall) -> Value:
    """A share of the elements is 0 in training, the others grow."""
    x, rate = c.x, c.real("rate")
    if not c.training or rate == 0:
        return x
    if c.get("noise_shape") is not None:
        raise RefusedError("noise_shape is given")
    return li.dropout(x, rate, c.key())


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


@taken("AlphaDropout", "rate", masks=True, refused="training")
def alpha_dropout(c: LayerCall) -> Value:
    """The operand, in inference."""
    if c.training and c.real("rate"):
        raise RefusedError("it is not taken with training=True")
    return c.x
