"""One update on several devices: each works on its part of the batch, and what is a mean over the batch is one over all.

`jax.shard_map` runs the update on every device with the same parameters; the functions here are where the devices meet.
On one device they do nothing.
"""

from typing import TypeVar

import jax
from jax import lax
from jaxtyping import Array, PRNGKeyArray

AXIS = "devices"
Tree = TypeVar("Tree")


def count() -> int:
    """The number of parts; 1 outside of `shard_map`."""
    try:
        return lax.axis_size(AXIS)
    except NameError:  # JAX's word for an axis that is not there
        return 1


def mean(x: Tree) -> Tree:
    """The mean over all parts, of arrays in any structure."""
    return lax.pmean(x, AXIS) if count() > 1 else x


def minimum(x: Array) -> Array:
    """The smallest of all parts."""
    return lax.pmin(x, AXIS) if count() > 1 else x


def maximum(x: Array) -> Array:
    """The largest of all parts."""
    return lax.pmax(x, AXIS) if count() > 1 else x


def gather(x: Array, axis: int) -> Array:
    """All parts, one behind the other."""
    return lax.all_gather(x, AXIS, axis=axis, tiled=True) if count() > 1 else x


def own(key: PRNGKeyArray) -> PRNGKeyArray:
    """A key of this part's own: noise differs from part to part."""
    return jax.random.fold_in(key, lax.axis_index(AXIS)) if count() > 1 else key
