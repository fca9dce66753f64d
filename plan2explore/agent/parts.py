"""A part of the agent as one matrix: a row for every copy of a network, trained by its own Adam and clip.

Adam over a network's many small arrays spends its time on launching them; over one vector it is a single
pass. So parameters live as float32 rows, and the network is read out of its row inside the compiled update. A
part with several rows (the actors of all task probes, say) is several networks that share nothing: each has
its own norm, its own clip, and its own check that everything is finite.
"""

from collections.abc import Callable
from math import prod
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

Network = TypeVar("Network", bound=eqx.Module)


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
    """Parameters of the networks of one kind, and what their optimisers remember of the gradients."""

    rows: Float[Array, "rows size"]
    memory: Any
    """Optax's state of Adam, for each row."""


class Adam(NamedTuple):
    """How a part is trained."""

    rate: float
    clip: float
    """Largest norm of a row's gradient."""
    epsilon: float

    def optimiser(self) -> optax.GradientTransformation:
        """The optimiser of one row."""
        return optax.chain(optax.clip_by_global_norm(self.clip), optax.adam(self.rate, eps=self.epsilon))


def init_part(rows: Float[Array, "rows size"]) -> Part:
    """A part at the start of training."""
    optimiser = Adam(rate=1.0, clip=1.0, epsilon=1.0).optimiser()  # none of these matters for what it starts with
    return Part(rows, jax.vmap(optimiser.init)(rows))


def train_part(
    part: Part, gradient: Float[Array, "rows size"], loss: Float[Array, " rows"], adam: Adam
) -> tuple[Part, Float[Array, " rows"], Bool[Array, " rows"]]:
    """One step of Adam for each row, with the norms of the gradients and whether each row was finite.

    A row whose loss or gradient is not finite keeps all it had: the last good parameters survive until
    someone looks at the metrics.
    """
    norm = jnp.sqrt(jnp.square(gradient).sum(-1))
    finite = jnp.isfinite(norm) & jnp.isfinite(loss)
    steps, memory = jax.vmap(adam.optimiser().update)(gradient, part.memory)
    trained = Part(part.rows + steps, memory)

    def keep(new: Array, old: Array) -> Array:
        return jnp.where(finite.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(keep, trained, part), norm, finite
