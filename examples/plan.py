"""Plans with a run's world model. No policy is trained: the task is said only when planning begins.

python examples/plan.py            explores for three minutes on two CPU cores, then plays three episodes
python examples/plan.py --quick    sizes at which nothing is learned, but everything runs
"""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import plan2explore as p2e


def upright(obs):
    """The task, of decoded observations: the pendulum's first number is the cosine of its angle."""
    return obs["proprio"][..., 0]


def plan(model, state, key, horizon=12, candidates=400, elites=40, rounds=4):
    """The cross-entropy method: draws sequences of actions, imagines them, and draws again around the best."""
    mean, std = jnp.zeros((horizon, model.spaces.action)), jnp.ones((horizon, model.spaces.action))
    for now in jax.random.split(key, rounds):
        noise = jax.random.normal(now, (horizon, candidates, model.spaces.action))
        actions = jnp.clip(mean[:, None] + std[:, None] * noise, -1, 1)
        returns = upright(model.decode(model.imagine(state, actions))).sum(0)
        best = actions[:, jnp.argsort(returns)[-elites:]]
        mean, std = best.mean(1), best.std(1)
    return mean[0]


def play(env, model, seed, steps):
    """The score that planning has in the environment's own task."""
    choose = jax.jit(partial(plan, model))
    obs, _ = env.reset(seed=seed)
    state, score = model.observe(obs), 0.0
    for step in range(steps):
        action = np.asarray(choose(state, jax.random.key(step)))
        obs, reward, *_ = env.step(action)
        state = model.observe(obs, action, state)
        score += reward
    return score


def main(out: Path = Path("runs/plan"), steps: int = 15_000, episodes: int = 3, quick: bool = False) -> None:
    """Explores, plans, and compares with random actions.

    Args:
        out: The run's folder. What is there already is not done again.
        steps: Env steps of exploration.
        episodes: How many are played.
        quick: Tiny sizes, to see that everything runs.
    """
    sizes = {"steps": 6000, "updates_per_episode": 5} if quick else {"steps": steps}
    run = p2e.explore("pendulum", out=out, preset="tiny", obs="proprio", action_repeat=4, environments=1, **sizes)
    env = p2e.make("pendulum_swingup", obs="proprio", action_repeat=4)
    random = [p2e.record(env, seed=seed).reward.sum() for seed in range(episodes)]
    scores = [play(env, run.model(), seed, steps=5 if quick else 250) for seed in range(episodes)]
    print(f"pendulum_swingup, {episodes} episodes: planned {np.mean(scores):.0f}, random actions {np.mean(random):.0f}")


if __name__ == "__main__":
    tyro.cli(main)
