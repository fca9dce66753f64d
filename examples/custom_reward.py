"""Explores without reward, then solves a task of your own: explore, look at the reward, adapt, evaluate, film.

python examples/custom_reward.py            sizes for two CPU cores
python examples/custom_reward.py --quick    sizes at which nothing is learned, but everything runs
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

import plan2explore as p2e


def folded(physics) -> float:
    """The reward: the reacher's wrist is bent by more than a right angle."""
    return float(abs(physics.named.data.qpos["wrist"][0]) > 1.57)


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    steps: int
    updates_per_episode: int
    updates: int
    episodes: int


FULL = Sizes(steps=20_000, updates_per_episode=100, updates=2_500, episodes=20)
QUICK = Sizes(steps=6_000, updates_per_episode=5, updates=10, episodes=2)


def main(out: Path = Path("runs/custom_reward"), quick: bool = False) -> None:
    """Goes the journey.

    Args:
        out: The run's folder. What is there already is not done again.
        quick: Tiny sizes, to see that everything runs.
    """
    sizes = QUICK if quick else FULL
    run = p2e.explore(
        "reacher",
        sizes.steps,
        out,
        preset="tiny",
        obs="proprio",
        size=16 if quick else 64,
        updates_per_episode=sizes.updates_per_episode,
    )
    task = p2e.Task("folded", reward=folded)
    paid = [each.sum() for each in p2e.relabel(list(run.episodes(images=False)), task)]
    print(f"What was explored is worth {sum(paid) / len(paid):.1f} an episode, {max(paid):.1f} at best.")
    policy = run.adapt(task, updates=sizes.updates, evaluate_episodes=0)
    print(policy.evaluate(sizes.episodes, video=out / "folded.mp4"))
    print(f"video: {out / 'folded.mp4'}")


if __name__ == "__main__":
    tyro.cli(main)
