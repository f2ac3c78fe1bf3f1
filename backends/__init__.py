"""Graph -> something that runs: StableHLO, IREE, packages."""

if __name__ != "lstm_ir.backends":
    raise ImportError("import lstm_ir.backends, not backends")
