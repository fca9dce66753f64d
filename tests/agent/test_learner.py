"""The learner: who may train whom, whole updates, blocks of them, and what happens when numbers go wrong.

Nothing about gradient paths is approximate: what must not be is exactly zero.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax.tree_utils import tree_get

from plan2explore.agent.actor_critic import RANGE_DECAY, init_stats
from plan2explore.agent.learner import Learner, NotFiniteError, check_finite, observe_rewards, open_batch
from plan2explore.agent.optimizer import init_train_state

pytestmark = pytest.mark.xdist_group("nano")  # one worker compiles the nano updates once


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
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))]


def steps_of(state, name):
    """Steps that each row has taken."""
    return tree_get(state.networks[name].opt_state, "count").tolist()


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


def test_slow_critics_follow_the_critics_at_their_rate(modern, state_of, batch_of):
    before = state_of(modern)
    after, batch = copy(before), batch_of()
    ends = {"is_first": batch["is_first"].at[0, 2].set(True), "is_terminal": batch["is_terminal"].at[0, 1].set(True)}
    for _ in range(2):
        after, metrics = modern.update(after, batch | ends)
        assert check_finite(metrics) == set()
    start, slow, fast = before.slow_critic, after.slow_critic, after.networks["critic"].params
    assert 0 < np.abs(slow - start).max() < 0.05 * np.abs(fast - start).max()


def test_an_explored_model_serves_other_tasks_and_may_be_frozen(nano, spaces, learner_of, state_of, batch_of):
    """Adaptation: the model of an explorer, put into another agent with another number of tasks."""
    explored = state_of(learner_of(), seed=5).networks["model"]
    intrinsic = replace(nano.intrinsic, objective="dreamer")
    learner = Learner(replace(nano, intrinsic=intrinsic, learn_model=False), replace(spaces, tasks=1))
    state = state_of(learner)
    before = state._replace(networks=state.networks | {"model": explored})
    batch, sizes = batch_of(), learner.agent.sizes
    features = np.random.default_rng(0).normal(size=(*batch["is_first"].shape, sizes.deter + sizes.stoch)).astype(np.float32)
    with pytest.raises(ValueError, match="The batch lacks features"):
        learner.update(copy(before), batch | {"reward": batch["reward"][..., :1]})
    after, metrics = learner.update(copy(before), batch | {"reward": batch["reward"][..., :1], "features": features})
    np.testing.assert_array_equal(explored.params, after.networks["model"].params)
    for kind in ("reward", "actor", "critic"):
        assert np.all(np.any(before.networks[kind].params != after.networks[kind].params, -1))
    assert "model/gradient" not in metrics


# --- Gradient paths ---


def adams_means(state):
    """After a first update, Adam's mean is a tenth of the clipped gradient."""
    return {name: np.asarray(tree_get(each.opt_state, "mu")) for name, each in state.networks.items()}


def gradients_of(learner, state_of):
    """The gradients of a batch at some parameters."""

    def gradients(params, batch):
        state = state_of(learner)
        networks = {name: init_train_state(jnp.array(params[name], copy=True)) for name in state.networks}
        return adams_means(learner.update(state._replace(networks=networks), batch)[0])

    return gradients


@pytest.fixture(scope="module")
def exploring(learner, state_of):
    return gradients_of(learner, state_of), state_of(learner).params


@pytest.fixture(scope="module")
def supervised(learner_of, state_of):
    learner = learner_of("dreamer")
    return gradients_of(learner, state_of), state_of(learner).params


def other_rewards(batch):
    return batch | {"reward": 3 - 2 * batch["reward"]}


@pytest.mark.parametrize("pieces", ["paper", "modern"])
def test_task_reward_trains_nothing_but_the_tasks_while_exploring(pieces, exploring, modern, state_of, batch_of):
    """Whatever is normalised or bounded by running statistics: exploration's are its own."""
    gradients, params = exploring if pieces == "paper" else (gradients_of(modern, state_of), state_of(modern).params)
    one, other = gradients(params, batch_of()), gradients(params, other_rewards(batch_of()))
    np.testing.assert_array_equal(one["model"], other["model"])
    np.testing.assert_array_equal(one["intrinsic"], other["intrinsic"])
    for kind in ("actor", "critic"):  # tasks' own may change: their imagined rewards are bounded by those in the batch
        np.testing.assert_array_equal(one[kind][0], other[kind][0])
    assert np.all(np.any(one["reward"] != other["reward"], -1))


