"""Any Gymnasium environment, in the form of the suite's worlds."""

import contextlib
import copy
import importlib.util
import inspect
import math
import os
from collections.abc import Iterator
from pathlib import Path
from traceback import extract_tb
from typing import Any

import gymnasium
import mujoco
import numpy as np

from .base import LIMITS, Env, EnvError, EnvOptions
from .names import GYMNASIUM, split_world
from .registered import received_spec
from .spaces import ActionVector, ObservationParts, resize
from .suite import MjModel, Physics
from .tasks import PhysicsReward, Task, call_reward
from .world import POSES, Snapshot, World, find_camera, read_fields

HERE = str(Path(__file__).parent)
EPISODE = 1000  # env steps, where the environment sets no limit of its own
CRAFTER = "Crafter-v1"
REGISTERED_BY = {
    "ale_py": ("ALE/",),
    "gymnasium_robotics": (
        "PointMaze", "AntMaze", "Fetch", "HandReach", "HandManipulate", "AdroitHand", "FrankaKitchen",
    ),
    "highway_env": ("highway-", "merge-", "roundabout-", "parking-", "intersection-", "racetrack-"),
    "metaworld": ("Meta-World/",),
    "miniworld": ("MiniWorld-",),
    "minigrid": ("MiniGrid-", "BabyAI-"),
    "panda_gym": ("Panda",),
    "shimmy": ("dm_control/",),
}  # fmt: skip
"""Beginnings of names that packages register with Gymnasium when they are imported."""

gymnasium.register(CRAFTER, entry_point="plan2explore.envs.crafter:CrafterEnv", max_episode_steps=10_000)


def make_inner(name: str, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    """The environment behind `gymnasium:ID?key=value`."""
    # pygame's SDL would take signals that Python has no handler for, so that SIGTERM ended nothing.
    os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():  # without a window to draw into, SDL should not look for one
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    identity, arguments = split_world(name.removeprefix(GYMNASIUM))
    if render_mode is not None:
        arguments |= {"render_mode": render_mode}
    try:
        return gymnasium.make(received_spec(identity) or identity, **arguments)
    except ModuleNotFoundError as error:
        raise ValueError(_missing_module(identity, error)) from error
    except gymnasium.error.Error as error:
        advice = _advice(identity) if isinstance(error, gymnasium.error.UnregisteredEnv) else ""
        raise ValueError(f"Gymnasium cannot make {identity!r}: {error}{advice}") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, TypeError) and render_mode is not None and "render_mode" in str(error):
            return make_inner(name, None)  # it cannot draw itself
        if isinstance(error, TypeError) and "keyword argument" in str(error):
            raise ValueError(f"{name}: {error}") from error
        raise own_error(name, "its constructor", error) from error


def own_error(name: str, doing: str, error: BaseException, module: str | None = None) -> EnvError:
    """Says what an environment raised, and in which line: of its `module`'s file if that is in the traceback."""
    frames = [frame for frame in extract_tb(error.__traceback__)[1:] if not frame.filename.startswith(HERE)]
    own = [frame for frame in frames if frame.filename == module] or frames[-1:]
    place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return EnvError(f"{name} itself raised {type(error).__name__} in {doing}: {error}{place}")


def _advice(identity: str) -> str:
    """Who registers a name, if that is known."""
    for module, beginnings in REGISTERED_BY.items():
        if identity.startswith(beginnings):
            there = importlib.util.find_spec(module) is not None
            install = "" if there else f"pip install {module.replace('_', '-')}, and "
            return f" It is registered by the package {module}: {install}add --import {module} (in Python: import {module})."
    return " If a module of yours registers it, add --import MODULE."


def _missing_module(identity: str, error: ModuleNotFoundError) -> str:
    """Says which module is not there: the one that the name asks for, or one that it needs itself."""
    asked = identity.rpartition(":")[0]
    missing = error.name or getattr(error.__cause__, "name", None)  # Gymnasium raises one of its own, without the name
    if not missing or not f"{asked}.".startswith(f"{missing}."):
        return f"Gymnasium cannot make {identity!r}: {error}"
    return f"There is no module {missing!r} on Python's path. If it is in this folder, add --import {missing}"


