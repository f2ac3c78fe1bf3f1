"""How StableHLO is written with IREE's bindings."""
