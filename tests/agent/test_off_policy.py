"""Learning tasks from replay, on a corridor whose values are known: five places, a reward and the end at the last one."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from handmade import MODERN, change

from plan2explore.agent.actor_critic import init_stats
from plan2explore.agent.agent import Agent
from plan2explore.agent.off_policy import TwinCritic, replay_losses
from plan2explore.agent.policies import Actor
from plan2explore.agent.world_model import Observation, Sequences
from plan2explore.config import Spaces

PLACES, TIME, BATCH, DISCOUNT = 5, 6, 32, 0.9
VALUES = DISCOUNT ** np.arange(PLACES - 2, -1, -1)  # of going right from each place but the last


def corridor(rng: np.random.Generator, discrete: bool) -> tuple[np.ndarray, Sequences]:
    """Random walks: features are the place one-hot, to the right with a positive action (or choice 1)."""
    place, first = rng.integers(PLACES - 1, size=BATCH), np.ones(BATCH, bool)
    rows = []
    for _ in range(TIME):
        choice = rng.integers(2, size=BATCH)
        number = (2 * choice - 1) * rng.uniform(0.2, 1, BATCH)
        moved = np.clip(place + 2 * choice - 1, 0, PLACES - 1)
        reward = np.where(first, rng.normal(size=BATCH) * 100, moved == PLACES - 1)  # of a first step: nobody's
        fresh = rng.integers(PLACES - 1, size=BATCH)
        place = np.where(first, fresh, moved)
        ends = (place == PLACES - 1) & ~first
        action = np.eye(2)[choice] if discrete else number[:, None]
        rows.append((np.eye(PLACES)[place], action, reward[:, None], first, ends))
        first = ends
    features, actions, rewards, is_first, is_terminal = (np.stack(each) for each in zip(*rows, strict=True))
    batch = Sequences(Observation(), jnp.float32(actions), jnp.float32(rewards), jnp.array(is_first), jnp.array(is_terminal))
    return jnp.float32(features), batch


def agent_of(discrete: bool) -> Agent:
    ac = dict(learn_from="replay", discount=DISCOUNT, actor_width=32, critic_width=32, entropy=1e-3, bound_values=False)
    config = change(MODERN, intrinsic=dict(objective="dreamer"), actor_critic=ac, precision="float32")
    spaces = Spaces(action=2 if discrete else 1, image=None, proprio=3, discrete=(2,) if discrete else ())
    return Agent(config, spaces)


@pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "discrete"])
def test_values_agree_with_dynamic_programming_and_the_policy_walks_to_the_reward(discrete):
    agent = agent_of(discrete)
    config, keys = agent.config.actor_critic, jax.random.split(jax.random.key(0))
    actors = jax.vmap(lambda key: Actor(PLACES, agent.policy.outputs, config, key))(keys[:1])
    critics = jax.vmap(lambda key: TwinCritic(PLACES, agent.spaces.action, config, key))(keys[1:])
    optimizer = optax.adam(3e-3)

    stats = init_stats(1)._replace(reward_high=jnp.ones(1))

    def loss(nets, slow, features, batch, key):
        return replay_losses(agent.policy, *nets, slow, features, batch, stats, config, key)[0]

    @jax.jit
    def update(carried, now):
        nets, slow, state = carried
        grads = jax.grad(loss)(nets, slow, *now)
        changes, state = optimizer.update(grads, state)
        nets = optax.apply_updates(nets, changes)
        return (nets, jax.tree.map(lambda a, b: a + 0.05 * (b - a), slow, nets[1]), state), None

    rng = np.random.default_rng(0)
    made = [(*corridor(rng, discrete), key) for key in jax.random.split(jax.random.key(1), 1000)]
    start = ((actors, critics), critics, optimizer.init((actors, critics)))
    ((actors, critics), _, _), _ = jax.lax.scan(update, start, jax.tree.map(lambda *each: jnp.stack(each), *made))
    actor, critic = jax.tree.map(lambda leaf: leaf[0], (actors, critics))
    right = agent.policy.mode(actor(jnp.eye(PLACES)[:-1]))
    assert np.all(np.asarray(right)[:, -1] > 0.5)
    np.testing.assert_allclose(critic.value(jnp.eye(PLACES)[:-1], right), VALUES, atol=0.08)


def test_an_explorer_cannot_learn_from_replay():
    config = change(MODERN, actor_critic=dict(learn_from="replay"))
    with pytest.raises(ValueError, match="adapt_from=replay"):
        Agent(config, Spaces(action=2))
