"""Looking into an agent gives what its parts give, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent import inspect
from plan2explore.agent.intrinsic import Transition
from plan2explore.agent.intrinsic.ensemble import disagreement, one_step_inputs
from plan2explore.agent.world_model import Observation, State

KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def inspected(learner_of, state_of, batch_of):
    learner = learner_of()
    params = state_of(learner).params
    batch = {name: jnp.swapaxes(values, 0, 1) for name, values in batch_of().items()}
    return learner.agent, params, Observation(proprio=batch["proprio"]), batch["action"]


def step_by_step(agent, params, observation, actions, key):
    """The posterior's states by `infer`, one after the other, with the noise that `observe` draws."""
    model = agent.network("model", params["model"])
    noise = model.rssm.latent.noise(key, *actions.shape[:2])
    state, states = model.rssm.initial(actions.shape[1]), []
    for step, action in enumerate(actions):
        embedding = model.encode(Observation(proprio=observation.proprio[step]))
        state, _ = model.rssm.infer(state, action, embedding, noise[step])
        states.append(state)
    return State(*(jnp.stack(part) for part in zip(*states, strict=True)))


def test_states_are_those_inferred_step_by_step(inspected):
    found, expected = inspect.posterior_states(*inspected, KEY), step_by_step(*inspected, KEY)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_intrinsic_reward_is_the_scaled_variance_of_the_members(inspected):
    agent, params, _, actions = inspected
    states, config = step_by_step(*inspected, KEY), agent.config.intrinsic
    found = inspect.intrinsic_rewards(*inspected, KEY)
    assert found.shape == (len(actions) - 1, actions.shape[1])
    for step in range(len(actions) - 1):
        before, after = (State(*(part[step + more] for part in states)) for more in (0, 1))
        inputs = one_step_inputs(Transition(before, actions[step + 1], after), config)
        expected = config.scale * disagreement(agent.network("intrinsic", params["intrinsic"])(inputs))
        np.testing.assert_allclose(found[step], expected, rtol=1e-3)


def test_an_objective_without_a_reward_is_refused(inspected, learner_of):
    with pytest.raises(ValueError, match="'random' has no reward"):
        inspect.intrinsic_rewards(learner_of("random").agent, *inspected[1:], KEY)


def test_open_loop_sees_the_context_only(inspected):
    agent, params, observation, actions = inspected
    guess = inspect.open_loop(agent, params, observation, actions, KEY, 2).proprio
    other = observation.proprio.at[2:].add(5.0)
    same = inspect.open_loop(agent, params, Observation(proprio=other), actions, KEY, 2).proprio
    np.testing.assert_array_equal(same, guess)
    changed = observation.proprio.at[1].add(5.0)
    another = inspect.open_loop(agent, params, Observation(proprio=changed), actions, KEY, 2).proprio
    assert np.abs(another - guess)[1:].max() > 1e-3


def test_open_loop_decodes_posteriors_and_then_the_priors_modes(inspected):
    agent, params, observation, actions = inspected
    model = agent.network("model", params["model"])
    guess = inspect.open_loop(agent, params, observation, actions, KEY, 2).proprio
    first = Observation(proprio=observation.proprio[:2])
    known = step_by_step(agent, params, first, actions[:2], KEY)
    np.testing.assert_allclose(guess[:2], model.proprio_decoder(known.features), rtol=1e-4, atol=1e-5)
    state = State(*(part[-1] for part in known))
    deter = model.rssm.core(*state, actions[2])
    imagined = State(deter, model.rssm.prior(deter).mean)
    np.testing.assert_allclose(guess[2], model.proprio_decoder(imagined.features), rtol=1e-4, atol=1e-5)


def test_decoded_images_become_bytes():
    np.testing.assert_array_equal(inspect.to_pixels(np.array([-0.7, -0.5, 0.0, 0.5, 2.0])), [0, 0, 128, 255, 255])


def test_a_difference_is_grey_where_there_is_none():
    true, imagined = np.array([7, 0, 255, 100], np.uint8), np.array([7, 255, 0, 90], np.uint8)
    np.testing.assert_array_equal(inspect.difference(true, imagined), [128, 255, 0, 123])
