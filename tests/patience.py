"""How long tests wait."""

PATIENCE = 1800
"""Seconds after which something counts as hanging; on a loaded machine what takes ten may take hundreds."""
