"""Gymnasium's MuJoCo environments and those of gymnasium-robotics in random states, for comparing renderers."""

from typing import Any

import gymnasium
import mujoco
import numpy as np

WORLDS = (
    "Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5",
)  # fmt: skip
MAZES = ("AntMaze_UMaze-v5", "PointMaze_UMaze-v3")  # of gymnasium-robotics


def load(name: str) -> Any:
    """An environment with `model` and `data`, at the start of an episode."""
    if name in MAZES:
        import gymnasium_robotics

        gymnasium.register_envs(gymnasium_robotics)
    env: Any = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    return env


def inside(env: Any) -> Any:
    """What holds model and data: a maze keeps its robot's environment inside."""
    for name in ("point_env", "ant_env"):
        if hasattr(env, name):
            return getattr(env, name).unwrapped
    return env


def pictures(name: str, renderer: type, count: int = 4, size: int = 64) -> np.ndarray:
    """States after random actions, seen by the free camera and the first of the model: (camera, state, size, size, 3)."""
    env = load(name)
    inner = inside(env)
    drawer = renderer(inner.model, size, size)
    cameras = range(-1, min(inner.model.ncam, 1))
    drawn = np.empty((len(cameras), count, size, size, 3), np.uint8)
    for state in range(count):
        for _ in range(8 * state):
            env.step(env.action_space.sample())
        mujoco.mj_forward(inner.model, inner.data)
        for row, camera in enumerate(cameras):
            drawn[row, state] = drawer.render(inner.data, camera)
    return drawn
