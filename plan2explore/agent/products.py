"""Matrix products in the forms that GPUs are quick at; the sums are the same.

- A product over a length that is no multiple of 8 takes a slow path (bfloat16 rows would not start on 16 bytes):
  `affine` fills the length up with zeros.
- A weight's gradient sums over all rows of a batch, tens of thousands, into a small matrix, which leaves most of
  the chip idle. With two batch axes, `affine` takes one product for each entry of the first, and adds them up.
- A bias' gradient is a sum over rows too: as a product with ones it is several times quicker than as a reduction.
- In a loop over time, weights' gradients are many small products, each added to the last: `weights_apart` takes
  them after the loop, one for each weight.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

ProductForm = Literal["auto", "plain", "wide"]
ALIGNMENT = 8  # numbers of 16 bits in the 16 bytes that a GPU loads at once
MANY_ROWS = 512  # from here on, one product fills a good part of the chip


def affine(
    x: Float[Array, "*batch inputs"],
    weight: Float[Array, "inputs outputs"],
    bias: Float[Array, " outputs"],
    form: ProductForm = "auto",
) -> Float[Array, "*batch outputs"]:
    """`x @ weight + bias`; `wide` is the form for GPUs, `plain` the one for all else."""
    if form == "auto":
        form = "wide" if jax.default_backend() == "gpu" else "plain"
    if form == "plain" or x.ndim < 2:
        return x @ weight + bias
    missing = -x.shape[-1] % ALIGNMENT
    if missing:
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
        weight = jnp.pad(weight, ((0, missing), (0, 0)))
    return _wide(x, weight, bias)


@jax.custom_vjp
def _wide(x: Array, weight: Array, bias: Array) -> Array:
    return x @ weight + bias


def _wide_forward(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight + bias, (x, weight)


def _wide_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, weight = saved
    if x.shape[-2] < MANY_ROWS:  # many short products would be no better than one long one
        x, rows = (part.reshape(-1, part.shape[-1]) for part in (x, gradient))
    else:
        x, rows = (part.reshape(-1, *part.shape[-2:]) for part in (x, gradient))
    total = partial(jnp.einsum, "...ri,...ro->...io", preferred_element_type=jnp.float32)
    ones = jnp.ones((*rows.shape[:-1], ALIGNMENT), rows.dtype)
    by_weight, by_bias = total(x, rows), total(ones, rows)[..., 0, :]
    if x.ndim == 3:
        by_weight, by_bias = by_weight.sum(0), by_bias.sum(0)
    return gradient @ weight.T, by_weight.astype(weight.dtype), by_bias.astype(gradient.dtype)


_wide.defvjp(_wide_forward, _wide_backward)


def weights_apart(loop: Callable[[Any, Any], tuple[Any, Any]], weights: Any, added: Any) -> Any:
    """Runs a loop over time and takes its weights' gradients after it, in one product each.

    `loop(weights, added)` returns its result and, for each weight, all the `x` that it multiplied; each product in it
    must be `x @ weight + added`, with the step's own entry of `added`. The gradient of `added` is then that of the
    product, which is all that its weight's gradient needs.
    """

    @jax.custom_vjp
    def run(weights: Any, added: Any) -> Any:
        return loop(weights, added)[0]

    def forward(weights: Any, added: Any) -> tuple[Any, tuple[Any, Any]]:
        result, pull, multiplied = jax.vjp(partial(loop, weights), added, has_aux=True)
        return result, (pull, multiplied)

    def backward(saved: tuple[Any, Any], cotangent: Any) -> tuple[Any, Any]:
        pull, multiplied = saved
        (gradients,) = pull(cotangent)

        def by_weight(x: Array, gradient: Array) -> Array:
            product = jnp.einsum("tbi,tbo->io", x, gradient, preferred_element_type=jnp.float32)
            return product.astype(gradient.dtype)

        return jax.tree.map(by_weight, multiplied, gradients), gradients

    run.defvjp(forward, backward)
    return run(weights, added)
