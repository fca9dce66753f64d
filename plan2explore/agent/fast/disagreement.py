"""The variance of an ensemble's predictions, in the form that moves the least memory on a GPU."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from plan2explore.agent.fast import linear
from plan2explore.agent.networks import MLP

Members = tuple[Array, ...]
"""An array for each member."""


def mean_variance(predictions: list[Float[Array, "*steps outputs"]]) -> Float[Array, "*steps"]:
    """The variance over members, 1/(K-1), averaged over dimensions.

    Written out member by member: a sum over a short leading axis compiles to one pass that way, on a CPU twenty times
    faster.
    """
    return _mean_square(_deviations(predictions))


def _deviations(predictions: list[Float[Array, "*steps outputs"]]) -> list[Float[Array, "*steps outputs"]]:
    mean = sum(predictions, jnp.zeros(())) / len(predictions)
    return [each - mean for each in predictions]


def _mean_square(deviations: list[Float[Array, "*steps outputs"]]) -> Float[Array, "*steps"]:
    squares = sum((jnp.square(each) for each in deviations), jnp.zeros(()))
    return (squares / (len(deviations) - 1)).mean(-1)


def ensemble_variance(members: MLP, inputs: Float[Array, "*steps inputs"]) -> Float[Array, "*steps"]:
    """`mean_variance` of the members' predictions; each array of `members` has a leading axis of members."""
    return linear.with_padded_rows(partial(_variance_of_rows, members), inputs)[..., 0]


def _variance_of_rows(stacked: MLP, rows: Float[Array, "rows inputs"]) -> Float[Array, "rows 1"]:
    """Member by member: each one's product over all rows is large enough by itself."""
    count = stacked.layers[-1].bias.shape[0]
    members = [jax.tree.map(lambda leaf, k=k: leaf[k], stacked) for k in range(count)]
    hidden = tuple(member.hidden(rows) for member in members)
    last = [member.layers[-1] for member in members]
    weights = tuple(layer.weight.astype(hidden[0].dtype) for layer in last)
    biases = tuple(layer.bias.astype(hidden[0].dtype) for layer in last)
    return _variance_of_products(hidden, weights, biases)[:, None]


@jax.custom_vjp
def _variance_of_products(hidden: Members, weights: Members, biases: Members) -> Float[Array, " rows"]:
    """The members' variance, from their last layers' inputs, weights and biases.

    Its gradient with respect to a prediction is the prediction's deviation from the mean, times one number for the
    whole row. So the deviations are kept instead of the predictions, the backward product takes them as they are, and
    the number comes in afterwards, in the pass that the layer before needs anyway.
    """
    return _variance_forward(hidden, weights, biases)[0]


def _variance_forward(hidden: Members, weights: Members, biases: Members) -> tuple[Array, Any]:
    layers = zip(hidden, weights, biases, strict=True)
    deviations = _deviations([(x @ weight + bias).astype(jnp.float32) for x, weight, bias in layers])
    kept = tuple(each.astype(x.dtype) for each, x in zip(deviations, hidden, strict=True))
    return _mean_square(deviations), (hidden, weights, kept)


def _variance_backward(
    saved: tuple[Members, Members, Members], gradient: Float[Array, " rows"]
) -> tuple[Members, Members, Members]:
    hidden, weights, deviations = saved
    scale = (gradient * (2 / ((len(deviations) - 1) * deviations[0].shape[-1])))[:, None]
    pulled = [(scale * each).astype(each.dtype) for each in deviations]
    return (
        tuple((scale * (each @ weight.T)).astype(each.dtype) for each, weight in zip(deviations, weights, strict=True)),
        tuple(x.T @ each for x, each in zip(hidden, pulled, strict=True)),
        tuple(each.astype(jnp.float32).sum(0).astype(each.dtype) for each in pulled),
    )


_variance_of_products.defvjp(_variance_forward, _variance_backward)
