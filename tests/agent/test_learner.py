"""The learner: whole updates, blocks of them, acting, and what happens when numbers go wrong."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax.tree_utils import tree_get

from plan2explore.agent.learner import Learner, NotFiniteError, check_finite
from plan2explore.agent.novelty import OBJECTIVES
from plan2explore.agent.world_model import Observation

pytestmark = pytest.mark.xdist_group("nano")  # one worker compiles the nano updates once
ENVIRONMENTS = 3


def copy(state):
    return jax.tree.map(lambda leaf: leaf.copy(), state)


@pytest.fixture(scope="module")
def learner(learner_of):
    return learner_of()


@pytest.fixture(scope="module")
def fresh(learner):
    state = learner.init(jax.random.key(0))
    return lambda: copy(state)


def leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state.parts)] + [jax.random.key_data(state.key)]


def steps_of(part):
    """Steps that each row has taken."""
    return tree_get(part.memory, "count").tolist()


def test_a_block_is_its_updates_one_by_one(learner, fresh, batch_of):
    batches = batch_of(blocks=(2,))
    block, metrics = learner.update_block(fresh(), batches)
    assert metrics["update"].tolist() == [0, 1]
    assert all(values.shape == (2,) for values in metrics.values())
    state = fresh()
    for i in range(2):
        state, single = learner.update(state, {name: values[i] for name, values in batches.items()})
        for name, value in single.items():
            np.testing.assert_allclose(metrics[name][i], value, rtol=1e-4, atol=1e-5, err_msg=name)
    assert int(block.update) == int(state.update) == 2
    for one, other in zip(leaves(block), leaves(state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_what_was_compiled_early_is_not_compiled_again(learner, fresh, batch_of, caplog):
    batches = batch_of(blocks=(3,))
    forms = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in batches.items()}
    state = fresh()
    for work, compiles in ((learner.compile_block, True), (learner.update_block, False)):
        caplog.clear()
        with jax.log_compiles():
            work(state, forms if compiles else batches)
        assert ("Compiling jit(run)" in caplog.text) == compiles


def test_the_same_seed_gives_the_same_result_bit_by_bit(learner, fresh, batch_of):
    batches = batch_of(blocks=(2,))
    runs = [learner.update_block(fresh(), batches) for _ in range(2)]
    for one, other in zip(*(leaves(state) for state, _ in runs), strict=True):
        np.testing.assert_array_equal(one, other)
    for name in runs[0][1]:
        np.testing.assert_array_equal(runs[0][1][name], runs[1][1][name])
    again = learner.init(jax.random.key(0))
    for one, other in zip(leaves(again), leaves(fresh()), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_everything_that_should_learn_moves(objective, learner_of, state_of, batch_of):
    """Every array of every network changes in training, whatever the objective."""
    learner = learner_of(objective)
    before = state_of(learner)
    after = copy(before)
    for seed in range(2):
        after, metrics = learner.update(after, batch_of(seed))
        check_finite(metrics)
    for name, layout in learner.agent.layouts.items():
        cuts = np.cumsum(layout.sizes)[:-1]
        for old, new in zip(before.parts[name].rows, after.parts[name].rows, strict=True):
            for index, pair in enumerate(zip(np.split(old, cuts), np.split(new, cuts), strict=True)):
                assert np.any(pair[0] != pair[1]) or not pair[0].size, f"array {index} of {name} did not move"


def test_an_explored_model_serves_other_tasks_and_may_be_frozen(nano, spaces, learner_of, state_of, batch_of):
    """Adaptation: the model of an explorer, put into another agent with another number of tasks."""
    explored = state_of(learner_of(), seed=5).parts["model"]
    novelty = replace(nano.novelty, objective="dreamer")
    learner = Learner(replace(nano, novelty=novelty, learn_model=False), replace(spaces, tasks=1))
    state = state_of(learner)
    before = state._replace(parts=state.parts | {"model": explored})
    after, metrics = learner.update(copy(before), batch_of() | {"reward": batch_of()["reward"][..., :1]})
    np.testing.assert_array_equal(explored.rows, after.parts["model"].rows)
    for part in ("reward", "actor", "critic"):
        assert np.all(np.any(before.parts[part].rows != after.parts[part].rows, -1))
    assert "model/gradient" not in metrics


# --- Numbers that go wrong ---


def poisoned(batch, update):
    return batch | {"proprio": batch["proprio"].at[update, 0, 1, 0].set(jnp.nan)}


def test_a_bad_number_stops_training_with_the_part_and_the_update(learner, fresh, batch_of):
    state, metrics = learner.update_block(fresh(), poisoned(batch_of(blocks=(2,)), 1))
    with pytest.raises(NotFiniteError, match=r"'model'.*at update 1\."):
        check_finite(metrics)
    # The last good parameters survive: those after update 0.
    assert all(np.isfinite(leaf).all() for leaf in leaves(state))
    good, _ = learner.update_block(fresh(), batch_of(blocks=(2,)))
    assert np.any(state.parts["model"].rows != good.parts["model"].rows)
    assert steps_of(state.parts["model"]) == [1]


def test_one_bad_probe_is_named_and_the_others_go_on(learner, fresh, batch_of):
    before, batches = fresh(), batch_of(blocks=(2,))
    bad = batches | {"reward": batches["reward"].at[0, 0, 0, 1].set(jnp.inf)}
    after, metrics = learner.update_block(copy(before), bad)
    with pytest.raises(NotFiniteError, match=r"'task 1/reward' was not finite at update 0"):
        check_finite(metrics)
    assert steps_of(after.parts["reward"]) == [2, 1]
    assert steps_of(after.parts["model"]) == [2]


def test_good_numbers_pass(learner, fresh, batch_of):
    _, metrics = learner.update_block(fresh(), batch_of(blocks=(2,)))
    check_finite(metrics)
    flags = {name for name in metrics if name.endswith("/finite")}
    rows = sum(len(learner.agent.labels(part)) for part in learner.agent.layouts)
    assert len(flags) == rows


# --- Acting ---


@pytest.fixture(scope="module")
def seeing():
    rng = np.random.default_rng(0)
    return Observation(proprio=jnp.asarray(rng.normal(size=(ENVIRONMENTS, 5)), jnp.float32))


def test_what_is_carried_is_forgotten_at_the_first_step(learner, fresh, seeing):
    state, key, none = fresh(), jax.random.key(1), jnp.zeros(ENVIRONMENTS, bool)
    action, carried = learner.act(state, learner.carry(ENVIRONMENTS), seeing, none, key, "sample")
    np.testing.assert_array_equal(carried.action, action)
    new, _ = learner.act(state, learner.carry(ENVIRONMENTS), seeing, none, key, "sample")
    first = jnp.asarray([True, False, False])
    mixed, _ = learner.act(state, carried, seeing, first, key, "sample")
    np.testing.assert_array_equal(mixed[0], new[0])
    assert np.all(np.any(mixed[1:] != new[1:], -1))


def test_modes_and_policies_differ(learner, fresh, seeing):
    state, key, first = fresh(), jax.random.key(1), jnp.ones(ENVIRONMENTS, bool)
    carried = learner.carry(ENVIRONMENTS)
    actions = {
        mode: learner.act(state, carried, seeing, first, key, mode)[0] for mode in ("sample", "noise", "mode")
    }
    actions |= {
        f"task {i}": learner.act(state, carried, seeing, first, key, "sample", task=i)[0] for i in (0, 1)
    }
    for one, action in actions.items():
        assert action.shape == (ENVIRONMENTS, 2) and np.abs(action).max() <= 1
        assert all(np.any(action != other) for name, other in actions.items() if name != one)
    with pytest.raises(ValueError, match="no task 2"):
        learner.act(state, carried, seeing, first, key, "sample", task=2)


def test_random_exploration_is_uniform(learner_of, state_of, seeing):
    learner = learner_of("random")
    state = state_of(learner)
    carried, first = learner.carry(ENVIRONMENTS), jnp.ones(ENVIRONMENTS, bool)
    drawn = [learner.act(state, carried, seeing, first, jax.random.key(i))[0] for i in range(300)]
    drawn = np.asarray(drawn)
    np.testing.assert_allclose(drawn.mean((0, 1)), 0, atol=0.08)
    np.testing.assert_allclose(drawn.std((0, 1)), 1 / np.sqrt(3), atol=0.04)


def test_the_oracle_collects_with_its_task(learner_of, state_of, seeing):
    learner = learner_of("dreamer")
    state, key = state_of(learner), jax.random.key(0)
    carried, first = learner.carry(ENVIRONMENTS), jnp.ones(ENVIRONMENTS, bool)
    collecting, _ = learner.act(state, carried, seeing, first, key, "sample")
    task, _ = learner.act(state, carried, seeing, first, key, "sample", task=0)
    np.testing.assert_array_equal(collecting, task)


# --- Precision ---


def test_both_precisions_end_at_the_same_losses(nano, spaces, state_of):
    """After 200 updates on one batch losses have halved, and bfloat16's are within 5 % of float32's."""
    time = np.arange(12).reshape(3, 4)
    proprio = np.stack([np.sin((0.3 + 0.2 * i) * time) for i in range(5)], -1)
    batch = {"proprio": proprio, "action": proprio[..., 3:], "reward": proprio[..., :2]}
    batches = {name: jnp.tile(jnp.asarray(values, jnp.float32), (200, 1, 1, 1)) for name, values in batch.items()}
    model = replace(nano.model, deter=32, hidden=32, stoch=8, learning_rate=3e-3)
    config = replace(nano, model=model, novelty=replace(nano.novelty, width=32, learning_rate=3e-3))
    ends = {}
    for precision in ("float32", "bfloat16"):
        learner = Learner(replace(config, precision=precision), spaces)
        state, metrics = learner.update_block(state_of(learner), batches)
        check_finite(metrics)
        assert all(part.rows.dtype == jnp.float32 for part in state.parts.values())
        assert learner.carry(1).state.deter.dtype == precision
        ends[precision] = jax.device_get(metrics)
    for name in ("model/loss", "model/proprio", "novelty/loss", "task 0/reward_loss", "explorer/reward"):
        full, half = (ends[precision][name] for precision in ("float32", "bfloat16"))
        assert full[-20:].mean() < 0.5 * full[:5].mean(), f"{name} did not fall"
        np.testing.assert_allclose(half[-20:].mean(), full[-20:].mean(), rtol=0.05, err_msg=name)


def test_gradients_point_the_same_way_in_both_precisions(nano, spaces, state_of, batch_of):
    """One update: every part's gradient in bfloat16 has a cosine of at least 0.98 with float32's, losses are within 3 %."""
    taught = {}
    for precision in ("float32", "bfloat16"):
        learner = Learner(replace(nano, precision=precision), spaces)
        state, metrics = learner.update(state_of(learner), batch_of())
        taught[precision] = {name: np.asarray(tree_get(part.memory, "mu")) for name, part in state.parts.items()}, metrics
    (full, full_metrics), (half, half_metrics) = taught["float32"], taught["bfloat16"]
    for name, rows in full.items():
        for one, other in zip(rows, half[name], strict=True):
            assert one @ other > 0.98 * np.linalg.norm(one) * np.linalg.norm(other), name
    for name in ("model/loss", "novelty/loss", "task 0/reward_loss", "task 1/critic_loss"):
        np.testing.assert_allclose(half_metrics[name], full_metrics[name], rtol=0.03, err_msg=name)
