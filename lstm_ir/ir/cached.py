"""Properties that are computed once, without a lock: a thread may hold it when the process is forked.

`functools.cached_property` of Python 3.11 has one per class, which no thread of the child would release; 3.12 has
none. Two threads may compute the same value twice.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801  the standard library's name
        """Computed at the first look, and then an attribute of the object."""

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


__all__ = ["cached_property"]
