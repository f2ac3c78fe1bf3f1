"""Graph -> Graph: rewrites that keep the meaning."""

if __name__ != "lstm_ir.passes":
    raise ImportError("import lstm_ir.passes, not passes")
