"""Actor-critics: imagined steps, returns, bounds, and actors that find the best thing to do."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.actor_critic import (
    actor_loss,
    critic_loss,
    draw_noise,
    imagine,
    imagine_trajectories,
    init_stats,
    lambda_returns,
    per_behavior,
    return_scale,
    running_mean,
    update_return_range,
    value_limits,
)
from plan2explore.agent.heads import ScalarHead
from plan2explore.agent.latents import GaussianLatent, draw_normal
from plan2explore.agent.optimizer import Adam, Layout, apply_gradients, init_train_state
from plan2explore.agent.policies import Actor, make_policy
from plan2explore.agent.world_model import RSSM, State
from plan2explore.config import ActorCriticConfig, Spaces

BEHAVIORS, STARTS, ACTION, HORIZON = 2, 3, 2, 4


@pytest.fixture(scope="module")
def latent_world(nano):
    """A latent world with two behaviours in it."""
    config = replace(nano.actor_critic, horizon=HORIZON)
    features = nano.model.deter + nano.model.stoch
    keys, policy = jax.random.split(jax.random.key(0), 2), make_policy(config, Spaces(ACTION))
    rssm = jax.jit(lambda key: RSSM(nano.model, 3, ACTION, key))(jax.random.key(1))
    model = SimpleNamespace(rssm=rssm, continue_head=None)
    actors = jax.jit(jax.vmap(lambda key: Actor(features, policy.outputs, config, key)))(keys)
    critics = jax.jit(jax.vmap(lambda key: ScalarHead(features, 8, 1, key)))(keys)
    start = State(*(draw_normal(key, BEHAVIORS, STARTS, size) for key, size in zip(keys, (8, 4), strict=True)))
    noise = draw_noise(jax.random.key(2), (HORIZON, BEHAVIORS, STARTS), policy, rssm.latent)
    return model, policy, actors, critics, start, noise, config


def rewards(steps, stats):
    """Something that depends on the action and on the state that it led to."""
    return steps.action.sum(-1) + jnp.square(steps.after.features).sum(-1), stats


def trajectories(latent_world, **options):
    model, policy, actors, critics, start, noise, config = latent_world
    alive, stats = jnp.ones(STARTS), init_stats(BEHAVIORS)
    arguments = rewards, start, alive, options.pop("noise", noise), stats, options.pop("config", config)
    return jax.jit(lambda: imagine_trajectories(model, policy, actors, critics, *arguments, **options))()


def test_an_imagined_action_leads_from_the_state_before_it_to_the_state_after_it(latent_world):
    model, policy, actors, _, start, noise, _ = latent_world
    steps = jax.jit(lambda: imagine(model, policy, actors, start, noise, None, 1))()
    assert steps.action.shape == (BEHAVIORS, HORIZON, STARTS, ACTION)
    np.testing.assert_allclose(steps.before.deter[:, 0], start.deter)
    np.testing.assert_allclose(steps.before.stoch[:, 1:], steps.after.stoch[:, :-1])
    # The same convention as in experience: the state after is what the action made of the one before.
    np.testing.assert_allclose(model.rssm.core(*steps.before, steps.action), steps.after.deter, atol=1e-5)
    chosen = policy.sample(per_behavior(actors, steps.before.features), jnp.swapaxes(noise.action, 0, 1))
    np.testing.assert_allclose(chosen, steps.action, atol=1e-5)


def plain_objective(actors, latent_world):
    """The actors' objective as the paper writes it: one step after another, gradients through everything."""
    model, policy, _, critics, state, noise, config = latent_world
    gained, values = [], []
    for t in range(HORIZON):
        action = policy.sample(per_behavior(actors, jax.lax.stop_gradient(state.features)), noise.action[t])
        state = model.rssm.imagine(state, action, noise.state[t])
        gained.append(action.sum(-1) + jnp.square(state.features).sum(-1))
        values.append(per_behavior(critics, state.features))
    total, following, lambda_ = 0.0, values[-1], config.lambda_
    for t in reversed(range(HORIZON)):
        following = gained[t] + config.discount * ((1 - lambda_) * values[t] + lambda_ * following)
        total = total + config.discount**t * following.mean(-1).sum() / HORIZON
    return total


def test_gradients_by_perturbations_are_gradients_through_the_dynamics(latent_world):
    model, policy, actors, critics, start, noise, config = latent_world
    config = replace(config, bound_values=False)
    stats = init_stats(BEHAVIORS)

    @jax.jit
    def both(actors):
        trajectory, _, perturbed = imagine_trajectories(
            model, policy, actors, critics, rewards, start, jnp.ones(STARTS), noise, stats, config
        )
        loss = jax.grad(
            lambda actors: actor_loss(policy, actors, trajectory, noise, perturbed, trajectory.values, stats, config)[0]
        )
        return loss(actors), jax.grad(plain_objective)(actors, latent_world)

    for perturbed, plain in zip(*(jax.tree.leaves(each) for each in both(actors)), strict=True):
        np.testing.assert_allclose(perturbed, -plain, rtol=1e-4, atol=1e-5)
        assert np.abs(plain).max() > 0


