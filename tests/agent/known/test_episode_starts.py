"""Windows that run across the end of an episode: as if the episodes had been apart."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handmade import MODERN, PAPER, change
from jax import Array

from plan2explore.agent.agent import Agent
from plan2explore.agent.intrinsic.objective import Experience
from plan2explore.agent.latents import make_latent
from plan2explore.agent.world_model import RSSM, State
from plan2explore.config import ModelConfig, Spaces

TIME, CUTS = 6, (2, 4)
"""Steps of a window, and where its second row starts anew. Its first row is one episode."""
EMBEDDING, ACTION = 6, 2
CORES = {
    "gru": PAPER.model,
    "gru, categorical": replace(PAPER.model, latent="categorical", stoch=3, classes=4),
    "block_gru": MODERN.model,
}


def starts() -> np.ndarray:
    is_first = np.zeros((TIME, 2), bool)
    is_first[list(CUTS), 1] = True
    return is_first


def sequences(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(rng.normal(size=(TIME, 2, size)), jnp.float32) for size in (ACTION, EMBEDDING))


def rssm(model: ModelConfig) -> RSSM:
    made = RSSM(model, EMBEDDING, ACTION, jax.random.key(0))
    leaves, rest = eqx.partition(made, eqx.is_array)
    # Biases start at zero, where mistakes with them would not show.
    moved = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(jax.random.key(1), leaf.shape), leaves)
    return eqx.combine(moved, rest)


def apart(rssm: RSSM, actions: Array, embeddings: Array, key: Array) -> tuple[State, tuple]:
    """Each episode for itself, step by step: states and posteriors put together as windows."""
    noise, rows = rssm.latent.noise(key, TIME, 2), []
    for row, cuts in enumerate(((), CUTS)):
        steps = []
        for begin, end in zip((0, *cuts), (*cuts, TIME), strict=True):
            state = rssm.initial()
            for t in range(begin, end):
                # The action before an episode is none; only a window's own first step may have one.
                action = actions[t, row] if t == 0 or t > begin else jnp.zeros(ACTION)
                state, posterior = rssm.infer(state, action, embeddings[t, row], noise[t, row])
                steps.append((state, posterior))
        rows.append(jax.tree.map(lambda *each: jnp.stack(each), *steps))
    return jax.tree.map(lambda *each: jnp.stack(each, 1), *rows)


def joined(rssm: RSSM, actions: Array, embeddings: Array, key: Array) -> tuple[State, tuple]:
    return rssm.observe(actions, embeddings, starts(), key)


def close(one: object, other: object, tolerance: float) -> None:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("core", CORES)
def test_windows_across_ends_give_the_states_and_gradients_of_separate_episodes(core):
    model, (actions, embeddings), key = rssm(CORES[core]), sequences(), jax.random.key(2)
    weights = jax.random.normal(jax.random.key(3), (TIME, 2, model.deter + make_latent(CORES[core]).size))

    def loss(given: tuple, infer: object) -> tuple[Array, object]:
        model, actions, embeddings = given
        states, posterior = infer(model, actions, embeddings, key)
        return (weights * states.features).sum() + model.latent.kl(posterior, model.prior(states.deter)).sum(), (
            states,
            posterior,
        )

    grad = eqx.filter_jit(eqx.filter_grad(partial(loss, infer=joined), has_aux=True))
    expected = eqx.filter_jit(eqx.filter_grad(partial(loss, infer=apart), has_aux=True))
    (found, inferred), (grads, reference) = (each((model, actions, embeddings)) for each in (grad, expected))
    close(inferred, reference, 1e-5)
    close(found, grads, 1e-4)


@pytest.mark.parametrize("core", ["gru", "block_gru"])
def test_an_action_that_is_stored_with_the_first_step_of_an_episode_changes_nothing(core):
    model, (actions, embeddings), key = rssm(CORES[core]), sequences(), jax.random.key(2)
    observe = eqx.filter_jit(lambda actions: joined(model, actions, embeddings, key))
    other = jnp.where(starts()[..., None], 99.0, actions)
    for one, two in zip(jax.tree.leaves(observe(actions)), jax.tree.leaves(observe(other)), strict=True):
        np.testing.assert_array_equal(one, two)


OBJECTIVES = [
    ("plan2explore", dict(inputs="deter")),
    ("plan2explore", dict(inputs="state", target="state", loss="mean")),
    ("max", dict()),
    ("max", dict(bootstrap=False)),
    ("curiosity", dict()),
]


@pytest.mark.parametrize(("objective", "settings"), OBJECTIVES)
def test_transitions_across_ends_are_no_part_of_the_objectives_losses(objective, settings):
    agent = Agent(
        change(PAPER, intrinsic=dict(objective=objective, **settings)), Spaces(action=ACTION, image=None, proprio=3)
    )
    layout, config = agent.layouts["intrinsic"], agent.config.intrinsic
    predictor, sizes = layout.unflatten(layout.init(jax.random.key(4)), agent.dtype), agent.sizes

    def draw(seed: int, *shape: int) -> Array:
        return jnp.asarray(np.random.default_rng(seed).normal(size=(TIME, 2, *shape)), jnp.float32)

    def experience(seed: int) -> Experience:
        states = State(draw(seed, sizes.deter), draw(seed + 1, sizes.stoch))
        return Experience(
            states, draw(seed + 2, ACTION), draw(seed + 3, sizes.embedding), draw(seed + 4), jnp.asarray(starts())
        )

    def merged(where: np.ndarray) -> Experience:
        """Experience that is another one where `where` says so."""

        def choose(a: Array, b: Array) -> Array:
            return jnp.where(where.reshape(where.shape + (1,) * (a.ndim - 2)), b, a)

        one, other = experience(10), experience(20)
        return jax.tree.map(choose, one, other)._replace(is_first=one.is_first)

    def loss(predictor: object, experience: Experience) -> Array:
        return agent.objective.loss(predictor, experience, jax.random.key(5), config)[0]

    value_and_grad = eqx.filter_jit(eqx.filter_value_and_grad(loss))
    firsts = starts()
    if config.inputs == "state":  # the first state is also where the next transition starts: change only what led to it
        plain, other = experience(10), experience(20)
        changed = plain._replace(actions=jnp.where(firsts[..., None], other.actions, plain.actions))
    else:
        changed = merged(firsts)
    (before, grads), (after, other_grads) = (value_and_grad(predictor, each) for each in (experience(10), changed))
    assert float(before) == float(after)
    close(grads, other_grads, 1e-7)
    elsewhere = np.roll(firsts, -1, 0)  # the steps before: transitions within an episode
    assert abs(float(value_and_grad(predictor, merged(elsewhere))[0]) - float(before)) > 1e-4


def test_the_mean_over_transitions_counts_those_within_episodes_only():
    losses = np.random.default_rng(6).normal(size=(TIME - 1, 2)).astype(np.float32)
    nothing = State(jnp.zeros((TIME, 2, 1)), jnp.zeros((TIME, 2, 1)))
    experience = Experience(nothing, jnp.zeros((TIME, 2, 1)), jnp.zeros((TIME, 2, 1)), jnp.zeros((TIME, 2)), starts())
    expected = losses[~starts()[1:]].mean()
    assert float(experience.mean(jnp.asarray(losses))) == pytest.approx(expected, rel=1e-5)
