"""Ops that StableHLO has, and their builders."""
