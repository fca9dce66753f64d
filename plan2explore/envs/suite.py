"""dm_control's suite, loaded without touching OpenGL, with the paper's three extra cheetah tasks and our mazes."""

import functools
import logging
import math
from typing import Any

import numpy as np

from . import environment_variable
from .world import World

with environment_variable("MUJOCO_GL", "disabled"):
    # Left alone, dm_control opens a window system and GL drivers while it is imported. Frames are drawn elsewhere.
    from dm_control import suite

from dm_control.mujoco import Physics
from dm_control.mujoco.wrapper import MjModel
from dm_control.rl.control import PhysicsError
from dm_control.suite import base, cheetah

from . import maze, speed

__all__ = ["MjModel", "Physics", "PhysicsError", "base"]  # for who must not import dm_control before this module

speed.install()

ALIASES = {"cup": "ball_in_cup"}  # the paper's name -> the suite's

# A bare domain takes its initial states, drawn targets and observations from this task.
DEFAULT_TASK = {
    "acrobot": "swingup",
    "antmaze_u": "goal_nw",
    "ball_in_cup": "catch",
    "cartpole": "swingup",
    "cheetah": "run",
    "dog": "walk",
    "finger": "turn_easy",
    "fish": "swim",
    "hopper": "stand",
    "humanoid": "walk",
    "humanoid_CMU": "walk",
    "lqr": "lqr_2_1",
    "manipulator": "bring_ball",
    "maze_large": "goal_ne",
    "maze_rooms": "goal_ne",
    "maze_u": "goal_nw",
    "pendulum": "swingup",
    "point_mass": "easy",
    "quadruped": "walk",
    "reacher": "easy",
    "stacker": "stack_2",
    "swimmer": "swimmer6",
    "walker": "walk",
}

# Fields of the model into which tasks of a domain, or one of them, write what they draw at the start of an episode
# (targets, receptacles, gains, terrain). Rewards depend on them, so they are stored with the episode.
DRAWN_FIELDS: dict[str, tuple[str, ...]] = {
    "finger": ("site_pos",),
    "fish": ("geom_pos",),
    "manipulator": ("body_pos", "body_quat"),
    "point_mass": ("wrap_prm",),
    "quadruped_escape": ("hfield_data",),
    "reacher": ("geom_pos",),
    "stacker": ("body_pos",),
    "swimmer": ("geom_pos", "light_pos"),
}

CAMERAS = {"quadruped": 2}  # every other domain: camera 0


class CheetahTask(cheetah.Cheetah):
    """The cheetah with one of the paper's own rewards, a speed scaled and clipped to [0, 1]."""

    def __init__(self, direction: str, scale: float, random: Any = None) -> None:
        super().__init__(random=random)
        self._direction = direction
        self._scale = scale

    def get_reward(self, physics: Any) -> float:
        """Reward of the current state: `clip(speed / scale, 0, 1)`."""
        if self._direction == "forward":
            speed = physics.speed()
        else:  # the torso's pitch rate: the paper's "Z axis" is the axis out of the image
            speed = physics.named.data.qvel["rooty"].item()
        return min(max(float(speed) / self._scale, 0.0), 1.0)  # in this order, NaN stays NaN


CHEETAH_TASKS = {
    "run_backward": ("forward", -10.0),
    "flip_forward": ("pitch", 5.0),
    "flip_backward": ("pitch", -5.0),
}


class MazeTask(base.Task):
    """A point in a maze that is paid for being at a goal: `exp(-2 d^2)` at a distance of d cells."""

    def __init__(self, domain: str, goal: str, random: Any = None) -> None:
        super().__init__(random=random)
        self._start = maze.centre_of(domain, maze.start_cell(domain))
        self._goal = maze.centre_of(domain, maze.goals(domain)[goal]).tolist()
        self._half = maze.half_size(domain)

    def initialize_episode(self, physics: Any) -> None:
        """Puts the point near the middle of the start cell."""
        physics.data.qpos[:] = self._start + self.random.uniform(-maze.START_NOISE, maze.START_NOISE, 2)

    def get_observation(self, physics: Any) -> dict[str, np.ndarray]:
        """Position in the maze and velocity, both about within [-1, 1]."""
        return {"position": physics.data.qpos / self._half, "velocity": physics.data.qvel / maze.SPEED}

    def get_reward(self, physics: Any) -> float:
        """Reward of the current state."""
        x, y = physics.data.qpos[:2]
        return math.exp(-2 * ((x - self._goal[0]) ** 2 + (y - self._goal[1]) ** 2))


