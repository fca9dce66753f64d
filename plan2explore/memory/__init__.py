"""Episodes, and the rewards that any task would have given in them."""

from .episode import Episode, record, uniform_policy
from .relabel import relabel

__all__ = ["Episode", "record", "relabel", "uniform_policy"]
