"""The world model: what it knows at each step, what its loss is, and that it can learn."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.latents import draw_normal
from plan2explore.agent.learner import Learner
from plan2explore.agent.world_model import (
    RSSM,
    Observation,
    Sequences,
    State,
    WorldModel,
    center,
    gaussian_nll,
    infer_states,
    kl_loss,
    model_loss,
)
from plan2explore.config import IntrinsicConfig, Spaces, tiny

TIME, BATCH, ACTION, EMBEDDING = 5, 3, 2, 6


CORES = {"gru": {}, "block_gru": {"core": "block_gru", "latent": "categorical", "blocks": 2, "classes": 3, "norm": True}}


def sequences(observation: Observation, actions: jax.Array, **flags: jax.Array) -> Sequences:
    """A batch without rewards, and without starts and ends of episodes unless they are given."""
    none = jnp.zeros(actions.shape[:2], bool)
    marks = {"is_first": none, "is_terminal": none} | flags
    return Sequences(observation, actions, jnp.zeros((*none.shape, 0)), **marks)


@pytest.fixture(scope="module", params=CORES)
def rssm(nano, request):
    """The paper's latent dynamics, and DreamerV3's."""
    return RSSM(replace(nano.model, **CORES[request.param]), EMBEDDING, ACTION, jax.random.key(0))


@pytest.fixture(scope="module")
def sequence():
    action_key, embedding_key = jax.random.split(jax.random.key(1))
    actions = draw_normal(action_key, TIME, BATCH, ACTION)
    return actions, draw_normal(embedding_key, TIME, BATCH, EMBEDDING)


@pytest.fixture(scope="module")
def observe(rssm):
    never = jnp.zeros((TIME, BATCH), bool)

    @jax.jit
    def observe(actions, embeddings):
        states, _ = rssm.observe(actions, embeddings, never, jax.random.key(2))
        return states.features, jax.tree.leaves(rssm.prior(states.deter))[0]

    return observe


@pytest.mark.parametrize("what", [0, 1], ids=["action", "embedding"])
def test_step_t_is_changed_by_what_is_stored_at_t_and_not_before(sequence, observe, what):
    t = 2
    other = list(sequence)
    other[what] = other[what].at[t].add(1.0)
    (features, prior), (other_features, other_prior) = observe(*sequence), observe(*other)
    assert np.any(features != other_features, (1, 2)).tolist() == [False, False, True, True, True]
    # The prior of step t knows the action that led to it, but not its observation.
    assert bool(np.any(prior[t] != other_prior[t])) == (what == 0)
    np.testing.assert_array_equal(prior[:t], other_prior[:t])


@pytest.fixture(scope="module")
def both(nano):
    """A model that observes images and proprioception, with something to observe."""
    spaces = Spaces(action=ACTION, image=16, proprio=5)
    rng = np.random.default_rng(0)
    observation = Observation(
        jnp.asarray(rng.integers(0, 256, (TIME, BATCH, 16, 16, 3)), jnp.uint8),
        jnp.asarray(rng.normal(size=(TIME, BATCH, 5)), jnp.float32),
    )
    return WorldModel(nano.model, spaces, jax.random.key(0)), observation


def test_the_embedding_is_that_of_images_beside_that_of_proprioception(both):
    model, observation = both
    embedding = model.encode(observation)
    pixels = model.image_encoder(center(observation.image))
    np.testing.assert_allclose(embedding[..., : pixels.shape[-1]], pixels, atol=1e-6)
    np.testing.assert_allclose(embedding[..., pixels.shape[-1] :], model.proprio_encoder(observation.proprio), atol=1e-6)
    assert embedding.shape[-1] == model.embedding


def test_pixels_are_centred():
    np.testing.assert_allclose(center(jnp.asarray([0, 255], jnp.uint8)), [-0.5, 0.5])


def test_the_loss_is_the_evidence_bound_with_free_nats_at_each_step(both, sequence):
    model, observation = both
    model = WorldModel(replace(model.config, free_nats=2.0), Spaces(ACTION, image=16, proprio=5), jax.random.key(0))
    loss, output = jax.jit(model_loss)(model, sequences(observation, sequence[0]), jax.random.key(3))
    features, kl = output.states.features, output.losses["kl"]
    image = 0.5 * np.square(model.image_decoder(features) - center(observation.image)).sum((-1, -2, -3))
    proprio = 0.5 * np.square(model.proprio_decoder(features) - observation.proprio).sum(-1)
    np.testing.assert_allclose(output.losses["image"], image, rtol=1e-4)
    np.testing.assert_allclose(output.losses["proprio"], proprio, rtol=1e-4)
    states, posterior, _ = infer_states(model, sequences(observation, sequence[0]), jax.random.split(jax.random.key(3))[1])
    np.testing.assert_allclose(kl, model.rssm.latent.kl(posterior, model.rssm.prior(states.deter)), rtol=1e-4)
    assert kl.min() < 2 < kl.max()
    np.testing.assert_allclose(loss, image.mean() + proprio.mean() + np.maximum(kl, 2.0).mean(), rtol=1e-5)


def test_scales_weigh_the_terms_of_the_loss(nano, sequence):
    spaces = Spaces(action=ACTION, image=None, proprio=5)
    config = replace(nano.model, proprio_scale=2.0, kl_scale=3.0, rep_scale=0.5, free_nats=0.0)
    model = WorldModel(config, spaces, jax.random.key(0))
    batch = sequences(Observation(proprio=jnp.ones((TIME, BATCH, 5))), sequence[0])
    loss, output = jax.jit(model_loss)(model, batch, jax.random.key(0))
    expected = 2 * output.losses["proprio"].mean() + (3 + 0.5) * output.losses["kl"].mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


@pytest.mark.parametrize("core", CORES)
def test_unequal_scales_train_the_prior_and_the_posterior_apart(nano, core):
    """DreamerV3: the dynamics loss stops at the posterior, the representation loss at the prior."""
    spaces, grads = Spaces(action=ACTION, image=None, proprio=5), {}
    for name, scales in {"both": (1.0, 1.0), "apart": (1.0, 0.1)}.items():
        config = replace(nano.model, **CORES[core], kl_scale=scales[0], rep_scale=scales[1], free_nats=0.0)
        model = WorldModel(config, spaces, jax.random.key(0))
        outputs = (draw_normal(jax.random.key(seed), BATCH, model.rssm.latent.outputs) for seed in (1, 2))
        posterior, prior = map(model.rssm.latent.dist, outputs)
        loss = jax.grad(lambda dists, model=model: kl_loss(model, *dists)[0].sum())
        grads[name] = loss((posterior, prior))
    for part, scale in enumerate((0.1, 1.0)):  # of the posterior, of the prior
        pairs = zip(jax.tree.leaves(grads["apart"][part]), jax.tree.leaves(grads["both"][part]), strict=True)
        for apart, both in pairs:
            assert np.abs(both).max() > 0
            np.testing.assert_allclose(apart, scale * both, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("gradient", [True, False])
def test_the_continue_head_learns_where_episodes_terminate(nano, sequence, gradient):
    spaces = Spaces(action=ACTION, image=None, proprio=5, terminates=True)
    config = replace(nano.model, continue_gradient=gradient)
    model, key = WorldModel(config, spaces, jax.random.key(0)), jax.random.key(1)
    observation = Observation(proprio=draw_normal(key, TIME, BATCH, 5))
    ends = jnp.zeros((TIME, BATCH), bool).at[-1, 0].set(True)

    @jax.jit
    def gradients(model, ends):
        batch = sequences(observation, sequence[0], is_terminal=ends)
        return jax.value_and_grad(lambda model: model_loss(model, batch, key), has_aux=True)(model)

    (_, output), grads = gradients(model, ends)
    expected = model.continue_head.loss(model.continue_head.mlp(output.states.features), 1.0 - ends)
    np.testing.assert_allclose(output.losses["continue"], expected, rtol=1e-4)
    _, others = gradients(model, ~ends)
    changed = {
        name: any(
            np.any(one != other)
            for one, other in zip(*(jax.tree.leaves(getattr(each, name)) for each in (grads, others)), strict=True)
        )
        for name in ("continue_head", "rssm", "proprio_encoder", "proprio_decoder")
    }
    assert changed == {
        "continue_head": True, "rssm": gradient, "proprio_encoder": gradient, "proprio_decoder": False
    }  # fmt: skip


def test_without_terminations_there_is_no_continue_head(both):
    assert both[0].continue_head is None


def test_dequantisation_adds_less_than_one_grey_level(both, sequence):
    model, observation = both
    noisy = replace(model.config, dequantise=True)
    model_noisy = WorldModel(noisy, Spaces(action=ACTION, image=16, proprio=5), jax.random.key(0))
    key, batch = jax.random.key(5), sequences(observation, sequence[0])
    plain, output = jax.jit(model_loss)(model, batch, key)
    changed, output_noisy = jax.jit(model_loss)(model_noisy, batch, key)
    assert 0 < abs(float(changed - plain)) < 0.05 * float(plain)
    gap = np.abs(output_noisy.embeddings - output.embeddings)
    assert 0 < gap.max() < 0.05


def test_a_gaussians_likelihood_is_half_the_squared_distance():
    np.testing.assert_allclose(gaussian_nll(jnp.asarray([[1.0, 2.0]]), jnp.asarray([[0.0, 4.0]])), [2.5])


def test_imagining_follows_the_prior(rssm):
    state = State(jnp.ones((BATCH, rssm.deter)), jnp.ones((BATCH, rssm.latent.size)))
    action, noise = jnp.full((BATCH, ACTION), 0.5), rssm.latent.noise(jax.random.key(0), BATCH)
    prior = rssm.prior(rssm.core(*state, action))
    after = rssm.imagine(state, action, noise)
    np.testing.assert_allclose(after.stoch, rssm.latent.sample(prior, noise), rtol=1e-6)
    mode = rssm.imagine(state, action, None)
    np.testing.assert_allclose(mode.stoch, rssm.latent.mode(prior), rtol=1e-6)


def bouncing_ball(steps: int) -> dict[str, np.ndarray]:
    """An episode of images: a bright square that the action pushes left and right between two walls."""
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
    """After 200 updates on one episode, the image loss is less than a tenth of what it was at first."""
    model = replace(tiny.model, deter=32, hidden=32, conv_depth=4, free_nats=1.0, learning_rate=2e-3)
    config = replace(tiny, model=model, intrinsic=IntrinsicConfig(objective="random"))
    learner = Learner(config, Spaces(action=1, image=16, tasks=0))
    episode = bouncing_ball(64)
    episode |= {"is_first": np.arange(64) == 0, "is_terminal": np.zeros(64, bool)}
    batches = {name: jnp.asarray(np.stack([np.split(steps, 4)] * 200)) for name, steps in episode.items()}
    state = learner.init(jax.random.key(0))
    state, metrics = learner.update_block(state, batches)
    image = np.asarray(metrics["model/image"])
    assert image[-10:].mean() < image[0] / 10
    assert np.isfinite(image).all()
