"""Actor-critics that neither diverge nor freeze, and returns that end where episodes do."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from handmade import PAPER, Arrays, Fixed, change
from jax import Array

from plan2explore.agent.actor_critic import (
    Noise,
    Stats,
    Trajectory,
    actor_loss,
    bound_values,
    draw_noise,
    imagine_trajectories,
    init_stats,
    lambda_returns,
    value_limits,
    widen_range,
)
from plan2explore.agent.agent import Agent, Networks
from plan2explore.agent.intrinsic.objective import Transition
from plan2explore.agent.learner import Gradients, Learner, behavior_gradients, imagined_rewards
from plan2explore.agent.policies import TanhPolicy, make_policy
from plan2explore.agent.world_model import State
from plan2explore.config import ActorCriticConfig, Spaces, tiny

pytestmark = pytest.mark.xdist_group("sound_actor_critics")

REWARD, DISCOUNT = 2.0, 0.99
LIMIT = REWARD / (1 - DISCOUNT)
SPACES = Spaces(action=2, image=None, proprio=3)
CONFIG = change(PAPER, intrinsic=dict(objective="random"), actor_critic=dict(discount=DISCOUNT, normalize_returns=False))


# --- Critics ---


TASKS = [f"task {i}" for i in range(8)]
"""Eight critics with the same rewards, which differ in their first parameters."""


def noise_batches(updates: int) -> Arrays:
    """Batches of pure noise, with the same reward at every step."""
    rng, shape = np.random.default_rng(0), (updates, 4, 6)
    return {
        "proprio": rng.normal(size=(*shape, 3)).astype(np.float32),
        "action": rng.uniform(-1, 1, (*shape, 2)).astype(np.float32),
        "reward": np.full((*shape, len(TASKS)), REWARD, np.float32),
        "is_first": np.zeros(shape, bool),
        "is_terminal": np.zeros(shape, bool),
    }


@cache
def hasty_critics(bounded: bool) -> dict[str, np.ndarray]:
    """Metrics of deep critics with a learning rate of 3, which bootstrap with themselves: each (tasks, updates)."""
    hasty = dict(critic_depth=6, critic_width=16, critic_learning_rate=3.0, slow_critic=0.0, bound_values=bounded)
    config = change(CONFIG, model=dict(learning_rate=1e-2), actor_critic=hasty)
    learner = Learner(config, replace(SPACES, tasks=len(TASKS)))
    _, metrics = learner.update_block(learner.init(jax.random.key(0)), noise_batches(300))
    return {name: np.stack([metrics[f"{task}/{name}"] for task in TASKS]) for name in ("return", "value_limit", "std")}


def test_hasty_critics_without_bounds_diverge():
    assert np.median(np.abs(hasty_critics(False)["return"]).max(1)) > 1e8


def test_hasty_critics_with_bounds_stay_near_what_rewards_can_add_up_to():
    metrics = hasty_critics(True)
    assert np.abs(metrics["return"]).max() <= LIMIT + REWARD
    np.testing.assert_allclose(np.median(metrics["return"][:, -100:], 1), LIMIT, rtol=0.25)
    np.testing.assert_allclose(metrics["value_limit"], LIMIT, rtol=1e-3)


def test_metrics_tell_the_spread_of_a_policy():
    assert np.all(hasty_critics(True)["std"] >= CONFIG.actor_critic.min_std)


def nano_networks(agent: Agent, seed: int = 0) -> Networks:
    rng = np.random.default_rng(seed)
    return agent.networks({
        name: jnp.asarray(rng.normal(0, 0.3, (layout.rows, layout.size)), jnp.float32)
        for name, layout in agent.layouts.items()
    })  # fmt: skip


def random_states(agent: Agent, *shape: int, seed: int = 1) -> State:
    rng, sizes = np.random.default_rng(seed), agent.sizes
    return State(*(jnp.asarray(rng.normal(0, 0.5, (*shape, size)), jnp.float32) for size in (sizes.deter, sizes.stoch)))


def rewards_between(low: float, high: float) -> Stats:
    return init_stats(1)._replace(reward_low=jnp.array([low]), reward_high=jnp.array([high]))


def gradients(bounded: bool, reach: float, gradient: str) -> Gradients:
    """Gradients of an actor-critic whose task's rewards were between -reach and reach so far."""
    agent = Agent(change(CONFIG, actor_critic=dict(bound_values=bounded, actor_gradient=gradient)), SPACES)
    nets, states, alive = nano_networks(agent), random_states(agent, 4, 3), jnp.ones((4, 3), bool)
    stats = rewards_between(-reach, reach)
    return behavior_gradients(agent, nets, nets.critic, states, alive, stats, jnp.int32(1), jax.random.key(2))[0]


