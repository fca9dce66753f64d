"""Coordinates of stored states by name: what a number of a snapshot is in the environment."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ..envs.base import EnvError
from ..envs.gymnasium import make_inner, simulation_of
from ..envs.mjcf import load_world
from ..envs.names import DATASET, GYMNASIUM, check_module, domain_of, without_start
from ..envs.world import Snapshot, mujoco
from ..replay import Episode

TURN = tuple(f" quaternion {part}" for part in "wxyz"), tuple(f" {part} turning" for part in "xyz")
PARTS = {
    mujoco.mjtJoint.mjJNT_FREE: ((" x", " y", " z", *TURN[0]), (" x velocity", " y velocity", " z velocity", *TURN[1])),
    mujoco.mjtJoint.mjJNT_BALL: TURN,
}
"""What follows a joint's name in those of its positions and of its velocities; others have one of each."""
PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "acrobot": (("shoulder", "elbow"), ("shoulder", "shoulder velocity"), ("elbow", "elbow velocity")),
    "antmaze_u": (("root x", "root y"), ("root z", "root quaternion w"), ("front_left_hip", "front_left_knee")),
    "ball_in_cup": (("ball_x", "ball_z"), ("cup_x", "cup_z"), ("ball_x velocity", "ball_z velocity")),
    "cartpole": (("slider", "hinge_1"), ("slider", "slider velocity"), ("hinge_1", "hinge_1 velocity")),
    "cheetah": (("rooty", "rootz"), ("rootx velocity", "rooty velocity"), ("bthigh", "fthigh")),
    "finger": (("proximal", "distal"), ("hinge", "hinge velocity"), ("proximal", "hinge")),
    "hopper": (("rooty", "rootz"), ("rootx velocity", "rootz velocity"), ("hip", "knee")),
    **dict.fromkeys(("maze_large", "maze_rooms", "maze_u"), (("x", "y"), ("x velocity", "y velocity"))),
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
    """Simulated time of an env step; 0 if it is not known."""

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
    """The coordinates of an environment's snapshots.

    Those of a Gymnasium environment are its joints' where MuJoCo is behind it and it can be made here without starting
    code that a file names; else its flat observation, by number.
    """
    size = episode.state.shape[-1]
    if not world.startswith((GYMNASIUM, DATASET)):
        loaded = load_world(without_start(world))
        seconds = loaded.substeps * float(loaded.physics.timestep())
        return _of_joints(loaded.model, loaded.snapshot, 0, seconds)
    simulation = None
    with suppress(ValueError, EnvError):
        if not world.startswith(DATASET):
            check_module(world, "an episode")
            simulation = simulation_of(make_inner(world, None))
    if simulation and size > simulation.snapshot.size:
        return _of_joints(simulation.model, simulation.snapshot, size - simulation.snapshot.size, 0.0)
    count = episode.proprio.shape[1] or size - episode.action.shape[1]
    names = tuple(f"observation {index}" for index in range(count))
    return Coordinates(np.arange(count), names, np.zeros(count, bool), size, 0.0)


def proprio_names(world: str, episode: Episode) -> list[str]:
    """What the numbers of proprioception are called."""
    count = episode.proprio.shape[1]
    if world.startswith((GYMNASIUM, DATASET)):
        return [f"observation {index}" for index in range(count)]
    loaded = load_world(without_start(world))
    loaded.reset()
    sizes = {name: np.size(part) for name, part in loaded.task.get_observation(loaded.physics).items()}
    names = [f"{name} {index}" if size > 1 else name for name, size in sizes.items() for index in range(size)]
    return names if len(names) == count else [f"proprioception {index}" for index in range(count)]


def _of_joints(model: mujoco.MjModel, snapshot: Snapshot, start: int, seconds: float) -> Coordinates:
    """Joints' coordinates in a state whose numbers from `start` on are a snapshot."""
    layout = snapshot.layout()
    starts = dict(zip(layout, np.cumsum([start, *layout.values()])[:-1].tolist(), strict=True))
    positions, velocities, turning = [], [], []
    for joint in range(model.njnt):
        kind, name = mujoco.mjtJoint(model.jnt_type[joint]), model.joint(joint).name or f"joint {joint}"
        parts, speeds = PARTS.get(kind, (("",), (" velocity",)))
        positions += [name + part for part in parts]
        velocities += [name + part for part in speeds]
        turning += [kind == mujoco.mjtJoint.mjJNT_HINGE and not model.jnt_limited[joint]] * len(parts)
    columns = [*range(starts["qpos"], starts["qpos"] + model.nq), *range(starts["qvel"], starts["qvel"] + model.nv)]
    wraps = np.array(turning + [False] * len(velocities))
    return Coordinates(np.array(columns), (*positions, *velocities), wraps, start + snapshot.size, seconds)
