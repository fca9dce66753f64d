"""Explore a world without any reward, then solve tasks that are named only afterwards."""

__version__ = "0.1.0"
