"""ELU and ReLU whose slopes are told by their outputs.

Any activation's gradient needs something kept from the forward pass. The output is kept for the next layer anyway,
so with slopes told by it nothing else is written to memory, and no exponential is taken again.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Elementwise = Callable[[Float[Array, "..."]], Float[Array, "..."]]


def by_output(function: Elementwise, slope: Elementwise) -> Elementwise:
    """The function, with `slope(function(x))` for its derivative at x."""

    @jax.custom_vjp
    def activate(x: Float[Array, "..."]) -> Float[Array, "..."]:
        return function(x)

    def forward(x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        y = function(x)
        return y, y

    def backward(y: Float[Array, "..."], gradient: Float[Array, "..."]) -> tuple[Float[Array, "..."]]:
        return (gradient * slope(y),)

    activate.defvjp(forward, backward)
    return activate


def _elu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    below = jnp.minimum(x, 0)
    if x.dtype == jnp.bfloat16:
        # Its eight bits do not see what `expm1` adds to an exponential of float32, in many more instructions.
        below = (jnp.exp(below.astype(jnp.float32)) - 1).astype(x.dtype)
    else:
        below = jnp.expm1(below)
    return jnp.where(x > 0, x, below)


elu = by_output(_elu, lambda y: jnp.where(y > 0, 1, y + 1).astype(y.dtype))
# Not `y > 0`: compilers see through that to x > 0, and keep both x and y.
relu = by_output(lambda x: jnp.maximum(x, 0), lambda y: (y != 0).astype(y.dtype))
