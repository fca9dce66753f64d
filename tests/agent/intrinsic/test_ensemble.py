"""The ensemble: one-step models of what an action does, and their disagreement."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.intrinsic.ensemble import (
    Ensemble,
    bootstrap_mean,
    bootstrap_weights,
    disagreement,
    ensemble_loss,
    input_size,
    one_step_inputs,
    one_step_targets,
    target_size,
)
from plan2explore.agent.intrinsic.objective import Experience, Sizes, Transition
from plan2explore.agent.optimizer import Adam, Layout, apply_gradients, init_train_state
from plan2explore.agent.world_model import State
from plan2explore.config import IntrinsicConfig

SIZES = Sizes(deter=4, stoch=3, embedding=2, action=2)
CONFIG = IntrinsicConfig(members=3, width=32, depth=2)
TIME, BATCH = 6, 16


def make_ensemble(config: IntrinsicConfig, key: jax.Array) -> Ensemble:
    return Ensemble(config, input_size(config, SIZES), target_size(config, SIZES), key)


def action_world(seed: int) -> Experience:
    """States and actions are noise; the next embedding is the square of the action *taken from* a state."""
    rng = np.random.default_rng(seed)

    def draw(size):
        return jnp.asarray(rng.uniform(-1, 1, (TIME, BATCH, size)), jnp.float32)

    actions = draw(SIZES.action)
    nothing = jnp.zeros((TIME, BATCH))
    return Experience(State(draw(4), draw(3)), actions, jnp.square(actions), nothing, nothing.astype(bool))


@pytest.mark.parametrize("inputs", ["deter", "state"])
def test_the_ensemble_learns_what_an_action_does_with_one_convention(inputs):
    """Alignment: learnable only if the action is the one taken from a state, and in imagination the same."""
    config = replace(CONFIG, inputs=inputs)
    layout = Layout(lambda key: make_ensemble(config, key))

    @jax.jit
    def train(state, experiences):
        def step(state, experience):
            def loss(ensemble):
                return ensemble_loss(ensemble, experience, jax.random.key(0), config).sum()

            total, grads = jax.value_and_grad(loss)(layout.unflatten(state.params, jnp.float32))
            adam = Adam(3e-3, 100.0, 1e-6)
            return apply_gradients(state, layout.flatten(grads), total[None], jnp.zeros((), int), adam)[0], total

        return jax.lax.scan(step, state, experiences)

    experiences = jax.tree.map(lambda *parts: jnp.stack(parts), *(action_world(seed) for seed in range(300)))
    state, losses = train(init_train_state(layout.init(jax.random.key(0))), experiences)
    # What no one can know costs 1/2 sum_d Var(a_d^2) = 4/45 a member: the loss must fall far below it.
    unknowable = 3 * 2 * 0.5 * (1 / 5 - 1 / 9)
    assert losses[:5].mean() > unknowable
    assert losses[-20:].mean() < 0.1 * unknowable

    rng = np.random.default_rng(9)

    def draw(size):
        return jnp.asarray(rng.uniform(-1, 1, (50, size)), jnp.float32)

    imagined = Transition(State(draw(4), draw(3)), draw(2), State(draw(4), draw(3)))
    predicted = layout.unflatten(state.params, jnp.float32)(one_step_inputs(imagined, config))
    np.testing.assert_allclose(predicted.mean(0), np.square(imagined.action), atol=0.15)


def test_transitions_pair_each_state_with_the_action_taken_from_it():
    time = jnp.arange(5.0)[:, None, None]
    states = State(time * 10, time * 100)
    # Stored action t led to state t: it was taken from state t - 1.
    experience = Experience(states, time, time, time[..., 0], time[..., 0] < 0)
    steps = experience.transitions()
    assert steps.before.deter.ravel().tolist() == [0, 10, 20, 30]
    assert steps.action.ravel().tolist() == [1, 2, 3, 4]
    assert steps.after.stoch.ravel().tolist() == [100, 200, 300, 400]


def test_inputs_and_targets_follow_their_switches():
    experience = action_world(0)
    steps = experience.transitions()
    deter = one_step_inputs(steps, replace(CONFIG, inputs="deter"))
    np.testing.assert_array_equal(deter, np.concatenate([steps.after.deter, steps.action], -1))
    state = one_step_inputs(steps, replace(CONFIG, inputs="state"))
    np.testing.assert_array_equal(state, np.concatenate([steps.before.deter, steps.before.stoch, steps.action], -1))
    targets = {
        "embedding": experience.embeddings[1:],
        "deter": steps.after.deter,
        "stoch": steps.after.stoch,
        "state": steps.after.features,
    }
    for name, expected in targets.items():
        config = replace(CONFIG, target=name)
        np.testing.assert_array_equal(one_step_targets(experience, config), expected)
        assert target_size(config, SIZES) == expected.shape[-1]
    for inputs, given in (("deter", deter), ("state", state)):
        assert input_size(replace(CONFIG, inputs=inputs), SIZES) == given.shape[-1]


def test_disagreement_is_the_unbiased_variance_averaged_over_dimensions():
    predictions = np.random.default_rng(0).normal(size=(5, 3, 4, 7)).astype(np.float32)
    expected = predictions.var(0, ddof=1).mean(-1)
    np.testing.assert_allclose(disagreement(jnp.asarray(predictions)), expected, rtol=1e-5)


def unbroken(time: int, sequences: int) -> Experience:
    """Sequences without an episode's start, of which only that matters."""
    steps = jnp.zeros((time, sequences))
    return Experience(State(steps, steps), steps, steps, steps, steps.astype(bool))


