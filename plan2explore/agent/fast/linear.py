"""Matrix products in the forms that GPUs are quick at; the sums are the same.

- A product with a length that is no multiple of 8 takes a slow path, or is copied into one that is: rows of bfloat16
  must start on 16 bytes. `affine` fills up the numbers in a row with zeros, `with_padded_rows` and `pad_rows` the number
  of rows.
- A weight's gradient sums over all rows of a batch, tens of thousands, into a small matrix, which leaves most of the
  chip idle. `affine` takes the sum in several parts side by side, and adds them up.
- A bias' gradient is a sum over rows too, of float32 (`add_bias`); compilers take it in the same pass as the slope of the
  activation behind it.
- In a loop over time, weights' gradients are many small products, each added to the last: `deferred_weight_grads` takes them
  after the loop, one for each weight.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

ALIGNMENT = 8  # numbers of 16 bits in the 16 bytes that a GPU loads at once
PARTS = 16  # of a long sum, taken side by side
LONG = 8192  # rows from which on a sum is taken in parts


def on_gpu() -> bool:
    """Whether products, image layers and disagreement take their forms for GPUs."""
    return jax.default_backend() == "gpu"


def with_padded_rows(
    function: Callable[[Float[Array, "*batch inputs"]], Float[Array, "*batch outputs"]],
    x: Float[Array, "*batch inputs"],
) -> Float[Array, "*batch outputs"]:
    """`function(x)`, for a function that treats every row for itself, with as many rows as a GPU likes."""
    if not on_gpu():
        return function(x)
    flat = x.reshape(-1, x.shape[-1])
    rows = flat.shape[0]
    unit = ALIGNMENT * PARTS if rows >= LONG and parts_of(rows) < PARTS / 2 else ALIGNMENT
    made = function(pad_to_multiple(flat, 0, unit))
    return made[:rows].reshape(*x.shape[:-1], made.shape[-1])


def pad_to_multiple(x: Array, axis: int, unit: int = ALIGNMENT) -> Array:
    """The array with zeros behind an axis, up to a multiple of the unit."""
    missing = -x.shape[axis] % unit
    return jnp.pad(x, [(0, missing if each == axis % x.ndim else 0) for each in range(x.ndim)]) if missing else x


def pad_rows(x: Float[Array, "*batch rows size"]) -> Float[Array, "*batch _ size"]:
    """On a GPU, the array with as many rows as it likes: for work in several steps, whose end drops the added ones."""
    return pad_to_multiple(x, -2) if on_gpu() else x


def parts_of(rows: int) -> int:
    """In how many parts a sum over so many rows is taken."""
    if rows < LONG:
        return 1
    return max((parts for parts in range(1, PARTS + 1) if rows % (parts * ALIGNMENT) == 0), default=1)


def add_bias(x: Float[Array, "*batch outputs"], bias: Float[Array, " outputs"]) -> Float[Array, "*batch outputs"]:
    """`x + bias` in the precision of x. The bias' gradient, up to millions of terms, is summed in float32: a sum of
    bfloat16 stands still as soon as it is 256 times its terms."""
    return (x.astype(jnp.float32) + bias.astype(jnp.float32)).astype(x.dtype)


def affine(
    x: Float[Array, "*batch inputs"], weight: Float[Array, "inputs outputs"], bias: Float[Array, " outputs"]
) -> Float[Array, "*batch outputs"]:
    """`x @ weight + bias`."""
    if not on_gpu():
        return add_bias(x @ weight, bias)
    return _wide(pad_to_multiple(x, -1), pad_to_multiple(weight, 0), bias)


@jax.custom_vjp
def _wide(x: Array, weight: Array, bias: Array) -> Array:
    return x @ weight + bias


def _wide_forward(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight + bias, (x, weight)


def _wide_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, weight = saved
    rows = gradient.size // gradient.shape[-1]
    parts = parts_of(rows)
    multiplied, pulled = (each.reshape(parts, rows // parts, -1) for each in (x, gradient))
    by_weight = jnp.einsum("pri,pro->pio", multiplied, pulled, preferred_element_type=jnp.float32).sum(0)
    by_bias = pulled.astype(jnp.float32).sum((0, 1))
    return gradient @ weight.T, by_weight.astype(weight.dtype), by_bias.astype(gradient.dtype)


_wide.defvjp(_wide_forward, _wide_backward)


def deferred_weight_grads(loop: Callable[[Any, Any], tuple[Any, Any]], weights: Any, added: Any) -> Any:
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
