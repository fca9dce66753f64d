"""Any Gymnasium environment with Box actions, in the form of the suite's worlds."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from PIL import Image

from .names import GYMNASIUM
from .tasks import Task, call_reward

EPISODE = 1000  # env steps, where the environment sets no limit of its own
Observation = dict[str, Any]


def make_inner(name: str, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    """The environment behind `gymnasium:ID`, with its spaces checked."""
    identity = name.removeprefix(GYMNASIUM)
    try:
        env = gymnasium.make(identity, render_mode=render_mode)
    except gymnasium.error.Error as error:
        raise ValueError(f"Gymnasium cannot make {identity!r}: {error}") from error
    except ModuleNotFoundError as error:
        raise ValueError(_missing_module(identity, error)) from error
    if not isinstance(env.action_space, spaces.Box) or not env.action_space.is_bounded():
        env.close()
        raise ValueError(f"{name} has actions {env.action_space}; this package needs a bounded Box")
    return env


def _missing_module(identity: str, error: ModuleNotFoundError) -> str:
    """Says which module is not there: the one that the name asks for, or one that it needs itself."""
    asked = identity.rpartition(":")[0]
    missing = error.name or getattr(error.__cause__, "name", None)  # Gymnasium raises one of its own, without the name
    if not missing or not f"{asked}.".startswith(f"{missing}."):
        return f"Gymnasium cannot make {identity!r}: {error}"
    return (
        f"There is no module {missing!r} on Python's path. If it is in this folder, say so: "
        "PYTHONPATH=. plan2explore ..."
    )


class GymnasiumEnv(gymnasium.Env[Observation, np.ndarray]):
    """`gymnasium:ID`: picture from `rgb_array`, resized; actions scaled to [-1, 1] and repeated; its own reward.

    A snapshot in `info["state"]` is the flat observation followed by the action (in the environment's own units) that
    led to it: what a reward `f(observation, action, next_observation)` takes.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 (Gymnasium's own form)
    render_mode = "rgb_array"
    renderer = "gymnasium"
    drawn_size = 0

    def __init__(
        self,
        name: str,
        renderer: str,
        size: int,
        action_repeat: int,
        seed: int,
        task: Task | None = None,
        obs: str = "both",
    ) -> None:
        if renderer != "auto":
            raise ValueError(f"{name} draws itself: its renderer can only be 'auto', got {renderer!r}")
        if task is not None and task.reward is None:
            raise ValueError(f"Task {task.name!r} belongs to the suite; {name} takes Task(name, reward=function)")
        self.name = name
        self.size = size
        self.action_repeat = action_repeat
        self.image_buffer: np.ndarray | None = None
        self._draws = obs != "proprio"
        self._no_image = np.zeros((size, size, 3), np.uint8)
        self._inner = make_inner(name, "rgb_array")
        self._task = task
        self._next_seed: int | None = seed
        self.episode = (self._inner.spec.max_episode_steps if self._inner.spec else None) or EPISODE
        box: Any = self._inner.action_space
        self._low, self._high = np.asarray(box.low, np.float64), np.asarray(box.high, np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (int(np.prod(box.shape)),), np.float32)
        self._flat = spaces.flatdim(self._inner.observation_space)
        image = spaces.Box(0, 255, (size, size, 3), np.uint8)
        proprio = spaces.Box(-np.inf, np.inf, (self._flat,), np.float32)
        self.observation_space = spaces.Dict({"image": image, "proprio": proprio})
        self._env_steps = 0
        self._running = False

    @property
    def fps(self) -> float:
        """Frames per second at which a video runs in real time."""
        return self._inner.metadata.get("render_fps", 30) / self.action_repeat

    @property
    def state_size(self) -> int:
        """Length of one snapshot: the flat observation and the action."""
        return self._flat + self._low.size

    @property
    def state_layout(self) -> dict[str, int]:
        """Names and lengths of a snapshot's parts."""
        return {"observation": self._flat, "action": self._low.size}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; the first one without a seed uses the seed given to `make`."""
        super().reset(seed=seed)
        seed = self._next_seed if seed is None else seed
        self._next_seed = None
        self._last, _ = self._inner.reset(seed=seed)
        self._env_steps, self._running = 0, True
        state = np.concatenate([self._flatten(self._last), np.zeros(self._low.size)])[None]
        return self._observe(), {"env_steps": 0, "state": state, "drawn": np.zeros(0)}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Repeats the action; the reward is the sum over the repeated steps."""
        if not self._running:
            raise RuntimeError(f"The episode of {self.name} has ended or not begun: call reset()")
        control = self._control(action)
        state = np.full((self.action_repeat, self.state_size), np.nan)
        total, terminated, truncated = 0.0, False, False
        for row in state:
            before = self._last
            self._last, reward, terminated, truncated, _ = self._inner.step(control)
            self._env_steps += 1
            total += self._own_reward(before, control) if self._task else float(reward)
            row[:] = np.concatenate([self._flatten(self._last), control.ravel()])
            truncated = truncated or self._env_steps >= self.episode
            if terminated or truncated:
                self._running = False
                break
        return self._observe(), total, bool(terminated), truncated, {"env_steps": self._env_steps, "state": state}

    def _own_reward(self, before: Any, control: np.ndarray) -> float:
        assert self._task is not None and self._task.reward is not None
        where = f"env step {self._env_steps}"
        return call_reward(self._task.reward, self._task.name, lambda: where, before, control, self._last)

    def _control(self, action: np.ndarray) -> np.ndarray:
        action = np.asarray(action, np.float64)
        if action.shape != self.action_space.shape or not np.isfinite(action).all():
            shape = self.action_space.shape
            raise ValueError(f"An action of {self.name} is {shape} finite numbers in [-1, 1]; got {action!r}")
        unit = (np.clip(action, -1.0, 1.0).reshape(self._low.shape) + 1.0) / 2
        return (self._low + unit * (self._high - self._low)).astype(self._inner.action_space.dtype)

    def _flatten(self, observation: Any) -> np.ndarray:
        return np.asarray(spaces.flatten(self._inner.observation_space, observation), np.float64)

    def _observe(self) -> Observation:
        if self._draws:
            image = self.render(self.image_buffer)
        else:
            image = self._no_image if self.image_buffer is None else self.image_buffer
        return {"image": image, "proprio": self._flatten(self._last).astype(np.float32)}

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The environment's own picture, resized."""
        try:
            frame = self._inner.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise RuntimeError(f"{self.name} needs another package to draw itself: {error}") from error
        picture = Image.fromarray(np.asarray(frame, np.uint8)).resize((self.size, self.size), Image.Resampling.BOX)
        if out is None:
            return np.array(picture)
        out[...] = picture
        return out

    def close(self) -> None:
        """Closes the environment behind."""
        self._inner.close()
