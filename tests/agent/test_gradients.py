"""Gradient paths: who may teach whom. Nothing here is approximate: what must not be is exactly zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax.tree_utils import tree_get

from plan2explore.agent.gradients import open_batch
from plan2explore.agent.parts import Part, init_part

pytestmark = pytest.mark.xdist_group("nano")  # one worker compiles the nano updates once


def rows_of(state):
    return {name: part.rows for name, part in state.parts.items()}


def lessons_of(learner, state_of):
    """The gradients of a batch: after a first update, Adam's mean is a tenth of the clipped gradient."""

    def gradients(rows, batch):
        state = state_of(learner)
        parts = {name: init_part(jnp.array(rows[name], copy=True)) for name in state.parts}
        after, _ = learner.update(state._replace(parts=parts), batch)
        return {name: np.asarray(tree_get(part.memory, "mu")) for name, part in after.parts.items()}

    return gradients


@pytest.fixture(scope="module")
def exploring(learner_of, state_of):
    learner = learner_of()
    return lessons_of(learner, state_of), rows_of(state_of(learner))


@pytest.fixture(scope="module")
def supervised(learner_of, state_of):
    learner = learner_of("dreamer")
    return lessons_of(learner, state_of), rows_of(state_of(learner))


def other_rewards(batch):
    return batch | {"reward": 3 - 2 * batch["reward"]}


def test_task_reward_teaches_nothing_but_the_tasks_while_exploring(exploring, batch_of):
    gradients, rows = exploring
    one, other = gradients(rows, batch_of()), gradients(rows, other_rewards(batch_of()))
    np.testing.assert_array_equal(one["model"], other["model"])
    np.testing.assert_array_equal(one["novelty"], other["novelty"])
    np.testing.assert_array_equal(
        one["actor"], other["actor"]
    )  # imagined rewards come from the heads' parameters
    assert np.all(np.any(one["reward"] != other["reward"], -1))


def test_reward_heads_teach_only_their_own_tasks_behaviour(exploring, batch_of):
    gradients, rows = exploring
    heads = rows["reward"].at[0].multiply(2.0)
    one, other = gradients(rows, batch_of()), gradients(rows | {"reward": heads}, batch_of())
    for part in ("model", "novelty"):
        np.testing.assert_array_equal(one[part], other[part])
    for part in ("actor", "critic"):  # rows: explorer, task 0, task 1
        changed = np.any(one[part] != other[part], -1)
        assert changed.tolist() == [False, True, False]


def test_the_oracles_reward_teaches_the_world_model(supervised, batch_of):
    gradients, rows = supervised
    one, other = gradients(rows, batch_of()), gradients(rows, other_rewards(batch_of()))
    assert np.any(one["model"] != other["model"])
    assert one["actor"].shape[0] == 2  # no explorer


def test_the_ensemble_teaches_the_explorer_and_nobody_else(exploring, batch_of):
    gradients, rows = exploring
    one, other = gradients(rows, batch_of()), gradients(rows | {"novelty": 1.5 * rows["novelty"]}, batch_of())
    for part in ("model", "reward"):
        np.testing.assert_array_equal(one[part], other[part])
    for part in ("actor", "critic"):
        changed = np.any(one[part] != other[part], -1)
        assert changed.tolist() == [True, False, False]


def test_behaviours_teach_neither_the_world_model_nor_the_ensemble(exploring, batch_of):
    gradients, rows = exploring
    changed = {name: 1.5 * rows[name] for name in ("actor", "critic")}
    one, other = gradients(rows, batch_of()), gradients(rows | changed, batch_of())
    for part in ("model", "novelty", "reward"):
        np.testing.assert_array_equal(one[part], other[part])


@pytest.mark.parametrize("gradient", ["through", "stopped"])
def test_disagreement_reaches_the_actor_directly_only_when_through(
    gradient, learner_of, state_of, batch_of, exploring
):
    learner = learner_of(gradient=gradient)
    gradients = exploring[0] if gradient == "through" else lessons_of(learner, state_of)
    rows = exploring[1]
    mute = rows["critic"] * 0  # a critic that values nothing leaves only the direct path
    explorer = gradients(rows | {"critic": mute}, batch_of())["actor"][0]
    assert bool(np.any(explorer != 0)) == (gradient == "through")
    # Through a critic that does value something, the actor learns either way.
    assert np.any(gradients(rows, batch_of())["actor"][0] != 0)


def test_the_retrospective_actor_learns_and_has_no_use_for_a_critic(learner_of, state_of, batch_of):
    learner = learner_of("retrospective")
    gradients, rows = lessons_of(learner, state_of), rows_of(state_of(learner))
    one = gradients(rows, batch_of())
    other = gradients(rows | {"critic": 2 * rows["critic"]}, batch_of())
    assert np.any(one["actor"][0] != 0)
    np.testing.assert_array_equal(one["actor"][0], other["actor"][0])
    assert np.any(one["actor"][1] != other["actor"][1])


def test_a_batch_that_lacks_something_is_refused(learner_of, batch_of):
    batch = batch_of()
    del batch["proprio"]
    with pytest.raises(ValueError, match="lacks proprio"):
        open_batch(learner_of().agent, batch)
    batch = batch_of() | {"reward": jnp.zeros((3, 4, 1))}
    with pytest.raises(ValueError, match="rewards of 1 tasks"):
        open_batch(learner_of().agent, batch)


def test_parts_are_plain_arrays(state_of, learner_of):
    state = state_of(learner_of())
    assert all(isinstance(part, Part) for part in state.parts.values())
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
