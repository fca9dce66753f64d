"""Acting: what is carried between steps, and whose policy acts how."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.world_model import Observation

pytestmark = pytest.mark.xdist_group("nano")  # one worker compiles the nano agent once
ENVIRONMENTS = 3


@pytest.fixture(scope="module")
def learner(learner_of):
    return learner_of()


@pytest.fixture(scope="module")
def fresh(learner, state_of):
    state = state_of(learner)
    return lambda: jax.tree.map(lambda leaf: leaf.copy(), state)


@pytest.fixture(scope="module")
def observation():
    rng = np.random.default_rng(0)
    return Observation(proprio=jnp.asarray(rng.normal(size=(ENVIRONMENTS, 5)), jnp.float32))


def test_what_is_carried_is_forgotten_at_the_first_step(learner, fresh, observation):
    state, key, none = fresh(), jax.random.key(1), jnp.zeros(ENVIRONMENTS, bool)
    action, carried = learner.act(state, learner.carry(ENVIRONMENTS), observation, none, key, "sample")
    np.testing.assert_array_equal(carried.action, action)
    new, _ = learner.act(state, learner.carry(ENVIRONMENTS), observation, none, key, "sample")
    first = jnp.asarray([True, False, False])
    mixed, _ = learner.act(state, carried, observation, first, key, "sample")
    np.testing.assert_array_equal(mixed[0], new[0])
    assert np.all(np.any(mixed[1:] != new[1:], -1))


def test_modes_and_policies_differ(learner, fresh, observation):
    state, key, first = fresh(), jax.random.key(1), jnp.ones(ENVIRONMENTS, bool)
    carried = learner.carry(ENVIRONMENTS)
    actions = {mode: learner.act(state, carried, observation, first, key, mode)[0] for mode in ("sample", "noise", "mode")}
    actions |= {f"task {i}": learner.act(state, carried, observation, first, key, "sample", task=i)[0] for i in (0, 1)}
    for one, action in actions.items():
        assert action.shape == (ENVIRONMENTS, 2) and np.abs(action).max() <= 1
        assert all(np.any(action != other) for name, other in actions.items() if name != one)
    with pytest.raises(ValueError, match="no task 2"):
        learner.act(state, carried, observation, first, key, "sample", task=2)


def test_random_exploration_is_uniform(learner_of, state_of, observation):
    learner = learner_of("random")
    state = state_of(learner)
    carried, first = learner.carry(ENVIRONMENTS), jnp.ones(ENVIRONMENTS, bool)
    drawn = [learner.act(state, carried, observation, first, jax.random.key(i))[0] for i in range(300)]
    drawn = np.asarray(drawn)
    np.testing.assert_allclose(drawn.mean((0, 1)), 0, atol=0.08)
    np.testing.assert_allclose(drawn.std((0, 1)), 1 / np.sqrt(3), atol=0.04)


def test_the_oracle_collects_with_its_task(learner_of, state_of, observation):
    learner = learner_of("dreamer")
    state, key = state_of(learner), jax.random.key(0)
    carried, first = learner.carry(ENVIRONMENTS), jnp.ones(ENVIRONMENTS, bool)
    collecting, _ = learner.act(state, carried, observation, first, key, "sample")
    task, _ = learner.act(state, carried, observation, first, key, "sample", task=0)
    np.testing.assert_array_equal(collecting, task)


def test_discrete_actions_are_one_hot(modern, state_of, observation):
    state, carried, first = state_of(modern), modern.carry(ENVIRONMENTS), jnp.ones(ENVIRONMENTS, bool)
    for mode in ("sample", "noise", "mode"):
        action, carried = modern.act(state, carried, observation, first, jax.random.key(0), mode)
        np.testing.assert_array_equal(np.sort(action, -1), [[0, 1]] * ENVIRONMENTS)
