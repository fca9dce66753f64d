"""Objectives: MAX ranks states in many dimensions, the oracle learns from one reward only, and a task may fail alone."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handmade import PAPER, Arrays, change
from jax import Array

from plan2explore.agent.agent import Agent
from plan2explore.agent.intrinsic.max import jensen_renyi
from plan2explore.agent.learner import Learner, LearnerState, NotFiniteError, check_finite, model_gradients, open_batch
from plan2explore.config import Spaces, check_numbers, modern, paper

pytestmark = pytest.mark.xdist_group("objectives_by_hand")

MEMBERS, DIMENSIONS = 5, 1024
SPACES = Spaces(action=2, image=None, proprio=3, tasks=2)


# --- MAX ---


def members_apart(distance: Array) -> Array:
    """Means of members that are so far apart, in each dimension by a random share."""
    drawn = np.random.default_rng(0).normal(size=(MEMBERS, 1, DIMENSIONS)).astype(np.float32)
    return drawn * jnp.asarray(distance)[:, None]


def divergence(distance: Array, reduce: str) -> Array:
    return jensen_renyi(members_apart(distance), jnp.full((MEMBERS, len(distance), DIMENSIONS), 0.1), reduce)


DISTANCES = jnp.array([0.1, 0.2, 0.3, 0.4, 0.5])


def test_summed_over_many_dimensions_the_divergence_is_the_same_everywhere_without_a_gradient():
    np.testing.assert_allclose(divergence(DISTANCES, "sum"), np.log(MEMBERS), rtol=1e-3)
    grads = jax.grad(lambda distance: divergence(distance, "sum").sum())(DISTANCES)
    np.testing.assert_allclose(grads, 0, atol=1e-4)


def test_averaged_over_dimensions_the_divergence_ranks_states_by_how_far_members_are_apart():
    values = np.asarray(divergence(DISTANCES, "mean"))
    assert np.all(np.diff(values) > 0.02) and values[-1] < np.log(MEMBERS)
    grads = np.asarray(jax.grad(lambda distance: divergence(distance, "mean").sum())(DISTANCES))
    assert np.all(grads > 0.02)
    assert float(divergence(jnp.zeros(1), "mean")[0]) == pytest.approx(0, abs=1e-5), "members that agree"


def test_in_one_dimension_both_are_the_same():
    mean, variance = np.random.default_rng(1).random((2, 3, 7, 1)).astype(np.float32)
    np.testing.assert_allclose(*(jensen_renyi(mean, variance + 0.1, reduce) for reduce in ("sum", "mean")), rtol=1e-4)


@pytest.mark.parametrize("preset", [paper, modern])
def test_an_ensemble_of_one_is_refused(preset):
    check_numbers(preset)
    with pytest.raises(ValueError, match=r"intrinsic\.members must be at least 2; got 1"):
        check_numbers(change(preset, intrinsic=dict(members=1)))


# --- What a reward may reach ---


def batch(seed: int = 0) -> Arrays:
    rng, shape = np.random.default_rng(seed), (3, 5)
    return {
        "proprio": rng.normal(size=(*shape, 3)).astype(np.float32),
        "action": rng.uniform(-1, 1, (*shape, 2)).astype(np.float32),
        "reward": rng.normal(size=(*shape, 2)).astype(np.float32),
        "is_first": np.zeros(shape, bool),
        "is_terminal": np.zeros(shape, bool),
    }


@pytest.mark.parametrize("objective", ["dreamer", "plan2explore"])
def test_the_models_gradient_depends_on_the_oracles_first_reward_and_on_no_other(objective):
    agent = Agent(change(PAPER, intrinsic=dict(objective=objective)), SPACES)

    @jax.jit
    def model_grads(rewards: Array) -> Array:
        nets = agent.networks(params)
        given = open_batch(agent, jax.tree.map(jnp.asarray, batch()) | {"reward": rewards})
        return agent.layouts["model"].flatten(model_gradients(agent, nets, given, jax.random.key(1))[0].grads["model"])[0]

    params = {name: layout.init(jax.random.key(0)) for name, layout in agent.layouts.items()}
    rewards = batch()["reward"]
    plain, probe, first = (np.asarray(model_grads(rewards + np.float32(plus))) for plus in ([0, 0], [0, 9], [9, 0]))
    np.testing.assert_array_equal(plain, probe)
    assert np.array_equal(plain, first) == (objective != "dreamer")


# --- A task that fails ---


@cache
def learner() -> Learner:
    return Learner(PAPER, SPACES)


def changed_rows(before: LearnerState, after: LearnerState) -> dict[str, list[bool]]:
    """Which rows of each kind of network differ."""
    return {
        name: np.any(np.asarray(before.networks[name].params) != np.asarray(after.networks[name].params), -1).tolist()
        for name in before.networks
    }


def updated(state: LearnerState, data: Arrays) -> tuple[LearnerState, dict[str, Array]]:
    return learner().update(jax.tree.map(jnp.copy, state), data)


ALL = {"model": [True], "intrinsic": [True], "reward": [True, True], "actor": [True] * 3, "critic": [True] * 3}


def test_a_reward_that_is_not_a_number_ends_its_task_and_nothing_else():
    start = learner().init(jax.random.key(0))
    good, metrics = updated(start, batch(0))
    assert check_finite(metrics) == set() and changed_rows(start, good) == ALL
    bad = batch(1)
    bad["reward"][0, 2, 0] = np.nan
    state, metrics = updated(good, bad)
    assert check_finite(metrics) == {"task 0"}
    failed = ALL | {"reward": [False, True], "actor": [True, False, True], "critic": [True, False, True]}
    assert changed_rows(good, state) == failed
    healthy, metrics = updated(state, batch(2))
    assert check_finite(metrics) <= {"task 0"}
    rows = changed_rows(state, healthy)
    assert all(rows["model"] + rows["intrinsic"] + rows["reward"][1:] + rows["actor"][::2] + rows["critic"][::2])


@pytest.mark.parametrize("name", ["reward", "actor", "critic"])
def test_a_network_of_a_task_that_is_not_finite_ends_that_task_and_nothing_else(name):
    state = learner().init(jax.random.key(0))
    row = {"reward": 1}.get(name, 2)
    broken = state.networks[name]._replace(params=state.networks[name].params.at[row].set(jnp.nan))
    state = state._replace(networks=state.networks | {name: broken}, slow_critic=jnp.copy(state.slow_critic))
    for seed in range(2):
        after, metrics = updated(state, batch(seed))
        assert check_finite(metrics) == {"task 1"}
        rows = changed_rows(state, after)
        assert all(rows["model"] + rows["intrinsic"] + rows["reward"][:1] + rows["actor"][:2] + rows["critic"][:2])
        values = {what: float(value) for what, value in metrics.items() if not what.startswith("task 1")}
        assert np.all(np.isfinite(list(values.values())))
        state = after


@pytest.mark.parametrize(("name", "first"), [("model", "model"), ("intrinsic", "intrinsic"), ("critic", "explorer/critic")])
def test_a_model_or_an_explorer_that_is_not_finite_ends_the_run(name, first):
    state = learner().init(jax.random.key(0))
    broken = state.networks[name]._replace(params=state.networks[name].params.at[0].set(jnp.nan))
    slow = jnp.copy(broken.params) if name == "critic" else state.slow_critic
    _, metrics = updated(state._replace(networks=state.networks | {name: broken}, slow_critic=slow), batch())
    with pytest.raises(NotFiniteError, match=f"'{first}'.* was not finite at update 0"):
        check_finite(metrics)
