"""Environments that others wrote, each with a tiny exploration. Run as a script, this writes the table of the docs."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from sizes import NANO, quick

import plan2explore as p2e
from plan2explore.config import ExploreConfig, Schedule, WorldConfig
from plan2explore.phases import explore

PAGE = Path(__file__).parents[1] / "docs" / "which_worlds.md"
RANDOM = 20  # env steps of random actions, so that the explorer acts too
STEPS = 60


@dataclass(frozen=True)
class Case:
    """An environment to explore."""

    world: str
    obs: str
    packages: str = "gymnasium"
    module: str | None = None
    updates: int = 0
    """Of the agent, for 1000 env steps. It acts untrained where there are none: to compile them takes most of the time."""


CASES = [
    Case("gymnasium:CartPole-v1", "proprio", "gymnasium, pygame"),
    Case("gymnasium:MountainCar-v0", "pixels", "gymnasium, pygame"),
    Case("gymnasium:Acrobot-v1", "proprio", "gymnasium, pygame"),
    Case("gymnasium:Hopper-v5", "proprio", updates=50),
    Case("gymnasium:Ant-v5", "pixels"),
    Case("gymnasium:PointMaze_UMaze-v3", "proprio", "gymnasium-robotics", "gymnasium_robotics"),
    Case("gymnasium:AntMaze_UMaze-v5", "proprio", "gymnasium-robotics", "gymnasium_robotics"),
    Case("gymnasium:MiniGrid-Empty-5x5-v0", "pixels", "minigrid", "minigrid"),
    Case("gymnasium:MiniGrid-Empty-5x5-v0", "proprio", "minigrid", "minigrid"),
    Case("gymnasium:Crafter-v1", "pixels", "crafter", updates=50),
    Case("gymnasium:ALE/Pong-v5", "pixels", "ale-py", "ale_py"),
]


def run(case: Case, out: Path) -> p2e.Run:
    """A tiny exploration, in short episodes: one that is not over is not stored."""
    world = WorldConfig(case.world, case.obs, size=16, env_arg=("max_episode_steps=20",))
    schedule = Schedule(seed_episodes=1, updates_per_episode=case.updates, block=1, environments=1, evaluate_every=0)
    with quick(), mock.patch.object(explore, "EPISODE", RANDOM):
        return p2e.explore(case.world, STEPS, out, config=ExploreConfig(world, schedule, NANO))


def facts(case: Case) -> str:
    """The environment's line of the table."""
    env = p2e.make(case.world, size=16)
    seen, _ = env.reset(seed=0)
    actions = " x ".join(map(str, env.discrete)) + " choices" if env.discrete else f"{env.action_size} numbers"
    images = {"raycast": "ray-cast", "gymnasium": "drawn by the environment"}[env.renderer]
    if env.renderer == "gymnasium" and env._parts.has_image:
        images = "observed"
    rewards = "`physics`, transitions" if env.draws_states else "transitions"
    imported = f"`--import {case.module}`" if case.module else ""
    env.close()
    return (
        f"| `{case.world}` | {case.packages} | {imported} | {actions} | {images} | {seen['proprio'].size or ''} | {rewards} "
        f"| {case.obs} |"
    )


def import_module(case: Case) -> None:
    if case.module:
        importlib.import_module(case.module)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.world}-{case.obs}")
def test_a_tiny_exploration(case, tmp_path):
    import_module(case)
    assert facts(case) in PAGE.read_text(), f"python {Path(__file__).name} writes the table anew"
    explored = run(case, tmp_path / "run")
    found = list(explored.episodes())
    assert STEPS - 20 < sum(episode.meta["env_steps"] for episode in found) <= STEPS  # the last one may not be over
    assert found[-1].meta["policy"] == "plan2explore" and len(explored.metrics()) == bool(case.updates)
    for episode in found:
        assert np.isfinite(episode.proprio).all() and np.isfinite(episode.reward).all()
        assert episode.image.any() == (case.obs == "pixels")
    assert explored.snapshots


if __name__ == "__main__":
    for each in CASES:
        import_module(each)
    before, start, rest = PAGE.read_text().partition("|---")
    heading, end = start + rest.partition("\n")[0], rest.partition("\n\n")[2]
    PAGE.write_text("\n".join([before + heading, *map(facts, CASES), "", end]))
    sys.exit(0)
