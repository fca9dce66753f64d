"""Adam over flat vectors: the networks are the pytrees that everyone else works with.

Adam over a network's many small arrays spends its time on launching kernels (2.3 ms of an update on an H200); over one
vector it is a single pass (0.08 ms). So the optimiser keeps the parameters of each kind of network as float32 vectors,
one row for every copy (the actors of all tasks, say); `Layout.unflatten` gives the networks, `Layout.flatten` takes their
gradients. Each row has its own norm, its own clip, and its own check that everything is finite.
"""

from collections.abc import Callable
from math import prod
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from plan2explore.agent.networks import Linear

Network = TypeVar("Network", bound=eqx.Module)


class TrainState(NamedTuple):
    """Parameters of the networks of one kind, and their optimisers' states."""

    params: Float[Array, "rows size"]
    opt_state: Any


class Layout(Generic[Network]):
    """Where each array of a network lies in its vector."""

    def __init__(self, build: Callable[[PRNGKeyArray], Network], rows: int = 1, stacked: bool = False) -> None:
        self.build, self.rows, self.stacked = build, rows, stacked
        shapes = eqx.filter_eval_shape(build, jax.random.key(0))
        arrays, self.rest = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        leaves, self.structure = jax.tree.flatten(arrays)
        self.shapes = [leaf.shape for leaf in leaves]
        self.sizes = [prod(shape) for shape in self.shapes]
        self.size = sum(self.sizes)
        self._is_float32 = _float32_leaves(arrays)

    def init(self, key: PRNGKeyArray) -> Float[Array, "rows size"]:
        """Parameters of freshly initialised networks, all different."""
        if self.rows == 0 or self.size == 0:
            return jnp.zeros((self.rows, self.size))
        return jax.vmap(lambda one: self._to_row(self.build(one)))(jax.random.split(key, self.rows))

    def unflatten(self, params: Float[Array, "rows size"], dtype: jnp.dtype) -> Network:
        """The networks of these parameters, stacked if there may be several; last layers stay float32."""
        return jax.vmap(lambda row: self.network(row, dtype))(params) if self.stacked else self.network(params[0], dtype)

    def network(self, row: Float[Array, " size"], dtype: jnp.dtype) -> Network:
        """The network of one row."""
        if not self.sizes:
            return eqx.combine(jax.tree.unflatten(self.structure, []), self.rest)
        narrow, wide = jax.lax.split(row.astype(dtype), self.sizes), jax.lax.split(row, self.sizes)
        pieces = [w if float32 else n for n, w, float32 in zip(narrow, wide, self._is_float32, strict=True)]
        leaves = [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]
        return eqx.combine(jax.tree.unflatten(self.structure, leaves), self.rest)

    def flatten(self, networks: Network) -> Float[Array, "rows size"]:
        """Networks, or their gradients, as float32 rows."""
        return jax.vmap(self._to_row)(networks) if self.stacked else self._to_row(networks)[None]

    def _to_row(self, network: Network) -> Float[Array, " size"]:
        leaves = jax.tree.leaves(eqx.filter(network, eqx.is_array))
        return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves)])


def _float32_leaves(arrays: Any) -> list[bool]:
    """Which arrays of a network belong to layers that are computed in float32."""

    def is_output(node: Any) -> bool:
        return isinstance(node, Linear) and node.float32

    marked = jax.tree.map(lambda node: jax.tree.map(lambda _: is_output(node), node), arrays, is_leaf=is_output)
    return jax.tree.leaves(marked)


class Adam(NamedTuple):
    """How the networks of one kind are trained."""

    learning_rate: float
    clip: float
    """Largest norm of a row's gradient."""
    epsilon: float
    warmup: int = 0

    def transform(self) -> optax.GradientTransformation:
        """The optimiser of one row; learning rate and warm-up come after it."""
        return optax.chain(optax.clip_by_global_norm(self.clip), optax.scale_by_adam(eps=self.epsilon))


def init_train_state(params: Float[Array, "rows size"]) -> TrainState:
    """Networks at the start of training."""
    optimizer = Adam(learning_rate=1.0, clip=1.0, epsilon=1.0).transform()  # none of these matters for what it starts with
    return TrainState(params, jax.vmap(optimizer.init)(params))


def apply_gradients(
    state: TrainState, grads: Float[Array, "rows size"], losses: Float[Array, " rows"], update: Int[Array, ""], adam: Adam
) -> tuple[TrainState, Float[Array, " rows"], Bool[Array, " rows"]]:
    """One step of Adam for each row, with the norms of the gradients and whether each row was finite.

    A row whose loss or gradient is not finite keeps all it had: the last good parameters survive until someone looks
    at the metrics.
    """
    norms = jnp.sqrt(jnp.square(grads).sum(-1))
    finite = jnp.isfinite(norms) & jnp.isfinite(losses)
    directions, opt_state = jax.vmap(adam.transform().update)(grads, state.opt_state)
    rate = adam.learning_rate * (jnp.minimum(1.0, (update + 1) / adam.warmup) if adam.warmup else 1.0)
    trained = TrainState(state.params - rate * directions, opt_state)

    def keep(new: Array, old: Array) -> Array:
        return jnp.where(finite.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(keep, trained, state), norms, finite
