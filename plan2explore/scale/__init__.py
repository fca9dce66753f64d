"""Sweeps: many runs, each a cell, one after the other, in a job array or on a Ray cluster."""
