"""Run by test_helpers in a process of one thread: helpers that it wants, and whether an executable has any."""

from __future__ import annotations

import numpy as np

import lstm_ir as li
from lstm_ir.backends.run import helper_pool

li.set_threads(1)
x = li.input("x", (60, 4, 64))
w, r = (li.weight(n, np.full((512, k), 0.01, np.float32)) for n, k in (("w", 64), ("r", 128)))
exe = li.compile(li.Graph("g", [x], {"y": li.lstm(x, w, r)[0]}), options={"helpers": "always"})
print(helper_pool.wanted(), bool(exe.helped))
