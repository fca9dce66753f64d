"""What a task's policy earns in the world model's imagination, beside what it earns in the simulator.

    python benchmarks/imagined.py runs/walker/adapt/walker_walk

Episodes are played with the policy's mode. From the states inferred at some of their steps the same policy then acts in
imagination. Where the imagined reward is far above the real one, the model is wrong, not the critic. Rewards are of agent
steps.
"""

from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro

import plan2explore as p2e
from plan2explore.agent.actor_critic import per_behavior
from plan2explore.agent.world_model import State


@dataclass(frozen=True)
class Options:
    """What to imagine."""

    policy: tyro.conf.Positional[Path]
    """Folder of an adaptation to a named task."""
    episodes: int = 4
    """Episodes of the policy."""
    starts: tuple[int, ...] = (0, 50, 250)
    """Agent steps of these episodes from which to imagine."""
    steps: int = 100
    """Agent steps to imagine."""
    every: int = 25
    """Agent steps over which to average."""


def play(policy: p2e.Policy, seed: int) -> tuple[list[State], list[float]]:
    """The inferred states of an episode, and its rewards."""
    world, model = policy.world, policy.model()
    env = p2e.make(policy.task.name, obs=world.obs, size=world.size, action_repeat=world.action_repeat)
    observation, _ = env.reset(seed=seed)
    policy.reset()
    states, rewards, over = [model.observe(observation)], [], False
    while not over:
        action = policy.act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        states.append(model.observe(observation, action, states[-1]))
        rewards.append(float(reward))
        over = terminated or truncated
    env.close()
    return states, rewards


def imagined_rewards(policy: p2e.Policy, start: State, steps: int) -> np.ndarray:
    """The reward of each imagined step, averaged over the starts."""
    agent, model = policy.learner.agent, policy.model()
    actor = agent.network("actor", policy.state.networks["actor"].params)

    @eqx.filter_jit
    def step(state: State, key: jax.Array) -> tuple[State, jax.Array]:
        action = agent.policy.mode(per_behavior(actor, state.features[None]))
        after = jax.tree.map(lambda part: part[0], model.imagine(state, action, key))
        return after, model.reward(after, policy.task.name).mean()

    rewards = []
    for key in jax.random.split(jax.random.key(0), steps):
        start, reward = step(start, key)
        rewards.append(float(reward))
    return np.array(rewards)


def main(options: Options) -> None:
    """Prints a table."""
    policy = p2e.load(options.policy)
    played = [play(policy, 1_000_000 + number) for number in range(options.episodes)]
    blocks = range(0, options.steps, options.every)
    print(f"| from step | | {' | '.join(f'{first + 1} to {first + options.every}' for first in blocks)} |")
    print("|---" * (2 + len(blocks)) + "|")
    for start in options.starts:
        states = jax.tree.map(lambda *parts: jnp.stack(parts), *(states[start] for states, _ in played))
        imagined = imagined_rewards(policy, states, options.steps)
        real = np.mean([rewards[start : start + options.steps] for _, rewards in played], axis=0)
        for name, each in (("imagined", imagined), ("real", real)):
            means = [f"{each[first : first + options.every].mean():.2f}" for first in blocks]
            print(f"| {start} | {name} | {' | '.join(means)} |")


if __name__ == "__main__":
    main(tyro.cli(Options))
