"""The loop with weight gradients apart is `lax.scan` in every value and gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from plan2explore.agent.loops import scan_apart
from plan2explore.agent.networks import GRUCell, Linear

KEY = jax.random.key(0)


def random(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def step(parameters, carry, given):
    cell, out = parameters
    state = cell(given["x"], carry["state"])
    total = carry["total"] + out(state)[..., 0]
    return {"state": state, "total": total}, (jnp.sin(state), total**2)


def arguments():
    parameters = GRUCell(3, 4, KEY), Linear(4, 1, KEY)
    start = {"state": random(2, 4), "total": random(2, seed=1)}
    return parameters, start, {"x": random(7, 2, 3, seed=2)}


def loss(loop, parameters, start, inputs):
    last, (sines, squares) = loop(parameters, start, inputs)
    return jnp.sum(jnp.cos(last["state"])) + jnp.sum(sines[2:]) + jnp.mean(squares) + last["total"].sum()


@pytest.mark.parametrize("unroll", [1, 3])
def test_values_and_gradients_are_those_of_scan(unroll):
    def plainly(parameters, start, inputs):
        return lax.scan(lambda carry, now: step(parameters, carry, now), start, inputs)

    def apart(parameters, start, inputs):
        return scan_apart(step, parameters, start, inputs, unroll)

    expected, got = (
        jax.jit(jax.value_and_grad(lambda *each, loop=loop: loss(loop, *each), (0, 1, 2)))(*arguments())
        for loop in (plainly, apart)
    )
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_backward_loop_holds_no_weight_gradients():
    weight = (3, 12)  # of the cell's input

    def carried(loop):
        gradient = jax.grad(lambda *each: loss(loop, *each))
        loops = [
            each for each in jax.make_jaxpr(gradient)(*arguments()).eqns if each.primitive.name == "scan"
        ]
        return [
            variable.aval.shape for each in loops for variable in each.outvars[: each.params["num_carry"]]
        ]

    assert weight in carried(lambda p, start, inputs: lax.scan(lambda c, x: step(p, c, x), start, inputs))
    assert (2, 4) in carried(lambda *each: scan_apart(step, *each))
    assert weight not in carried(lambda *each: scan_apart(step, *each))
