"""Episodes, and the rewards that any task would have given in them."""

from .episode import Episode, record
from .relabel import relabel

__all__ = ["Episode", "record", "relabel"]
