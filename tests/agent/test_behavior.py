"""Behaviours: imagined steps, returns, and actors that find the best thing to do."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.behavior import (
    Actor,
    Scalar,
    actor_loss,
    critic_loss,
    discounted_returns,
    draw_noise,
    dream,
    imagine,
    per_row,
)
from plan2explore.agent.distributions import tanh_normal_mode, tanh_normal_sample
from plan2explore.agent.parts import Adam, Layout, init_part, train_part
from plan2explore.agent.world_model import RSSM, State, draw_normal
from plan2explore.config import BehaviorConfig

ROWS, STARTS, ACTION, HORIZON = 2, 3, 2, 4


@pytest.fixture(scope="module")
def world(nano):
    """A latent world with two behaviours in it."""
    config = replace(nano.behavior, horizon=HORIZON)
    features = nano.model.deter + nano.model.stoch
    keys = jax.random.split(jax.random.key(0), 2)
    rssm = jax.jit(lambda key: RSSM(nano.model, 3, ACTION, key))(jax.random.key(1))
    actors = jax.jit(jax.vmap(lambda key: Actor(features, ACTION, config, key)))(keys)
    critics = jax.jit(jax.vmap(lambda key: Scalar(features, 8, 1, key)))(keys)
    start = State(*(draw_normal(key, ROWS, STARTS, size) for key, size in zip(keys, (8, 4), strict=True)))
    noise = draw_noise(jax.random.key(2), (HORIZON, ROWS, STARTS), ACTION, nano.model.stoch)
    return rssm, actors, critics, start, noise, config


def rewards(steps):
    """Something that depends on the action and on the state that it led to."""
    return steps.action.sum(-1) + jnp.square(steps.after.features).sum(-1)


def test_an_imagined_action_leads_from_the_state_before_it_to_the_state_after_it(world):
    rssm, actors, _, start, noise, _ = world
    steps = jax.jit(lambda nudges: imagine(rssm, actors, start, noise, nudges, 1))(
        jnp.zeros_like(noise.action)
    )
    assert steps.action.shape == (ROWS, HORIZON, STARTS, ACTION)
    np.testing.assert_allclose(steps.before.deter[:, 0], start.deter)
    np.testing.assert_allclose(steps.before.stoch[:, 1:], steps.after.stoch[:, :-1])
    # The same convention as in experience: the state after is what the action made of the one before.
    np.testing.assert_allclose(rssm.recur(steps.before, steps.action), steps.after.deter, atol=1e-5)
    chosen = tanh_normal_sample(per_row(actors, steps.before.features), jnp.swapaxes(noise.action, 0, 1))
    np.testing.assert_allclose(chosen, steps.action, atol=1e-5)


def plain_objective(actors, rssm, critics, start, noise, config):
    """The actors' objective as the paper writes it: one step after another, gradients through everything."""
    state, gained, values = start, [], []
    for t in range(HORIZON):
        policy = per_row(actors, jax.lax.stop_gradient(state.features))
        action = tanh_normal_sample(policy, noise.action[t])
        state = rssm.imagine(state, action, noise.state[t])
        gained.append(action.sum(-1) + jnp.square(state.features).sum(-1))
        values.append(per_row(critics, state.features))
    total, following = 0.0, values[-1]
    for t in reversed(range(HORIZON)):
        following = gained[t] + config.discount * ((1 - config.trace) * values[t] + config.trace * following)
        total = total + config.discount**t * following.mean(-1).sum() / HORIZON
    return total


def test_teaching_actors_by_nudges_is_the_gradient_through_the_dynamics(world):
    rssm, actors, critics, start, noise, config = world

    @jax.jit
    def both(actors):
        dreamt, gradient = dream(rssm, actors, critics, rewards, start, noise, config)
        taught = jax.grad(actor_loss)(actors, dreamt, noise, gradient)
        return taught, jax.grad(plain_objective)(actors, rssm, critics, start, noise, config)

    for nudged, plain in zip(*(jax.tree.leaves(each) for each in both(actors)), strict=True):
        np.testing.assert_allclose(nudged, -plain, rtol=1e-4, atol=1e-5)
        assert np.abs(plain).max() > 0


def test_returns_are_those_of_a_plain_loop():
    config = BehaviorConfig(discount=0.9, trace=0.7)
    rng = np.random.default_rng(0)
    gained, values = rng.normal(size=(2, ROWS, HORIZON, STARTS)).astype(np.float32)
    following, expected = values[:, -1], np.zeros_like(gained)
    for t in reversed(range(HORIZON)):
        following = gained[:, t] + 0.9 * (0.3 * values[:, t] + 0.7 * following)
        expected[:, t] = following
    np.testing.assert_allclose(discounted_returns(gained, values, config), expected, rtol=1e-5)


