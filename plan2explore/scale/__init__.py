"""Sweeps: many runs, each a cell."""
