"""Frames per second of one core: `python -m mjraycast.benchmark walker_walk cheetah_run arm.xml`.

A world is DOMAIN_TASK of the control suite, an id of Gymnasium, or an MJCF file; before each frame the joints are put
into another state of an episode of random actions, so that drawing alone is measured.
"""

import argparse
import contextlib
import importlib
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from . import Camera, Renderer

WORLDS = (
    "cheetah_run", "walker_walk", "quadruped_run", "Hopper-v5", "Walker2d-v5", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5",
    "Pusher-v5", "Reacher-v5", "InvertedPendulum-v5", "PointMaze_UMaze-v3", "AntMaze_UMaze-v5",
)  # fmt: skip
STATES = 50


def load(world: str) -> tuple[mujoco.MjModel, mujoco.MjData, Callable[[], Any]]:
    """Model and data of a world, and a function that makes a random step in it."""
    random = np.random.default_rng(0)
    if world.endswith(".xml"):
        model = mujoco.MjModel.from_xml_path(world)
        data = mujoco.MjData(model)

        def step() -> None:
            data.ctrl[:] = random.uniform(-1, 1, model.nu)
            mujoco.mj_step(model, data, 5)

        return model, data, step
    if "-v" in world:
        import gymnasium

        with contextlib.suppress(ImportError):
            gymnasium.register_envs(importlib.import_module("gymnasium_robotics"))
        env: Any = gymnasium.make(world).unwrapped
        env.reset(seed=0)
        env.action_space.seed(0)
        robot = getattr(env, "point_env", None) or getattr(env, "ant_env", env)  # inside of gymnasium-robotics' mazes
        return robot.unwrapped.model, robot.unwrapped.data, lambda: env.step(env.action_space.sample())
    from dm_control import suite

    domain, _, task = world.rpartition("_")
    env = suite.load(domain, task, task_kwargs={"random": 0})
    env.reset()
    low, high = env.action_spec().minimum, env.action_spec().maximum
    return env.physics.model.ptr, env.physics.data.ptr, lambda: env.step(random.uniform(low, high))


def frames_per_second(world: str, size: int, camera: Camera | None, seconds: float) -> float:
    """Frames drawn in a second of CPU time, the best of five parts."""
    model, data, step = load(world)
    states = []
    for _ in range(STATES):
        step()
        states.append(data.qpos.copy())
    if camera is None:
        camera = 0 if model.ncam else -1
    renderer = Renderer(model, size, size)
    out = np.empty((size, size, 3), np.uint8)
    renderer.render(data, camera, out)
    best = 0.0
    for _ in range(5):
        spent, drawn = 0.0, 0
        while spent < seconds / 5:
            data.qpos[:] = states[drawn % STATES]
            mujoco.mj_forward(model, data)
            start = time.process_time()
            renderer.render(data, camera, out)
            spent += time.process_time() - start
            drawn += 1
        best = max(best, drawn / spent)
    return best


def main() -> None:
    """Prints a table of frames per second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", default=WORLDS)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--camera", default="", help="a name, a number, or -1 (free); else the first, or free")
    parser.add_argument("--seconds", type=float, default=2.0)
    chosen = parser.parse_args()
    camera: Any = int(chosen.camera) if chosen.camera.lstrip("-").isdigit() else chosen.camera or None
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"{cpu()}, one core, {chosen.size}x{chosen.size}, MuJoCo {mujoco.__version__}")
    for world in chosen.worlds:
        print(f"{world:28} {frames_per_second(world, chosen.size, camera, chosen.seconds):8.0f} frames/s", flush=True)


def cpu() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