def worst_gap(one: Gradients, other: Gradients) -> float:
    leaves = zip(jax.tree.leaves(one.grads), jax.tree.leaves(other.grads), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in leaves)


@pytest.mark.parametrize("gradient", ["through", "reinforce"])
def test_bounds_do_not_change_the_gradients_of_a_sound_critic(gradient):
    free = gradients(False, 100.0, gradient)
    assert worst_gap(gradients(True, 100.0, gradient), free) < 1e-5
    assert worst_gap(gradients(True, 1e-3, gradient), free) > 0.1, "too narrow a range does change them"


def test_predicted_rewards_are_kept_within_the_range_that_was_seen():
    for bounded in (True, False):
        agent = Agent(change(CONFIG, actor_critic=dict(bound_values=bounded)), SPACES)
        nets, state = nano_networks(agent), random_states(agent, 1, 3, 50)
        steps = Transition(state, jnp.zeros((1, 3, 50, 2)), state)
        reward, _ = imagined_rewards(agent, nets, ["task 0"], 50, jnp.int32(1), steps, rewards_between(-0.1, 0.2))
        inside = np.all((reward >= -0.1) & (reward <= np.float32(0.2)))
        assert inside == bounded and reward.shape == (1, 3, 50)


def test_values_are_kept_within_what_the_range_of_rewards_allows():
    values, stats = jnp.array([[[-1e9, -3.0, 0.0, 150.0, 1e9]]]), widen_range(init_stats(1), jnp.array([[[0.5, 2.0]]]))
    assert (float(stats.reward_low[0]), float(stats.reward_high[0])) == (0, 2), "0 is in the range"
    stats = widen_range(stats, jnp.array([[[-0.5, 1.0]]]))
    config = ActorCriticConfig(discount=DISCOUNT)
    low, high = (float(each[0]) for each in value_limits(stats, config))
    assert (low, high) == (pytest.approx(-50, rel=1e-4), pytest.approx(200, rel=1e-4))
    np.testing.assert_allclose(bound_values(values, stats, config)[0, 0], [-50, -3, 0, 150, 200], rtol=1e-4)
    for unbounded in (replace(config, bound_values=False), replace(config, discount=1.0)):
        np.testing.assert_array_equal(bound_values(values, stats, unbounded), values)
    gradient = jax.grad(lambda values: bound_values(values, stats, config).sum())(values)
    np.testing.assert_array_equal(gradient, np.ones_like(values))  # beyond the bounds too: an actor is never cut off


# --- Ends ---


def test_returns_agree_with_their_definition_and_nothing_beyond_an_end_counts():
    rng, lambda_ = np.random.default_rng(3), 0.9
    reward, value = (rng.normal(size=(2, 6, 4)).astype(np.float32) for _ in range(2))
    discount = np.where(rng.random((2, 6, 4)) < 0.2, 0, 0.95).astype(np.float32)
    discount[:, 2] = 0
    expected, later = np.zeros_like(reward), value[:, -1]
    for t in reversed(range(6)):
        later = reward[:, t] + discount[:, t] * ((1 - lambda_) * value[:, t] + lambda_ * later)
        expected[:, t] = later
    found = np.asarray(lambda_returns(reward, value, discount, lambda_))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[:, 2], reward[:, 2], rtol=1e-6)
    reward[:, 3:], value[:, 2:] = 1e6, -1e6
    np.testing.assert_array_equal(np.asarray(lambda_returns(reward, value, discount, lambda_))[:, :3], found[:, :3])


def mortal(gradient: str) -> tuple[Agent, Networks, ActorCriticConfig]:
    config = change(CONFIG, actor_critic=dict(actor_gradient=gradient, horizon=5))
    agent = Agent(config, Spaces(action=2, image=None, proprio=3, terminates=True))
    return agent, nano_networks(agent), config.actor_critic


