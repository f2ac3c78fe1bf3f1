"""The machine, and seconds of calls in turn: what the benchmark, `verify` and progress lines measure with."""