def test_reward_heads_train_only_their_own_tasks_behaviour(exploring, batch_of):
    gradients, params = exploring
    heads = params["reward"].at[0].multiply(2.0)
    one, other = gradients(params, batch_of()), gradients(params | {"reward": heads}, batch_of())
    for kind in ("model", "intrinsic"):
        np.testing.assert_array_equal(one[kind], other[kind])
    for kind in ("actor", "critic"):  # rows: explorer, task 0, task 1
        changed = np.any(one[kind] != other[kind], -1)
        assert changed.tolist() == [False, True, False]


def test_the_oracles_reward_trains_the_world_model(supervised, batch_of):
    gradients, params = supervised
    one, other = gradients(params, batch_of()), gradients(params, other_rewards(batch_of()))
    assert np.any(one["model"] != other["model"])
    assert one["actor"].shape[0] == 2  # no explorer
    second = batch_of() | {"reward": batch_of()["reward"].at[..., 1].add(9.0)}
    np.testing.assert_array_equal(one["model"], gradients(params, second)["model"])  # the first task's alone


def test_the_ensemble_trains_the_explorer_and_nobody_else(exploring, batch_of):
    gradients, params = exploring
    one, other = gradients(params, batch_of()), gradients(params | {"intrinsic": 1.5 * params["intrinsic"]}, batch_of())
    for kind in ("model", "reward"):
        np.testing.assert_array_equal(one[kind], other[kind])
    for kind in ("actor", "critic"):
        changed = np.any(one[kind] != other[kind], -1)
        assert changed.tolist() == [True, False, False]


def test_behaviours_train_neither_the_world_model_nor_the_ensemble(exploring, batch_of):
    gradients, params = exploring
    changed = {name: 1.5 * params[name] for name in ("actor", "critic")}
    one, other = gradients(params, batch_of()), gradients(params | changed, batch_of())
    for kind in ("model", "intrinsic", "reward"):
        np.testing.assert_array_equal(one[kind], other[kind])


@pytest.mark.parametrize("gradient", ["through", "stopped"])
def test_disagreement_reaches_the_actor_directly_only_when_through(gradient, learner_of, state_of, batch_of, exploring):
    learner = learner_of(gradient=gradient)
    gradients = exploring[0] if gradient == "through" else gradients_of(learner, state_of)
    params = exploring[1]
    mute = params["critic"] * 0  # a critic that values nothing leaves only the direct path
    explorer = gradients(params | {"critic": mute}, batch_of())["actor"][0]
    assert bool(np.any(explorer != 0)) == (gradient == "through")
    # Through a critic that does value something, the actor learns either way. Its values are above 0, as its rewards are.
    valued = params["critic"].at[:, -1].add(10.0)
    assert np.any(gradients(params | {"critic": valued}, batch_of())["actor"][0] != 0)


def test_the_retrospective_actor_learns_and_has_no_use_for_a_critic(learner_of, state_of, batch_of):
    learner = learner_of("retrospective")
    gradients, params = gradients_of(learner, state_of), state_of(learner).params
    one = gradients(params, batch_of())
    other = gradients(params | {"critic": 2 * params["critic"]}, batch_of())
    assert np.any(one["actor"][0] != 0)
    np.testing.assert_array_equal(one["actor"][0], other["actor"][0])
    assert np.any(one["actor"][1] != other["actor"][1])


def test_a_batch_that_lacks_something_is_refused(learner, batch_of):
    batch = batch_of()
    del batch["proprio"]
    with pytest.raises(ValueError, match="lacks proprio"):
        open_batch(learner.agent, batch)
    batch = batch_of() | {"reward": jnp.zeros((3, 4, 1))}
    with pytest.raises(ValueError, match="rewards of 1 tasks"):
        open_batch(learner.agent, batch)


