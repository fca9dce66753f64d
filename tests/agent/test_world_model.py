"""The world model: what it knows at each step, what its loss is, and that it can learn."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.distributions import normal_kl, normal_sample
from plan2explore.agent.learner import Learner
from plan2explore.agent.world_model import (
    RSSM,
    Observation,
    State,
    WorldModel,
    center,
    draw_normal,
    infer_states,
    model_loss,
    squared_miss,
)
from plan2explore.config import AgentConfig, ModelConfig, NoveltyConfig, Spaces, tiny

TIME, BATCH, ACTION, EMBEDDING = 5, 3, 2, 6


@pytest.fixture(scope="module")
def rssm(nano):
    return RSSM(nano.model, EMBEDDING, ACTION, jax.random.key(0))


@pytest.fixture(scope="module")
def sequence():
    action_key, embedding_key = jax.random.split(jax.random.key(1))
    actions = draw_normal(action_key, TIME, BATCH, ACTION)
    return actions, draw_normal(embedding_key, TIME, BATCH, EMBEDDING)


@pytest.fixture(scope="module")
def observe(rssm):
    return jax.jit(lambda actions, embeddings: rssm.observe(actions, embeddings, jax.random.key(2)))


def test_observing_a_sequence_is_inferring_step_by_step_from_the_zero_state(rssm, sequence, observe):
    observed, noise = observe(*sequence), draw_normal(jax.random.key(2), TIME, BATCH, rssm.stoch)
    state = rssm.start(BATCH)
    assert not state.deter.any() and not state.stoch.any()
    for t, (action, embedding) in enumerate(zip(*sequence, strict=True)):
        prior = rssm.prior(rssm.recur(state, action))
        state = rssm.infer(state, action, embedding, noise[t])
        np.testing.assert_allclose(observed.states.deter[t], state.deter, atol=1e-5)
        np.testing.assert_allclose(observed.states.stoch[t], state.stoch, atol=1e-5)
        np.testing.assert_allclose(observed.prior.mean[t], prior.mean, atol=1e-5)
        np.testing.assert_allclose(observed.prior.std[t], prior.std, atol=1e-5)
        np.testing.assert_allclose(normal_sample(observed.posterior, noise)[t], state.stoch, atol=1e-5)


def test_observing_has_the_gradients_of_inferring_step_by_step(rssm, sequence):
    """What is computed before and after the loop, instead of inside it, changes no gradient."""
    noise = draw_normal(jax.random.key(2), TIME, BATCH, rssm.stoch)

    def plainly(rssm, actions, embeddings):
        state, total = rssm.start(BATCH), 0.0
        for t in range(TIME):
            prior = rssm.prior(rssm.recur(state, actions[t]))
            posterior = rssm.posterior(rssm.recur(state, actions[t]), embeddings[t])
            state = rssm.infer(state, actions[t], embeddings[t], noise[t])
            total += jnp.sin(state.features).sum() + normal_kl(posterior, prior).sum()
        return total

    def at_once(rssm, actions, embeddings):
        observed = rssm.observe(actions, embeddings, jax.random.key(2))
        return jnp.sin(observed.states.features).sum() + normal_kl(observed.posterior, observed.prior).sum()

    expected, got = (
        jax.jit(jax.value_and_grad(function, (0, 1, 2)))(rssm, *sequence) for function in (plainly, at_once)
    )
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("what", [0, 1], ids=["action", "embedding"])
def test_step_t_is_changed_by_what_is_stored_at_t_and_not_before(sequence, observe, what):
    t = 2
    other = list(sequence)
    other[what] = other[what].at[t].add(1.0)
    before, after = observe(*sequence), observe(*other)
    changed = [
        bool(np.any(np.asarray(old) != np.asarray(new)))
        for old, new in zip(before.states.stoch, after.states.stoch, strict=True)
    ]
    assert changed == [False, False, True, True, True]
    # The prior of step t knows the action that led to it, but not its observation.
    assert bool(np.any(before.prior.mean[t] != after.prior.mean[t])) == (what == 0)
    np.testing.assert_array_equal(before.prior.mean[:t], after.prior.mean[:t])


def test_the_deviation_of_a_state_has_a_floor(rssm):
    prior = rssm.prior(jnp.full((1, rssm.deter), -100.0))
    assert prior.std.min() >= rssm.min_std


@pytest.fixture(scope="module")
def both(nano):
    """A model that sees pictures and proprioception, with something to see."""
    spaces = Spaces(action=ACTION, image=16, proprio=5)
    rng = np.random.default_rng(0)
    observation = Observation(
        jnp.asarray(rng.integers(0, 256, (TIME, BATCH, 16, 16, 3)), jnp.uint8),
        jnp.asarray(rng.normal(size=(TIME, BATCH, 5)), jnp.float32),
    )
    return WorldModel(nano.model, spaces, jax.random.key(0)), observation


def test_the_embedding_is_the_pictures_beside_proprioception(both):
    model, observation = both
    embedding = model.encode(observation)
    pixels = model.image_encoder(center(observation.image))
    np.testing.assert_allclose(embedding[..., : pixels.shape[-1]], pixels, atol=1e-6)
    np.testing.assert_allclose(
        embedding[..., pixels.shape[-1] :], model.proprio_encoder(observation.proprio), atol=1e-6
    )
    assert embedding.shape[-1] == model.embedding


def test_pixels_are_centred():
    np.testing.assert_allclose(center(jnp.asarray([0, 255], jnp.uint8)), [-0.5, 0.5])


def test_the_loss_is_the_evidence_bound_with_free_nats_at_each_step(both, sequence):
    model, observation = both
    key = jax.random.key(3)
    loss, seen = jax.jit(model_loss)(model, observation, sequence[0], key)
    features = seen.observed.states.features
    image = 0.5 * np.square(model.image_decoder(features) - center(observation.image)).sum((-1, -2, -3))
    proprio = 0.5 * np.square(model.proprio_decoder(features) - observation.proprio).sum(-1)
    kl = normal_kl(seen.observed.posterior, seen.observed.prior)
    np.testing.assert_allclose(seen.costs["image"], image, rtol=1e-4)
    np.testing.assert_allclose(seen.costs["proprio"], proprio, rtol=1e-4)
    np.testing.assert_allclose(seen.costs["kl"], kl, rtol=1e-4)
    expected = image.mean() + proprio.mean() + np.maximum(kl, model.config.free_nats).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_scales_weigh_the_terms_of_the_loss(nano, sequence):
    spaces = Spaces(action=ACTION, image=None, proprio=5)
    config = replace(nano.model, proprio_scale=2.0, kl_scale=3.0, free_nats=0.0)
    model = WorldModel(config, spaces, jax.random.key(0))
    observation = Observation(proprio=jnp.ones((TIME, BATCH, 5)))
    loss, seen = jax.jit(model_loss)(model, observation, sequence[0], jax.random.key(0))
    np.testing.assert_allclose(
        loss, 2 * seen.costs["proprio"].mean() + 3 * seen.costs["kl"].mean(), rtol=1e-5
    )


def test_dequantisation_adds_less_than_one_grey_level(both, sequence):
    model, observation = both
    noisy = replace(model.config, dequantise=True)
    model_noisy = WorldModel(noisy, Spaces(action=ACTION, image=16, proprio=5), jax.random.key(0))
    key = jax.random.key(5)
    plain, seen = jax.jit(model_loss)(model, observation, sequence[0], key)
    changed, seen_noisy = jax.jit(model_loss)(model_noisy, observation, sequence[0], key)
    assert 0 < abs(float(changed - plain)) < 0.05 * float(plain)
    gap = np.abs(seen_noisy.embeddings - seen.embeddings)
    assert 0 < gap.max() < 0.05


def test_states_can_be_inferred_without_a_loss(both, sequence):
    model, observation = both
    seen = jax.jit(infer_states)(model, observation, sequence[0], jax.random.key(0))
    assert seen.observed.states.deter.shape == (TIME, BATCH, model.config.deter)
    assert seen.costs == {}


def test_a_squared_miss_is_half_the_squared_distance():
    np.testing.assert_allclose(squared_miss(jnp.asarray([[1.0, 2.0]]), jnp.asarray([[0.0, 4.0]])), [2.5])


def test_imagining_follows_the_prior(rssm):
    state = State(jnp.ones((BATCH, rssm.deter)), jnp.ones((BATCH, rssm.stoch)))
    action, noise = jnp.full((BATCH, ACTION), 0.5), draw_normal(jax.random.key(0), BATCH, rssm.stoch)
    after = rssm.imagine(state, action, noise)
    prior = rssm.prior(rssm.recur(state, action))
    np.testing.assert_allclose(after.stoch, prior.mean + prior.std * noise, rtol=1e-6)


def bouncing_ball(steps: int) -> dict[str, np.ndarray]:
    """An episode of pictures: a bright square that the action pushes left and right between two walls."""
    rng = np.random.default_rng(0)
    x, images, actions = 6.0, [], []
    action = 0.0
    for _ in range(steps):
        image = np.zeros((16, 16, 3), np.uint8)
        image[6:10, int(x) : int(x) + 4] = (255, 180, 60)
        images.append(image)
        actions.append([action])
        action = rng.uniform(-1, 1)
        x = float(np.clip(x + 4 * action, 0, 12))
    return {"image": np.stack(images), "action": np.asarray(actions, np.float32)}


def test_the_model_fits_a_recorded_episode():
    """After 200 updates on one episode, pictures cost less than a tenth of what they cost at first."""
    model = replace(tiny.model, deter=32, hidden=32, conv_depth=4, free_nats=1.0, learning_rate=2e-3)
    config = replace(tiny, model=model, novelty=NoveltyConfig(objective="random"))
    learner = Learner(config, Spaces(action=1, image=16, tasks=0))
    episode = bouncing_ball(64)
    batches = {name: jnp.asarray(np.stack([np.split(steps, 4)] * 200)) for name, steps in episode.items()}
    state = learner.init(jax.random.key(0))
    state, metrics = learner.update_block(state, batches)
    image = np.asarray(metrics["model/image"])
    assert image[-10:].mean() < image[0] / 10
    assert np.isfinite(image).all()


def test_presets_are_values_that_can_be_changed():
    changed = replace(tiny, model=replace(tiny.model, deter=7))
    assert isinstance(changed, AgentConfig) and isinstance(changed.model, ModelConfig)
    assert changed.model.deter == 7 and tiny.model.deter != 7
