"""MuJoCo worlds as Gymnasium environments, with the physics state beside the pixels: the suite, mazes, and model files."""

import mujoco
import numpy as np
from gymnasium import spaces

from . import suite
from .base import Env, EnvError, EnvOptions
from .mjcf import load_world
from .names import is_suite, split_name
from .spaces import ActionVector
from .tasks import PhysicsReward
from .world import World, find_camera


class MujocoEnv(Env):
    """A world of the suite: `walker_walk` with its task, or the bare `walker`, whose reward is always 0; or a model file.

    Snapshots are those of `Snapshot`.
    """

    _world: World

    def __init__(self, options: EnvOptions) -> None:
        super().__init__(options)
        self._world = load_world(self.name)
        self.physics, self.episode = self._world.physics, self._world.episode
        domain, named = split_name(self.name) if is_suite(self.name) else (self.name, None)
        self._observer, own = self._world.task, options.task
        if options.observe_as is not None:
            other, task = split_name(options.observe_as)
            if other != domain:
                raise ValueError(f"{self.name} cannot observe as {options.observe_as}: that is another body")
            self._observer = suite.observer(other, task)
        if own is not None:  # the user's own reward, which only a world without a task takes
            if named:
                raise ValueError(f"{self.name} has a task already; give {own.name!r} to the bare world {domain!r}")
            if own.reward is None:
                raise ValueError(f"Task {own.name!r} is the suite's own: make({own.name!r}) instead")
            self._physics_reward = PhysicsReward(own, self.physics)
        self.state_layout = self._world.snapshot.layout()
        self.terminates = self.name.startswith("lqr")  # nothing else in the suite ends an episode before its time
        self.camera = find_camera(self._world.model, self._world.camera if options.camera is None else options.camera)
        if self._draws:
            _ = self._renderer  # what cannot be drawn is said now
        spec = self._world.task.action_spec(self.physics)
        bounded = (spec.minimum > -1e6) & (spec.maximum < 1e6)  # controls without bounds, such as lqr's, go from -1 to 1
        low, high = np.where(bounded, spec.minimum, -1.0), np.where(bounded, spec.maximum, 1.0)
        self._world.reset()  # the task's own constants too, such as the size of its target
        self._set_spaces(ActionVector(spaces.Box(low, high, dtype=np.float64), self.name), self._proprio().size)

    def _camera(self) -> mujoco.MjvCamera:
        return self.camera

    @property
    def fps(self) -> float:
        """Frames per second at which a video runs in real time."""
        return 1 / (self._world.substeps * self.physics.timestep() * self.action_repeat)

    def _begin(self, seed: int | None) -> None:
        if seed is not None:
            self._world.task.random.seed(seed)
        self._world.reset()

    def _read_state(self, out: np.ndarray) -> None:
        self._world.snapshot.read(out)

    def _env_step(self, control: np.ndarray, state: np.ndarray) -> tuple[float, bool, bool]:
        """One control step, exactly as dm_control's own environment takes it."""
        task, physics = self._world.task, self.physics
        task.before_step(control, physics)
        try:
            physics.step(self._world.substeps)
        except suite.PhysicsError as error:
            raise EnvError(
                f"The simulation of {self.name} became unstable at env step {self._env_steps}: {error}"
            ) from error
        task.after_step(physics)
        self._read_state(state)
        reward = self._physics_reward(self._where) if self._physics_reward else float(task.get_reward(physics))
        # dm_control ends an episode early by a termination value of 0 (only lqr does).
        return reward, task.get_termination(physics) == 0.0, False

    def _proprio(self) -> np.ndarray:
        parts = self._observer.get_observation(self.physics).values()
        return np.concatenate([np.ravel(part) for part in parts], dtype=np.float32, casting="same_kind")