def test_the_range_of_task_rewards_only_widens_and_the_explorers_shrinks(learner):
    stats = init_stats(3)._replace(reward_low=jnp.array([-2.0, -2.0, -2.0]), reward_high=jnp.array([4.0, 4.0, 4.0]))
    rewards = jnp.array([[[-5.0, 1.0]], [[1.0, 7.0]]])
    after = observe_rewards(learner.agent, stats, rewards)
    np.testing.assert_allclose(after.reward_low, [-2 * RANGE_DECAY, -5, -2], rtol=1e-6)
    np.testing.assert_allclose(after.reward_high, [4 * RANGE_DECAY, 4, 7], rtol=1e-6)


# --- Numbers that go wrong ---


def poisoned(batch, update):
    return batch | {"proprio": batch["proprio"].at[update, 0, 1, 0].set(jnp.nan)}


def test_a_bad_number_stops_training_with_the_network_and_the_update(learner, fresh, batch_of):
    state, metrics = learner.update_block(fresh(), poisoned(batch_of(blocks=(2,)), 1))
    with pytest.raises(NotFiniteError, match=r"'model'.*at update 1\."):
        check_finite(metrics)
    # The last good parameters survive: those after update 0.
    assert all(np.isfinite(leaf).all() for leaf in leaves(state))
    good, _ = learner.update_block(fresh(), batch_of(blocks=(2,)))
    assert np.any(state.networks["model"].params != good.networks["model"].params)
    assert steps_of(state, "model") == [1]


def changed_rows(before, after):
    """Which rows of each kind of network differ."""
    return {name: np.any(each.params != after.networks[name].params, -1).tolist() for name, each in before.networks.items()}


ALL = {"model": [True], "intrinsic": [True], "reward": [True] * 2, "actor": [True] * 3, "critic": [True] * 3}


def test_a_reward_that_is_not_a_number_ends_its_task_and_nothing_else(learner, fresh, batch_of):
    batch, start = batch_of(), fresh()
    bad = batch | {"reward": batch["reward"].at[0, 2, 0].set(jnp.nan)}
    state, metrics = learner.update(fresh(), bad)
    assert check_finite(metrics) == {"task 0"}
    failed = {"reward": [False, True], "actor": [True, False, True], "critic": [True, False, True]}
    assert changed_rows(start, state) == ALL | failed
    assert steps_of(state, "reward") == [0, 1] and steps_of(state, "model") == [1]
    assert all(np.isfinite(leaf).all() for leaf in leaves(state))
    healthy, metrics = learner.update(copy(state), batch)
    assert check_finite(metrics) == set() and changed_rows(state, healthy) == ALL


def broken(state, name, row):
    """A state with a network that says nothing but NaN."""
    params = state.networks[name].params.at[row].set(jnp.nan)
    return state._replace(networks=state.networks | {name: state.networks[name]._replace(params=params)})


@pytest.mark.parametrize(("name", "row"), [("reward", 1), ("actor", 2), ("critic", 2)])
def test_a_network_of_a_task_that_is_not_finite_ends_that_task_and_nothing_else(name, row, learner, fresh, batch_of):
    state = broken(fresh(), name, row)
    after, metrics = learner.update(copy(state), batch_of())
    assert check_finite(metrics) == {"task 1"}
    rows = changed_rows(state, after)
    assert all(rows["model"] + rows["intrinsic"] + rows["reward"][:1] + rows["actor"][:2] + rows["critic"][:2])
    assert np.all(np.isfinite([value for what, value in metrics.items() if not what.startswith("task 1")]))


@pytest.mark.parametrize(("name", "first"), [("model", "model"), ("intrinsic", "intrinsic"), ("critic", "explorer/critic")])
def test_a_model_or_an_explorer_that_is_not_finite_ends_the_run(name, first, learner, fresh, batch_of):
    _, metrics = learner.update(broken(fresh(), name, 0), batch_of())
    with pytest.raises(NotFiniteError, match=f"'{first}'.* was not finite at update 0"):
        check_finite(metrics)


