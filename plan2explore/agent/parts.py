"""A part of the agent as one matrix: a row for every copy of a network, trained by its own Adam and clip.

Adam over a network's many small arrays spends its time on launching them; over one vector it is a single
pass. So parameters live as float32 rows, and the network is read out of its row inside the compiled update. A
part with several rows (the actors of all task probes, say) is several networks that share nothing: each has
its own norm, its own clip, and its own check that everything is finite.
"""

from collections.abc import Callable
from math import prod
from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Network = TypeVar("Network", bound=eqx.Module)
FIRST_DECAY, SECOND_DECAY = 0.9, 0.999


class Layout(Generic[Network]):
    """Where each array of a network lies in a row."""

    def __init__(self, build: Callable[[PRNGKeyArray], Network]) -> None:
        self.build = build
        shapes = eqx.filter_eval_shape(build, jax.random.key(0))
        arrays, self.rest = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        leaves, self.structure = jax.tree.flatten(arrays)
        self.shapes = [leaf.shape for leaf in leaves]
        self.sizes = [prod(shape) for shape in self.shapes]
        self.size = sum(self.sizes)

    def read(self, row: Float[Array, " size"]) -> Network:
        """The network whose parameters are in this row, in the row's number format."""
        pieces = jax.lax.split(row, self.sizes) if self.sizes else []
        leaves = [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]
        return eqx.combine(jax.tree.unflatten(self.structure, leaves), self.rest)

    def write(self, network: Network) -> Float[Array, " size"]:
        """The row that holds this network's parameters."""
        leaves = jax.tree.leaves(eqx.filter(network, eqx.is_array))
        return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves)])

    def init(self, key: PRNGKeyArray, rows: int) -> Float[Array, "rows size"]:
        """Freshly initialised networks, all different."""
        if rows == 0 or self.size == 0:
            return jnp.zeros((rows, self.size))
        return jax.vmap(lambda one: self.write(self.build(one)))(jax.random.split(key, rows))


class Part(NamedTuple):
    """Parameters of the networks of one kind, and what Adam remembers of their gradients."""

    rows: Float[Array, "rows size"]
    first: Float[Array, "rows size"]
    """Running mean of gradients."""
    second: Float[Array, "rows size"]
    """Running mean of squared gradients."""
    steps: Int[Array, " rows"]
    """Steps taken."""


class Adam(NamedTuple):
    """How a part is trained."""

    rate: float
    clip: float
    """Largest norm of a row's gradient."""
    epsilon: float


def init_part(rows: Float[Array, "rows size"]) -> Part:
    """A part at the start of training."""
    return Part(rows, jnp.zeros_like(rows), jnp.zeros_like(rows), jnp.zeros(rows.shape[:1], jnp.int32))


def train_part(
    part: Part, gradient: Float[Array, "rows size"], loss: Float[Array, " rows"], adam: Adam
) -> tuple[Part, Float[Array, " rows"], Bool[Array, " rows"]]:
    """One step of Adam for each row, with the norms of the gradients and whether each row was finite.

    A row whose loss or gradient is not finite keeps all it had: the last good parameters survive until
    someone looks at the metrics.
    """
    norm = jnp.sqrt(jnp.square(gradient).sum(-1))
    finite = jnp.isfinite(norm) & jnp.isfinite(loss)
    gradient = gradient * (adam.clip / jnp.maximum(norm, adam.clip))[:, None]
    first = FIRST_DECAY * part.first + (1 - FIRST_DECAY) * gradient
    second = SECOND_DECAY * part.second + (1 - SECOND_DECAY) * jnp.square(gradient)
    steps = part.steps + 1
    mean = first / (1 - FIRST_DECAY**steps)[:, None]
    size = jnp.sqrt(second / (1 - SECOND_DECAY**steps)[:, None])
    trained = Part(part.rows - adam.rate * mean / (size + adam.epsilon), first, second, steps)

    def keep(new: Array, old: Array) -> Array:
        return jnp.where(finite.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(keep, trained, part), norm, finite
