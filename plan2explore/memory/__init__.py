"""Episodes, and the rewards that any task would have given in them."""

from .episode import Episode, record, record_random, uniform_policy
from .relabel import relabel

__all__ = ["Episode", "record", "record_random", "relabel", "uniform_policy"]