def test_reinforce_is_the_score_weighted_by_normalised_advantages(latent_world):
    _, policy, actors, _, _, noise, config = latent_world
    config = replace(config, actor_gradient="reinforce", normalize_returns=True, entropy=0.1)
    trajectory, stats, perturbed = trajectories(latent_world, config=config)
    assert perturbed is None
    stats = update_return_range(stats, trajectory.returns, jnp.zeros((), int))
    baseline, drawn = 0.5 * trajectory.returns, jnp.swapaxes(noise.action, 0, 1)

    def plain(actors):
        output = per_behavior(actors, trajectory.features)
        advantage = (trajectory.returns - baseline) / return_scale(stats, config)[:, None, None]
        gained = advantage * policy.log_prob(output, drawn) + 0.1 * policy.entropy(output, drawn)
        return -(config.discount ** jnp.arange(HORIZON)[:, None] * gained).mean((1, 2)).sum()

    def loss(actors):
        return actor_loss(policy, actors, trajectory, noise, None, baseline, stats, config)[0]

    for got, expected in zip(*(jax.tree.leaves(jax.jit(jax.grad(each))(actors)) for each in (loss, plain)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
        assert np.abs(expected).max() > 0


def test_lambda_returns_at_both_ends_of_lambda():
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 1, HORIZON, 1)).astype(np.float32)
    discount = np.full_like(reward, 0.9)
    np.testing.assert_allclose(lambda_returns(reward, value, discount, 0.0), reward + 0.9 * value, rtol=1e-5)
    whole = lambda_returns(reward, value, discount, 1.0)
    expected = sum(0.9**t * reward[0, t] for t in range(HORIZON)) + 0.9**HORIZON * value[0, -1]
    np.testing.assert_allclose(whole[0, 0], expected, rtol=1e-5)


def test_without_a_critic_the_return_of_one_step_is_its_reward(latent_world):
    noise = jax.tree.map(lambda part: part[:1], latent_world[5])
    trajectory, _, perturbed = trajectories(latent_world, noise=noise, bootstrapped=False)
    np.testing.assert_array_equal(trajectory.returns, trajectory.rewards)
    assert np.abs(perturbed).min() > 0


def test_the_critic_is_weighed_by_the_discount(latent_world):
    _, _, _, critics, _, _, config = latent_world
    trajectory, *_ = trajectories(latent_world)
    errors = 0.5 * np.square(per_behavior(critics, trajectory.features) - trajectory.returns).mean(-1)
    expected = (config.discount ** np.arange(HORIZON) * errors).mean(-1)
    losses, values = critic_loss(critics, trajectory)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(values, per_behavior(critics, trajectory.features), rtol=1e-5)