def simulation_of(inner: gymnasium.Env[Any, Any]) -> World | None:
    """A simulation of its own beside an environment with MuJoCo inside; none if there is no MuJoCo.

    It has a copy of the environment's model, and data into which states are put: the environment is not touched.
    """
    model, data = (getattr(inner.unwrapped, name, None) for name in ("model", "data"))
    if not isinstance(model, mujoco.MjModel) or not isinstance(data, mujoco.MjData):
        return None
    return World(Physics.from_model(MjModel(copy.copy(model))), task=None, substeps=1, fields=POSES)


def own_camera(inner: gymnasium.Env[Any, Any]) -> Any:
    """The model's camera `track`, or a free one with the settings that the environment draws itself with."""
    env: Any = inner.unwrapped
    number = mujoco.mj_name2id(env.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    if number >= 0:
        return number
    renderers = [getattr(each, "mujoco_renderer", None) for each in (env, *vars(env).values())]
    config = next((each.default_cam_config for each in renderers if each is not None), None) or {}
    camera = mujoco.MjvCamera()
    mujoco.mj_forward(env.model, data := mujoco.MjData(env.model))
    camera.lookat[:] = np.median(data.geom_xpos, axis=0)
    camera.distance = env.model.stat.extent
    for key, value in config.items():
        if isinstance(value, np.ndarray):
            getattr(camera, key)[:] = value
        else:
            setattr(camera, key, value)
    if camera.trackbodyid >= 0:
        camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
    return camera


class GymnasiumEnv(Env):
    """`gymnasium:ID`: the image that it observes or draws, resized; actions repeated; its own reward.

    Continuous actions are scaled to [-1, 1]; discrete ones are the environment's own, or one-hot vectors (`ActionVector`).
    A snapshot in `info["state"]` is the flat observation without its image, followed by the action (in the environment's
    own units, discrete ones one-hot) that led to it: what a reward `f(observation, action, next_observation)` takes. Where
    MuJoCo is behind the environment, a snapshot of the physics follows, and frames are drawn from that.
    """

    terminates = True

    def __init__(self, options: EnvOptions) -> None:
        super().__init__(options)
        self._inner = make_inner(self.name, "rgb_array")
        self._task = options.task
        limit = (self._inner.spec.max_episode_steps if self._inner.spec else None) or EPISODE
        self.episode = min(limit, LIMITS["episode"][1])
        try:
            self._world = simulation_of(self._inner)
            actions = ActionVector(self._inner.action_space, self.name)
            self._parts = ObservationParts(self._inner.observation_space, self.name)
            self._check(options)
        except ValueError:
            self._inner.close()
            raise
        self._set_spaces(actions, self._parts.size)
        self.state_layout = {"observation": self._parts.size, "action": self.action_size}
        self._flat = self._parts.size + self.action_size
        if self._world:
            self._snapshot = Snapshot(self._world.model, self._inner.unwrapped.data)  # type: ignore[attr-defined]
            self.state_layout |= self._snapshot.layout()
        self.draws_states = self._world is not None and not self._parts.has_image

    def _check(self, options: EnvOptions) -> None:
        if self._world is None and (options.renderer != "auto" or options.camera is not None):
            what = f"its renderer can only be 'auto', got {options.renderer!r}" if options.camera is None else "no cameras"
            raise ValueError(f"{self.name} draws itself: {what}")
        if self._world and options.camera is not None:
            find_camera(self._world.model, options.camera)
        if self._task is not None:
            check_reward(self.name, self._task, self._world)
            if self._world and not self._task.of_transitions:
                self._physics_reward = PhysicsReward(self._task, self._world.physics)

    def _camera(self) -> mujoco.MjvCamera | int:
        if self.options.camera is None or self._world is None:
            return own_camera(self._inner)
        return find_camera(self._world.model, self.options.camera)

    @property
    def fps(self) -> float:
        """Frames per second at which a video runs in real time."""
        return self._inner.metadata.get("render_fps", 30) / self.action_repeat

    def _begin(self, seed: int | None) -> None:
        with self._own_errors("reset"):
            self._last, _ = self._inner.reset(seed=seed)
        self._action = np.zeros(self.action_size)
        if self._world:
            self._world.restore_drawn(read_fields(self._inner.unwrapped.model, POSES))  # type: ignore[attr-defined]

    def _env_step(self, control: Any, state: np.ndarray) -> tuple[float, bool, bool]:
        before = copy.deepcopy(self._parts.rest(self._last)) if self._task else None  # it may be changed in place
        with self._own_errors(self._where()):
            self._last, given, terminated, truncated, _ = self._inner.step(control)
            reward = float(given)
        self._action = self._actions.flatten(control)
        self._read_state(state)
        if self._task:
            reward = self._own_reward(self._task, before, control)
        elif not math.isfinite(reward):
            raise EnvError(f"{self.name} itself returned the reward {reward} in {self._where()}")
        return reward, bool(terminated), bool(truncated)

    def _read_state(self, out: np.ndarray) -> None:
        out[: self._parts.size] = vector = self._parts.vector(self._last)
        if not np.isfinite(vector).all():
            doing = self._where() if self._env_steps else "reset"
            raise EnvError(f"{self.name} itself returned an observation that is not finite in {doing}: {vector}")
        out[self._parts.size : self._flat] = self._action
        if self._world:
            self._snapshot.read(out[self._flat :])
            self._physics_state = out[None, self._flat :].copy()

    def _own_reward(self, task: Task, before: Any, control: Any) -> float:
        if self._physics_reward:
            self._simulate()
            return self._physics_reward(self._where)
        assert task.reward is not None
        return call_reward(task.reward, task.name, self._where, before, control, self._parts.rest(self._last))

    def _simulate(self) -> None:
        """Puts the present state into the simulation beside the environment."""
        assert self._world is not None
        next(self._world.snapshot.replay(self._physics_state))

    def _proprio(self) -> np.ndarray:
        return self._parts.vector(self._last).astype(np.float32)

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The image that is observed, or one of the simulation, or else the environment's own drawing, resized."""
        if self._renderer:
            self._simulate()
            return super().render(out)
        out = np.empty((self.size, self.size, 3), np.uint8) if out is None else out
        out[...] = self._parts.image(self._last, self.size) if self._parts.has_image else resize(self._draw(), self.size)
        return out

    def _draw(self) -> np.ndarray:
        try:
            with self._own_errors("render"):
                return np.asarray(self._inner.render(), np.uint8)
        except gymnasium.error.DependencyNotInstalled as error:
            raise RuntimeError(f"{self.name} needs another package to draw itself: {error}") from error
        except EnvError as error:
            raise EnvError(f"{error}. An environment that cannot draw is explored by its vector: --obs proprio") from error

    @contextlib.contextmanager
    def _own_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except gymnasium.error.DependencyNotInstalled:
            raise
        except (Exception, SystemExit) as error:  # code that calls sys.exit has failed too
            source = inspect.getsourcefile(type(self._inner.unwrapped))
            raise own_error(self.name, doing, error, source) from error

    def close(self) -> None:
        """Closes the environment behind, and the renderer, if one was made."""
        self._inner.close()
        super().close()


def check_reward(name: str, task: Task, simulation: World | None) -> None:
    """A reward of `physics` needs MuJoCo; one of transitions any Gymnasium world."""
    if task.reward is None:
        raise ValueError(f"Task {task.name!r} belongs to the suite; {name} takes Task(name, reward=function)")
    if simulation is None and not task.of_transitions:
        raise ValueError(f"Reward {task.name!r} must take (observation, action, next_observation): {name} has no physics")
