"""A run as the phases write it, made of random episodes and untrained networks: in a second, without any learning."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from episodes import record_random
from sizes import NANO

from plan2explore.agent.agent import Agent
from plan2explore.agent.optimizer import TrainState
from plan2explore.config import AdaptConfig, ExploreConfig, Schedule, Spaces, WorldConfig
from plan2explore.phases.evaluate import Scores
from plan2explore.replay.files import EpisodeFolder
from plan2explore.runs.checkpoint import Checkpoints, pack_params
from plan2explore.runs.files import append_line
from plan2explore.runs.folder import RunFolder
from plan2explore.runs.metrics import Metrics
from plan2explore.video import write_video

TASK = "cartpole_swingup"
REPEAT, EPISODES = 25, 3


def config_of(method: str) -> ExploreConfig:
    """Forty actions an episode."""
    agent = replace(NANO, intrinsic=replace(NANO.intrinsic, objective=method))
    world = WorldConfig("cartpole", obs="both", size=32, action_repeat=REPEAT)
    return ExploreConfig(world, Schedule(), agent, probes=(TASK,))


def make_run(path: Path, method: str = "plan2explore", seed: int = 0) -> Path:
    """An exploration with episodes, metrics, evaluations, a snapshot and one adaptation with a video."""
    config = config_of(method)
    goal = 1000 * EPISODES
    settings = {"config": asdict(config), "goal": goal, "environments": 1, "own_rewards": []}
    folder = RunFolder.create(path, "explore", settings)
    folder.record_start(["plan2explore", "explore", "cartpole"])
    episodes = EpisodeFolder(folder.episodes)
    for number in range(EPISODES):
        episodes.save(number, record_random("cartpole", seed=seed + number, size=32, action_repeat=REPEAT))
    with Metrics(folder) as metrics:
        for number in range(1, 5):
            shown = {"model/loss": 9.0 / number, "intrinsic/loss": 3.0 / number, f"{TASK}/reward": 0.1 * number}
            shown |= {"explorer/reward": 40.0 / number**3, "model/kl": 3.0, "update": 10.0 * number}
            metrics.write(goal * number // 4, shown)
    for number in (1, 2, 3):
        score(folder, TASK, [10.0 * number, 14.0 * number], 1000 * number)
    save_snapshot(folder, config, goal)
    _adapt(folder, config, goal)
    return path


def score(folder: RunFolder, task: str, episodes: list[float], env_steps: int) -> None:
    """Adds an evaluation."""
    append_line(folder.evaluations_file, Scores(task, tuple(episodes), env_steps).summary() | {"updates": 1, "seconds": 1.0})


def save_snapshot(folder: RunFolder, config: ExploreConfig, env_steps: int) -> None:
    """Networks with random parameters."""
    agent, rng = Agent(config.agent, Spaces(action=1, image=32, proprio=5, tasks=1)), np.random.default_rng(0)
    networks: dict[str, Any] = {
        name: TrainState(jnp.asarray(rng.normal(0, 0.3, (layout.rows, layout.size)), jnp.float32), None)
        for name, layout in agent.layouts.items()
    }
    Checkpoints(folder.snapshots, keep=None).save(env_steps, pack_params(networks), {"env_steps": env_steps})


def _adapt(folder: RunFolder, config: ExploreConfig, snapshot: int) -> None:
    settings = {"config": asdict(AdaptConfig()), "explored": asdict(config), "run": folder.id, "snapshot": snapshot}
    settings |= {"task": TASK, "own_rewards": []}
    adapted = RunFolder.create(folder.adapt / TASK, "adapt", settings)
    score(adapted, TASK, [123.0, 127.0, 131.0], 0)
    adapted.videos.mkdir()
    moving = np.zeros((20, 32, 32, 3), np.uint8)
    moving[:, :, :, 0] = np.linspace(0, 255, 20, dtype=np.uint8)[:, None, None]
    write_video(adapted.videos / f"{TASK}-0.mp4", moving, 10)
    (adapted.path / "finished").touch()
