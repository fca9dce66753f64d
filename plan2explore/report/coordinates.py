"""Coordinates of stored states by name: what a number of a snapshot is in the world."""

from dataclasses import dataclass

import mujoco
import numpy as np

from ..envs.base import EnvError
from ..envs.gymnasium import make_inner, simulation_of
from ..envs.mjcf import load_world
from ..envs.names import DATASET, GYMNASIUM, check_module, domain_of, without_start
from ..envs.world import Snapshot, World
from ..replay import Episode

FREE = ("x", "y", "z", "quaternion w", "quaternion x", "quaternion y", "quaternion z")
FREE_VELOCITY = ("x velocity", "y velocity", "z velocity", "x turning", "y turning", "z turning")
BALL, BALL_VELOCITY = FREE[3:], FREE_VELOCITY[3:]
PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "acrobot": (("shoulder", "elbow"), ("shoulder", "shoulder velocity"), ("elbow", "elbow velocity")),
    "antmaze_u": (("root x", "root y"), ("root z", "root quaternion w"), ("front_left_hip", "front_left_knee")),
    "ball_in_cup": (("ball_x", "ball_z"), ("cup_x", "cup_z"), ("ball_x velocity", "ball_z velocity")),
    "cartpole": (("slider", "hinge_1"), ("slider", "slider velocity"), ("hinge_1", "hinge_1 velocity")),
    "cheetah": (("rooty", "rootz"), ("rootx velocity", "rooty velocity"), ("bthigh", "fthigh")),
    "finger": (("proximal", "distal"), ("hinge", "hinge velocity"), ("proximal", "hinge")),
    "hopper": (("rooty", "rootz"), ("rootx velocity", "rootz velocity"), ("hip", "knee")),
    "maze_large": (("x", "y"), ("x velocity", "y velocity")),
    "maze_rooms": (("x", "y"), ("x velocity", "y velocity")),
    "maze_u": (("x", "y"), ("x velocity", "y velocity")),
    "pendulum": (("hinge", "hinge velocity"),),
    "point_mass": (("root_x", "root_y"), ("root_x velocity", "root_y velocity")),
    "reacher": (("shoulder", "wrist"), ("shoulder velocity", "wrist velocity")),
    "quadruped": (("root x", "root y"), ("root z", "root quaternion w"), ("root x velocity", "root y velocity")),
    "walker": (("rooty", "rootz"), ("rootx velocity", "rooty velocity"), ("right_hip", "left_hip")),
}
"""What to plot in a domain, by the names of its joints."""


@dataclass(frozen=True)
class Coordinates:
    """Positions and velocities in a snapshot: where each is, what it is called, and whether it is an angle that turns."""

    columns: np.ndarray
    names: tuple[str, ...]
    turning: np.ndarray
    size: int
    """Numbers in a whole snapshot."""
    seconds: float
    """Simulated time of an env step; 0 if the world does not tell."""

    def read(self, episode: Episode) -> np.ndarray:
        """The coordinates at the end of every agent step, float32 (steps, coordinates)."""
        if episode.state.shape[-1] != self.size:
            raise ValueError(f"A state has {episode.state.shape[-1]} numbers; {episode.world} has {self.size}.")
        found = episode.last_states()[:, self.columns]
        wrapped = np.mod(found + np.pi, 2 * np.pi) - np.pi
        return np.where(self.turning, wrapped, found).astype(np.float32)

    def pairs(self, world: str) -> list[tuple[str, str]]:
        """The pairs to plot: those chosen for the domain, or the first positions and a velocity."""
        chosen = [pair for pair in PAIRS.get(domain_of(world), ()) if set(pair) <= set(self.names)]
        if chosen or len(self.names) < 2:
            return chosen
        half = len(self.names) // 2
        pairs = [(self.names[0], self.names[half]), (self.names[0], self.names[1]), (self.names[half - 1], self.names[-1])]
        return list(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))


def coordinates_of(world: str, episode: Episode) -> Coordinates:
    """The coordinates of a world's snapshots.

    Those of a Gymnasium world are its joints' where MuJoCo is behind it, and else its flat observation, by number.
    """
    size = episode.state.shape[-1]
    if not world.startswith((GYMNASIUM, DATASET)):
        loaded = load_world(without_start(world))
        seconds = loaded.substeps * float(loaded.physics.timestep())
        return _of_joints(loaded.model, loaded.snapshot, 0, seconds)
    simulation = None if world.startswith(DATASET) else _simulation(world)
    if simulation and size > simulation.snapshot.size:
        return _of_joints(simulation.model, simulation.snapshot, size - simulation.snapshot.size, 0.0)
    count = episode.proprio.shape[1] or size - episode.action.shape[1]
    names = tuple(f"observation {index}" for index in range(count))
    return Coordinates(np.arange(count), names, np.zeros(count, bool), size, 0.0)


def _simulation(world: str) -> World | None:
    """What is behind a Gymnasium world, if it can be made here without starting code that a file names."""
    try:
        check_module(world, "an episode")
        return simulation_of(make_inner(world, None))
    except (ValueError, EnvError):
        return None


def proprio_names(world: str, episode: Episode) -> list[str]:
    """What the numbers of proprioception are called."""
    count = episode.proprio.shape[1]
    if world.startswith((GYMNASIUM, DATASET)):
        return [f"observation {index}" for index in range(count)]
    loaded = load_world(without_start(world))
    loaded.reset()
    parts = loaded.task.get_observation(loaded.physics)
    sizes = {name: np.size(part) for name, part in parts.items()}
    names = [f"{name} {index}" if size > 1 else name for name, size in sizes.items() for index in range(size)]
    return names if len(names) == count else [f"proprioception {index}" for index in range(count)]


def _of_joints(model: mujoco.MjModel, snapshot: Snapshot, start: int, seconds: float) -> Coordinates:
    """Joints' coordinates in a state whose numbers from `start` on are a snapshot."""
    layout = snapshot.layout()
    starts = dict(zip(layout, np.cumsum([start, *layout.values()])[:-1].tolist(), strict=True))
    positions, velocities, turning = [], [], []
    for joint in range(model.njnt):
        kind, name = model.jnt_type[joint], model.joint(joint).name or f"joint {joint}"
        free, ball = kind == mujoco.mjtJoint.mjJNT_FREE, kind == mujoco.mjtJoint.mjJNT_BALL
        if free or ball:
            parts, speeds = (FREE, FREE_VELOCITY) if free else (BALL, BALL_VELOCITY)
            positions += [f"{name} {part}" for part in parts]
            velocities += [f"{name} {part}" for part in speeds]
            turning += [False] * len(parts)
        else:
            positions.append(name)
            velocities.append(f"{name} velocity")
            turning.append(kind == mujoco.mjtJoint.mjJNT_HINGE and not model.jnt_limited[joint])
    columns = [*range(starts["qpos"], starts["qpos"] + model.nq), *range(starts["qvel"], starts["qvel"] + model.nv)]
    wraps = np.array(turning + [False] * len(velocities))
    return Coordinates(np.array(columns), (*positions, *velocities), wraps, start + snapshot.size, seconds)