def test_without_a_critic_the_return_of_one_step_is_its_reward(world):
    rssm, actors, critics, start, noise, config = world
    noise = jax.tree.map(lambda part: part[:1], noise)
    run = jax.jit(lambda: dream(rssm, actors, critics, rewards, start, noise, config, bootstrapped=False))
    dreamt, gradient = run()
    np.testing.assert_array_equal(dreamt.returns, dreamt.rewards)
    assert np.abs(gradient).min() > 0


def test_the_critic_is_weighed_by_the_discount(world):
    rssm, actors, critics, start, noise, config = world
    dreamt, _ = jax.jit(lambda: dream(rssm, actors, critics, rewards, start, noise, config))()
    misses = 0.5 * np.square(per_row(critics, dreamt.sources) - dreamt.returns).mean(-1)
    expected = (config.discount ** np.arange(HORIZON) * misses).mean(-1)
    np.testing.assert_allclose(critic_loss(critics, dreamt), expected, rtol=1e-4)


class Line:
    """A world with a known best behaviour: a point x on a line, x' = x + a; each step costs x'^2 + a^2.

    With gamma = 0.99 the best action is -k x with k = Q / (1 + Q) and Q = 1 + gamma k. A behaviour that sees
    one step ahead has k = 1/2, so that finding k takes returns from beyond the horizon.
    """

    def imagine(self, state: State, action: jax.Array, noise: jax.Array) -> State:
        return State(state.deter, state.stoch + action)

    @staticmethod
    def rewards(steps):
        return -jnp.square(steps.after.stoch[..., 0]) - jnp.square(steps.action[..., 0])

    @staticmethod
    def best(discount: float) -> float:
        gain = 0.5
        for _ in range(100):
            gain = (1 + discount * gain) / (2 + discount * gain)
        return gain


def test_actor_and_critic_find_the_best_behaviour_of_a_small_world():
    """Both rows reach the optimal gain to 0.04, which a one-step behaviour misses by 0.12."""
    config = BehaviorConfig(
        horizon=3, actor_width=32, actor_depth=2, critic_width=32, critic_depth=2, unroll=1
    )
    layouts = (Layout(lambda key: Actor(2, 1, config, key)), Layout(lambda key: Scalar(2, 32, 2, key)))
    parts = tuple(
        init_part(jax.jit(lambda key, one=one: one.init(key, 2))(jax.random.key(0))) for one in layouts
    )

    def read(which, rows):
        return jax.vmap(layouts[which].read)(rows)

    @jax.jit
    def train(parts, keys):
        def step(parts, key):
            start_key, noise_key = jax.random.split(key)
            x = jax.random.uniform(start_key, (2 * 64,), minval=-1, maxval=1).reshape(2, 64, 1)
            noise = draw_noise(noise_key, (3, 2, 64), 1, 1)
            networks = [read(which, part.rows) for which, part in enumerate(parts)]
            dreamt, nudge = dream(Line(), *networks, Line.rewards, State(x * 0, x), noise, config)
            actor_gradient = jax.grad(lambda rows: actor_loss(read(0, rows), dreamt, noise, nudge))(
                parts[0].rows
            )
            critic_gradient = jax.grad(lambda rows: critic_loss(read(1, rows), dreamt).sum())(parts[1].rows)
            adam = Adam(3e-3, 100.0, 1e-6)
            actor = train_part(parts[0], actor_gradient, jnp.zeros(2), adam)[0]
            return (
                actor,
                train_part(parts[1], critic_gradient, jnp.zeros(2), adam)[0],
            ), dreamt.returns.mean()

        return jax.lax.scan(step, parts, keys)

    parts, returns = train(parts, jax.random.split(jax.random.key(1), 1500))
    x = jnp.linspace(-0.8, 0.8, 9)[:, None]
    features = jnp.broadcast_to(State(x * 0, x).features, (2, 9, 2))
    action = tanh_normal_mode(per_row(read(0, parts[0].rows), features))[..., 0]
    best = Line.best(config.discount)
    assert 0.61 < best < 0.62
    gain = -(action * x[:, 0]).sum(-1) / jnp.square(x).sum()
    np.testing.assert_allclose(gain, [best, best], atol=0.04)
    assert returns[-50:].mean() > returns[:50].mean()