def test_padded_starts_change_nothing(latent_world):
    """Starts beyond the weights are there for GPUs only."""
    model, policy, actors, critics, start, noise, config = latent_world

    def more(part):
        return jnp.concatenate([part, 7 + part[..., :1, :]], -2)

    padded = model, policy, actors, critics, jax.tree.map(more, start), jax.tree.map(more, noise), config
    (one, stats, grads), (other, stats_padded, grads_padded) = map(trajectories, (latent_world, padded))
    for name in ("rewards", "values", "returns", "actions"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stats_padded.reward_high, stats.reward_high, rtol=1e-5)
    np.testing.assert_allclose(grads_padded[:, :, :STARTS], grads, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(grads_padded[:, :, STARTS:], 0)
    np.testing.assert_allclose(critic_loss(critics, other)[0], critic_loss(critics, one)[0], rtol=1e-5)


# --- Bounds and scales ---


def test_a_critic_beyond_all_bounds_does_not_reach_the_returns(latent_world):
    model, policy, actors, critics, start, noise, config = latent_world
    diverged = jax.tree.map(lambda leaf: 1e6 * leaf, critics)
    trajectory, stats, *_ = trajectories((model, policy, actors, diverged, start, noise, config))
    assert np.abs(trajectory.values).max() > 1e6  # as they are, for metrics
    low, high = value_limits(stats, config)
    low, high = (1.0001 * each[:, None, None] for each in (low, high))
    assert np.all((low <= trajectory.returns) & (trajectory.returns <= high))


def test_returns_are_scaled_by_their_running_range_and_no_less_than_single_rewards():
    config = ActorCriticConfig(normalize_returns=True)
    returns = jnp.asarray(np.linspace(0, 100, 1001)[None, None], jnp.float32)
    stats = update_return_range(init_stats(1), returns, jnp.zeros((), int))
    np.testing.assert_allclose(return_scale(stats, config), 90, rtol=1e-3)
    later = update_return_range(stats, 3 * returns, jnp.ones((), int))
    np.testing.assert_allclose(return_scale(later, config), 0.99 * 90 + 0.01 * 270, rtol=1e-3)
    stats = stats._replace(reward_high=jnp.array([500.0]))
    np.testing.assert_allclose(return_scale(stats, config), 500)
    np.testing.assert_array_equal(return_scale(stats, ActorCriticConfig()), 1)


def test_a_running_mean_starts_with_its_first_value():
    np.testing.assert_allclose(running_mean(jnp.zeros(1), jnp.ones(1), 0.1, jnp.zeros((), int)), 1)
    np.testing.assert_allclose(running_mean(jnp.zeros(1), jnp.ones(1), 0.1, jnp.ones((), int)), 0.1)


class Line:
    """An env with a known best behaviour: a point x on a line, x' = x + a; each step costs x'^2 + a^2.

    With gamma = 0.99 the best action is -k x with k = Q / (1 + Q) and Q = 1 + gamma k. A behaviour that sees
    one step ahead has k = 1/2, so that finding k takes returns from beyond the horizon.
    """

    continue_head = None

    @property
    def rssm(self):
        return self

    def imagine(self, state: State, action: jax.Array, noise: jax.Array) -> State:
        return State(state.deter, state.stoch + action)

    @staticmethod
    def rewards(steps, stats):
        return -jnp.square(steps.after.stoch[..., 0]) - jnp.square(steps.action[..., 0]), stats

    @staticmethod
    def best(discount: float) -> float:
        gain = 0.5
        for _ in range(100):
            gain = (1 + discount * gain) / (2 + discount * gain)
        return gain


@pytest.mark.parametrize("gradient", ["through", "reinforce"])
def test_actor_and_critic_find_the_best_behaviour_of_a_small_env(gradient):
    """Both behaviours reach the optimal gain to 0.04 (by REINFORCE to 0.06), which a one-step behaviour misses by 0.12."""
    config = ActorCriticConfig(
        horizon=3, actor_width=32, actor_depth=2, critic_width=32, critic_depth=2, unroll=1, actor_gradient=gradient
    )
    if gradient == "reinforce":
        config = replace(config, start_std=0.5, min_std=0.1, max_std=1.0)
    policy, latent = make_policy(config, Spaces(1)), GaussianLatent(1, 0.1)
    layouts = (
        Layout(lambda key: Actor(2, policy.outputs, config, key), 2, stacked=True),
        Layout(lambda key: ScalarHead(2, 32, 2, key), 2, stacked=True),
    )
    trained = tuple(init_train_state(jax.jit(layout.init)(jax.random.key(0))) for layout in layouts)
    none, adam = jnp.zeros((), int), Adam(3e-3, 100.0, 1e-6)

    def networks(trained):
        return [layout.unflatten(each.params, jnp.float32) for layout, each in zip(layouts, trained, strict=True)]

    @jax.jit
    def train(trained, keys):
        def step(trained, key):
            start_key, noise_key = jax.random.split(key)
            x = jax.random.uniform(start_key, (2 * 64,), minval=-1, maxval=1).reshape(2, 64, 1)
            noise, stats = draw_noise(noise_key, (3, 2, 64), policy, latent), init_stats(2)
            actors, critics = networks(trained)
            trajectory, stats, perturbed = imagine_trajectories(
                Line(), policy, actors, critics, Line.rewards, State(x * 0, x), jnp.ones(64), noise, stats, config
            )

            def loss(actors, critics):
                losses, values = critic_loss(critics, trajectory)
                return losses.sum() + actor_loss(policy, actors, trajectory, noise, perturbed, values, stats, config)[0]

            grads = jax.grad(loss, (0, 1))(actors, critics)
            after = tuple(
                apply_gradients(each, layout.flatten(grad), jnp.zeros(2), none, adam)[0]
                for layout, each, grad in zip(layouts, trained, grads, strict=True)
            )
            return after, trajectory.returns.mean()

        return jax.lax.scan(step, trained, keys)

    trained, returns = train(trained, jax.random.split(jax.random.key(1), 1500))
    x = jnp.linspace(-0.8, 0.8, 9)[:, None]
    features = jnp.broadcast_to(State(x * 0, x).features, (2, 9, 2))
    action = policy.mode(per_behavior(networks(trained)[0], features))[..., 0]
    best = Line.best(config.discount)
    assert 0.61 < best < 0.62
    gain = -(action * x[:, 0]).sum(-1) / jnp.square(x).sum()
    np.testing.assert_allclose(gain, [best, best], atol=0.04 if gradient == "through" else 0.06)
    assert returns[-50:].mean() > returns[:50].mean()