@pytest.mark.parametrize("gradient", ["through", "reinforce"])
def test_steps_weigh_what_is_left_of_the_discount_and_terminal_starts_weigh_0(gradient):
    agent, nets, config = mortal(gradient)
    start, alive = random_states(agent, 1, 8), jnp.array([1.0] * 6 + [0.0] * 2)
    noise = draw_noise(jax.random.key(4), (5, 1, 8), agent.policy, nets.model.rssm.latent)
    trajectory, *_ = imagine_trajectories(
        nets.model, agent.policy, nets.actor, nets.critic, lambda steps, stats: (jnp.ones((1, 5, 8)), stats), start, alive,
        noise, rewards_between(0.0, 1.0), config,
    )  # fmt: skip
    discounts = DISCOUNT * np.asarray(nets.model.continue_head(trajectory.features))[0]
    assert discounts.std() > 0.05 and trajectory.weights.shape == (1, 5, 8)
    expected = np.cumprod(np.concatenate([alive[None], discounts[1:]]), 0)
    np.testing.assert_allclose(trajectory.weights[0], expected, rtol=1e-4)
    assert np.all(np.asarray(trajectory.weights[..., 6:]) == 0) and np.all(np.asarray(trajectory.weights[..., :6]) > 0)


@pytest.mark.parametrize("gradient", ["through", "reinforce"])
def test_nothing_is_learned_from_terminal_starts(gradient):
    agent, nets, _ = mortal(gradient)
    dead = jnp.zeros((4, 3), bool).at[1, 2].set(True)
    grads = []
    for seed in (1, 5):
        here, there = random_states(agent, 4, 3), random_states(agent, 4, 3, seed=seed)
        states = jax.tree.map(lambda a, b: jnp.where(dead[..., None], b, a), here, there)
        stats = rewards_between(-9.0, 9.0)
        grads.append(behavior_gradients(agent, nets, nets.critic, states, ~dead, stats, jnp.int32(1), jax.random.key(2))[0])
    assert worst_gap(*grads) < 1e-5


# --- Actors ---


def pushed(config: ActorCriticConfig, steps: int = 10_000) -> tuple[TanhPolicy, Array, float, float]:
    """An actor that was pushed towards the action 1 for long: its output, the last gradient's norm, and the mean action
    after it was pushed back to -1 for a fifth of that time."""
    policy: TanhPolicy = make_policy(config, Spaces(action=1, image=None, proprio=1))
    optimizer, shape = optax.scale_by_adam(eps=1e-7), (1, 1, 64)

    def step(carried: tuple[Array, optax.OptState], now: tuple[Array, Array]) -> tuple[tuple[Array, optax.OptState], Array]:
        (output, memory), (key, side) = carried, now
        noise = Noise(policy.noise(key, *shape), jnp.zeros((*shape, 1)))
        action = policy.sample(jnp.broadcast_to(output, (*shape, 2)), noise.action)
        reward = side * action[..., 0]
        grads = jnp.full((*shape, 1), side / 64) if config.actor_gradient == "through" else None
        trajectory = Trajectory(jnp.zeros((*shape, 1)), action, reward, reward, reward, jnp.ones((1, 1)))
        baseline = jnp.full(shape, reward.mean())

        def loss(output: Array) -> Array:
            return actor_loss(policy, Fixed(output[None]), trajectory, noise, grads, baseline, init_stats(1), config)[0]

        by_output = jax.grad(loss)(output)
        direction, memory = optimizer.update(by_output, memory)
        return (output - 1e-2 * direction, memory), jnp.linalg.norm(by_output)

    def push(carried: tuple[Array, optax.OptState], side: float, steps: int, seed: int) -> tuple[tuple, Array]:
        return jax.lax.scan(step, carried, (jax.random.split(jax.random.key(seed), steps), jnp.full(steps, side)))

    output = jnp.zeros(2)
    there, norms = push((output, optimizer.init(output)), 1.0, steps, 0)
    (back, _), _ = push((there[0], optimizer.init(output)), -1.0, steps // 5, 1)
    action = policy.sample(jnp.broadcast_to(back, (256, 2)), policy.noise(jax.random.key(2), 256))
    return policy, there[0], float(norms[-100:].mean()), float(action.mean())


@pytest.mark.parametrize("gradient", ["through", "reinforce"])
def test_an_actor_that_is_pushed_for_long_keeps_its_spread_and_its_gradient_and_turns_round(gradient):
    entropy = tiny.actor_critic.explorer_entropy
    robust = change(CONFIG, actor_critic=dict(actor_gradient=gradient, entropy=entropy)).actor_critic
    policy, output, norm, action = pushed(robust)
    assert robust.entropy > 0 and float(policy.spread(output)) > 2 * robust.min_std
    assert float(jnp.tanh(policy.dist(output).mean)[0]) > 0.9, "it did learn"
    assert norm > 3e-4
    assert action < -0.5


def test_without_entropy_an_actors_spread_and_gradient_die_out():
    policy, output, norm, _ = pushed(ActorCriticConfig())
    assert float(policy.spread(output)) < 0.2
    assert norm < 1e-4
