"""A loop over time whose weight gradients are computed after it, for all steps at once."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

Carry = TypeVar("Carry")
Output = TypeVar("Output")


def scan_apart(
    step: Callable[[Any, Carry, Any], tuple[Carry, Output]],
    parameters: PyTree[Array],
    start: Carry,
    inputs: PyTree[Array],
    unroll: int = 1,
) -> tuple[Carry, Output]:
    """`lax.scan` of `step(parameters, carry, input)`, values and gradients, with fewer small products.

    The backward loop of a scan adds to the gradient of every weight at every step. Here it only carries the
    gradient of the state from step to step. What the weights and inputs get of it is one batched backward
    pass over all steps afterwards, which repeats their forward pass, batched too. All must be floats.
    """

    @jax.custom_vjp
    def run(parameters: Any, start: Any, inputs: Any) -> tuple[Any, Any]:
        return forward(parameters, start, inputs)[0]

    def forward(parameters: Any, start: Any, inputs: Any) -> tuple[tuple[Any, Any], Any]:
        def loop(nudges: Any, start: Any) -> tuple[tuple[Any, Any], Any]:
            def body(carry: Any, now: tuple[Any, Any]) -> tuple[Any, tuple[Any, Any]]:
                given, nudge = now
                after, output = step(parameters, carry, given)
                return jax.tree.map(jnp.add, after, nudge), (output, carry)

            last, (outputs, before) = lax.scan(body, start, (inputs, nudges), unroll=unroll)
            return (last, outputs), before

        # The gradient with respect to a nudge of zero after each step is the state's gradient there.
        steps = jax.tree.leaves(inputs)[0].shape[0]
        nudges = jax.tree.map(lambda part: jnp.zeros((steps, *part.shape), part.dtype), start)
        result, pull, before = jax.vjp(loop, nudges, start, has_aux=True)
        return result, (pull, parameters, before, inputs)

    def backward(saved: Any, gradient: tuple[Any, Any]) -> tuple[Any, Any, Any]:
        pull, parameters, before, inputs = saved
        after_steps, at_start = pull(gradient)

        def all_steps(parameters: Any, inputs: Any) -> tuple[Any, Any]:
            return jax.vmap(step, (None, 0, 0))(parameters, before, inputs)

        _, pull_steps = jax.vjp(all_steps, parameters, inputs)
        of_parameters, of_inputs = pull_steps((after_steps, gradient[1]))
        return of_parameters, at_start, of_inputs

    run.defvjp(forward, backward)
    return run(parameters, start, inputs)
