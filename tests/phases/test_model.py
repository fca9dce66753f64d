"""A run's world model as an object: what it infers, imagines and predicts is what its networks say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nano import TASKS

import plan2explore as p2e
from plan2explore.agent.world_model import State

pytestmark = pytest.mark.xdist_group("phases")


@pytest.fixture(scope="module")
def model(overlapped):
    return overlapped.run.model()


@pytest.fixture(scope="module")
def episode(overlapped):
    return next(overlapped.run.episodes())


@pytest.fixture(scope="module")
def networks(model):
    names = ("model", "intrinsic", "reward")
    return {name: model._agent.network(name, model._params[name]) for name in names}


def assert_close(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)


def test_states_are_inferred_step_by_step_as_the_networks_do(model, episode, networks):
    net, state = networks["model"], model.observe(episode.proprio[0])
    batch = model.observe({"proprio": np.stack([episode.proprio[0]] * 2)})
    before, taken = model.initial(1), np.zeros((1, 1), np.float32)
    for step in range(3):
        embedding = net.proprio_encoder(jnp.asarray(episode.proprio[None, step]))
        before, _ = net.rssm.infer(before, taken, embedding, None)
        assert_close(state, jax.tree.map(lambda part: part[0], before))
        assert_close(batch, jax.tree.map(lambda part: jnp.stack([part[0]] * 2), before))
        taken = episode.action[step + 1][None]
        state = model.observe(episode.proprio[step + 1], episode.action[step + 1], state)
        batch = model.observe(np.stack([episode.proprio[step + 1]] * 2), np.stack([episode.action[step + 1]] * 2), batch)
    sampled = [model.observe(episode.proprio[0], key=jax.random.key(seed)) for seed in (0, 0, 1)]
    assert_close(sampled[0], sampled[1])
    assert not np.array_equal(sampled[0].stoch, sampled[2].stoch) and np.array_equal(sampled[0].deter, sampled[2].deter)


def test_one_start_or_many_are_imagined_along_any_number_of_actions(model, episode):
    start = model.observe(episode.proprio[0])
    actions = np.random.default_rng(0).uniform(-1, 1, (4, 6, 1)).astype(np.float32)
    together = model.imagine(start, actions)
    assert together.deter.shape == (4, 6, 8) and together.stoch.shape == (4, 6, 4)
    state = start
    for step, action in enumerate(actions[:, 2]):
        state = jax.tree.map(lambda part: part[0], model.imagine(state, action[None]))
        assert_close(state, jax.tree.map(lambda part, step=step: part[step, 2], together))
    many = State(*(jnp.stack([part] * 6) for part in start))
    assert_close(model.imagine(many, actions), together)
    assert_close(jax.jit(model.imagine)(start, actions), together)
    one, other = (model.imagine(start, actions, jax.random.key(seed)) for seed in (0, 1))
    assert not np.array_equal(one.stoch, other.stoch)


def test_what_is_predicted_of_states_is_what_the_heads_say(model, episode, networks):
    state = model.imagine(model.observe(episode.proprio[0]), episode.action[1:4])
    decoded = model.decode(state)
    assert list(decoded) == ["proprio"] and decoded["proprio"].shape == (3, 5)
    assert_close(decoded["proprio"], networks["model"].proprio_decoder(state.features))
    assert model.tasks == TASKS
    for row, task in enumerate(TASKS):
        expected = jax.tree.map(lambda leaf, row=row: leaf[row], networks["reward"])(state.features)
        assert_close(model.reward(state, task), expected)
    assert model.continues(state).tolist() == [1.0, 1.0, 1.0]  # the suite's episodes never terminate


def test_disagreement_is_the_variance_of_the_ensemble(model, episode, networks):
    state = model.imagine(model.observe(episode.proprio[0]), episode.action[1:4])
    action = episode.action[4:7]
    after = networks["model"].rssm.imagine(state, action, None)
    predictions = np.asarray(networks["intrinsic"](np.concatenate([after.deter, action], -1)))
    assert_close(model.disagreement(state, action), predictions.var(0, ddof=1).mean(-1))


def test_a_policy_has_the_model_with_its_tasks_reward(adapted, model, episode):
    policy, _ = adapted
    own = policy.model()
    state = own.observe(episode.proprio[0])
    assert own.tasks == (TASKS[0],) and np.isfinite(own.reward(state, TASKS[0]))
    assert_close(state, model.observe(episode.proprio[0]))  # zero-shot adaptation leaves the model as it is
    with pytest.raises(ValueError, match="the method 'dreamer' has no ensemble that could disagree"):
        own.disagreement(state, episode.action[1])


def test_an_earlier_snapshot_is_another_model_and_mistakes_are_said(model, overlapped, episode):
    early = overlapped.run.model(at=2000)
    assert isinstance(early, p2e.Model)
    assert not np.array_equal(early.observe(episode.proprio[0]).stoch, model.observe(episode.proprio[0]).stoch)
    with pytest.raises(ValueError, match="predicts no reward of 'walker_walk'; its tasks: cartpole_balance, cartpole_sw"):
        model.reward(model.initial(), "walker_walk")
    with pytest.raises(ValueError, match="Give both the action that led to an observation and the state before it"):
        model.observe(episode.proprio[0], episode.action[0])