@pytest.mark.parametrize("name", ["model", "intrinsic", "explorer/actor", "explorer/critic"])
def test_what_exploration_needs_must_stay_finite(name):
    flags = {f"{each}/finite": np.ones(3) for each in ("model", "intrinsic", "explorer/actor", "explorer/critic")}
    flags |= {"update": np.array([7, 8, 9]), "task 0/actor/finite": np.array([0, 1, 1])}
    assert check_finite(flags) == {"task 0"}
    with pytest.raises(NotFiniteError, match=rf"of '{name}' was not finite at update 8\."):
        check_finite(flags | {f"{name}/finite": np.array([1, 0, 0])})


def test_the_network_where_trouble_began_is_named_first():
    flags = {f"{name}/finite": np.zeros(1) for name in ("explorer/actor", "intrinsic", "model")}
    with pytest.raises(NotFiniteError, match=r"'model' \(and then of intrinsic, explorer/actor\)"):
        check_finite(flags | {"update": np.zeros(1)})


def test_good_numbers_pass(learner, fresh, batch_of):
    _, metrics = learner.update_block(fresh(), batch_of(blocks=(2,)))
    assert check_finite(metrics) == set()
    flags = {name for name in metrics if name.endswith("/finite")}
    rows = sum(len(learner.agent.labels(kind)) for kind in learner.agent.layouts)
    assert len(flags) == rows


# --- Precision ---


def test_both_precisions_end_at_the_same_losses(nano, spaces, state_of):
    """After 200 updates on one batch losses have halved, and bfloat16's are within 5 % of float32's."""
    time = np.arange(12).reshape(3, 4)
    proprio = np.stack([np.sin((0.3 + 0.2 * i) * time) for i in range(5)], -1)
    batch = {"proprio": proprio, "action": proprio[..., 3:], "reward": proprio[..., :2]}
    batches = {name: jnp.tile(jnp.asarray(values, jnp.float32), (200, 1, 1, 1)) for name, values in batch.items()}
    batches |= {name: jnp.zeros((200, 3, 4), bool) for name in ("is_first", "is_terminal")}
    model = replace(nano.model, deter=32, hidden=32, stoch=8, learning_rate=3e-3)
    config = replace(nano, model=model, intrinsic=replace(nano.intrinsic, width=32, learning_rate=3e-3))
    ends = {}
    for precision in ("float32", "bfloat16"):
        learner = Learner(replace(config, precision=precision), spaces)
        state, metrics = learner.update_block(state_of(learner), batches)
        check_finite(metrics)
        assert all(each.params.dtype == jnp.float32 for each in state.networks.values())
        assert learner.carry(1).state.deter.dtype == precision
        ends[precision] = jax.device_get(metrics)
    for name in ("model/loss", "model/proprio", "intrinsic/loss", "task 0/reward_loss", "explorer/reward"):
        full, half = (ends[precision][name] for precision in ("float32", "bfloat16"))
        assert full[-20:].mean() < 0.5 * full[:5].mean(), f"{name} did not fall"
        np.testing.assert_allclose(half[-20:].mean(), full[-20:].mean(), rtol=0.05, err_msg=name)


def test_gradients_point_the_same_way_in_both_precisions(nano, spaces, state_of, batch_of):
    """One update: each network's gradient in bfloat16 has a cosine above 0.98 with float32's, losses are within 3 %."""
    found = {}
    for precision in ("float32", "bfloat16"):
        learner = Learner(replace(nano, precision=precision), spaces)
        state, metrics = learner.update(state_of(learner), batch_of())
        found[precision] = adams_means(state), metrics
    (full, full_metrics), (half, half_metrics) = found["float32"], found["bfloat16"]
    for name, rows in full.items():
        for one, other in zip(rows, half[name], strict=True):
            assert one @ other > 0.98 * np.linalg.norm(one) * np.linalg.norm(other), name
    for name in ("model/loss", "intrinsic/loss", "task 0/reward_loss", "task 1/critic_loss"):
        np.testing.assert_allclose(half_metrics[name], full_metrics[name], rtol=0.03, err_msg=name)