class AntMazeTask(MazeTask):
    """An ant in a maze, with the goals of the point."""

    def initialize_episode(self, physics: Any) -> None:
        """Puts the ant near the middle of the start cell, on its feet, turned anywhere."""
        turn = self.random.uniform(-math.pi, math.pi)
        place = self._start + self.random.uniform(-maze.START_NOISE, maze.START_NOISE, 2)
        physics.data.qpos[:7] = *place, maze.ANT_HEIGHT, math.cos(turn / 2), 0, 0, math.sin(turn / 2)
        physics.data.qpos[7:] = np.tile([0.0, maze.ANT_KNEES], 4) + self.random.uniform(-0.1, 0.1, 8)

    def get_observation(self, physics: Any) -> dict[str, np.ndarray]:
        """Place in the maze, height, orientation, joint angles, and velocities of all, about within [-1, 1]."""
        position, velocity = physics.data.qpos, physics.data.qvel
        return {
            "position": position[:2] / self._half,
            "height": 5 * position[2:3],
            "orientation": physics.named.data.xmat["ant"].copy(),
            "joints": position[7:].copy(),
            "velocity": velocity[:3] / maze.SPEED,
            "turning": velocity[3:6] / 10,
            "joints velocity": velocity[6:] / 20,
        }


@functools.cache
def tasks_of_domains() -> dict[str, tuple[str, ...]]:
    """Every domain of the suite with its tasks, the cheetah's extra ones and the mazes included."""
    domains: dict[str, list[str]] = {}
    for domain, task in suite.ALL_TASKS:
        domains.setdefault(domain, []).append(task)
    domains["cheetah"] += CHEETAH_TASKS
    domains |= {domain: list(maze.goals(domain)) for domain in maze.LAYOUTS}
    return {domain: tuple(tasks) for domain, tasks in domains.items()}


def load(domain: str, task: str | None) -> World:
    """Loads a world of the suite; the same model whatever the seed of its episodes, and no reward without a task."""
    named = task or DEFAULT_TASK[domain]
    if domain in maze.LAYOUTS:
        kind, substeps = (AntMazeTask, maze.ANT_SUBSTEPS) if domain in maze.ANTS else (MazeTask, maze.SUBSTEPS)
        world = World(Physics.from_xml_string(maze.model_xml(domain)), kind(domain, named, random=0), substeps)
    else:
        world = _load_suite(domain, named)
    if task is None:
        world.task.get_reward = lambda physics: 0.0
    return world


@functools.cache
def observer(domain: str, task: str | None) -> Any:
    """A task whose `get_observation` can be asked about the physics of any task of the domain with the same body."""
    return load(domain, task).task


def _load_suite(domain: str, task: str) -> World:
    extra = CHEETAH_TASKS.get(task) if domain == "cheetah" else None
    logger = logging.getLogger("absl")  # MuJoCo's notes about the suite's own XML stay off the user's screen
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # lqr draws its body while it is built: a fixed seed here makes it one world.
        environment = suite.load(domain, "run" if extra else task, task_kwargs={"random": 0})
    finally:
        logger.setLevel(level)
    physics = environment.physics
    # quadruped's escape uploads its terrain to GL when there is a context; there is none to upload to.
    physics._make_rendering_contexts = lambda: None
    return World(
        physics=physics,
        task=CheetahTask(*extra, random=0) if extra else environment.task,
        substeps=round(environment.control_timestep() / physics.timestep()),
        fields=DRAWN_FIELDS.get(domain) or DRAWN_FIELDS.get(f"{domain}_{task}", ()),
        camera=CAMERAS.get(domain, 0),
    )