def test_a_bootstrap_by_weights_is_a_bootstrap_by_copies():
    key, sequences = jax.random.key(0), 8
    drawn = jax.random.randint(key, (3 * sequences,), 0, sequences).reshape(3, sequences)
    weights = bootstrap_weights(key, 3, sequences)
    np.testing.assert_array_equal(weights.sum(1), [sequences] * 3)
    assert len({tuple(row) for row in weights.tolist()}) == 3  # every member draws its own
    losses = jnp.asarray(np.random.default_rng(0).normal(size=(3, TIME - 1, sequences)), jnp.float32)
    copied = np.stack([np.asarray(losses[k])[:, drawn[k]].mean() for k in range(3)])
    experience = unbroken(TIME, sequences)
    np.testing.assert_allclose(bootstrap_mean(experience, losses, key, CONFIG), copied, rtol=1e-5)
    without = bootstrap_mean(experience, losses, key, replace(CONFIG, bootstrap=False))
    np.testing.assert_allclose(without, losses.mean((1, 2)), rtol=1e-6)


def test_no_transition_leads_to_the_first_step_of_an_episode():
    """What the members make of a step across an episode's end teaches them nothing."""
    config, experience = replace(CONFIG, bootstrap=False), action_world(0)
    experience = experience._replace(is_first=experience.is_first.at[0].set(True).at[3, 2].set(True))
    ensemble, key = make_ensemble(config, jax.random.key(0)), jax.random.key(1)
    other = experience._replace(
        states=State(*(part.at[3, 2].add(9.0) for part in experience.states)),
        actions=experience.actions.at[3, 2].add(9.0),
        embeddings=experience.embeddings.at[3, 2].add(9.0),
    )
    one, same = (ensemble_loss(ensemble, each, key, config) for each in (experience, other))
    np.testing.assert_array_equal(one, same)
    squares = np.square(ensemble(one_step_inputs(experience.transitions(), config)) - experience.embeddings[1:])
    valid = np.ones((TIME - 1, BATCH), bool)
    valid[2, 2] = False
    np.testing.assert_allclose(one, [0.5 * member.sum(-1)[valid].mean() for member in squares], rtol=1e-5)


def test_the_released_codes_loss_is_the_mean_of_squares():
    """A likelihood sums half of them over dimensions instead."""
    config = replace(CONFIG, target="state")
    ensemble, experience, key = make_ensemble(config, jax.random.key(0)), action_world(0), jax.random.key(1)
    likelihood, mean = (ensemble_loss(ensemble, experience, key, replace(config, loss=loss)) for loss in ("sum", "mean"))
    np.testing.assert_allclose(likelihood, target_size(config, SIZES) / 2 * mean, rtol=1e-5)
    assert likelihood.min() > 0


def test_members_start_apart_and_each_learns_from_its_own_loss():
    ensemble, experience = make_ensemble(CONFIG, jax.random.key(0)), action_world(0)
    inputs = one_step_inputs(experience.transitions(), CONFIG)
    assert disagreement(ensemble(inputs)).min() > 0

    def losses(ensemble):
        return ensemble_loss(ensemble, experience, jax.random.key(0), CONFIG)

    for leaf in jax.tree.leaves(jax.jit(jax.jacrev(losses))(ensemble)):
        touched = np.any(np.asarray(leaf).reshape(3, 3, -1) != 0, -1)  # (loss of a member, weights of a member)
        np.testing.assert_array_equal(touched, np.eye(3, dtype=bool))
