"""Any Gymnasium environment, in the form of the suite's worlds."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from .names import GYMNASIUM
from .spaces import ActionVector, ObservationParts, resize
from .tasks import Task, call_reward

EPISODE = 1000  # env steps, where the environment sets no limit of its own
Observation = dict[str, Any]


def make_inner(name: str, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    """The environment behind `gymnasium:ID`."""
    identity = name.removeprefix(GYMNASIUM)
    try:
        return gymnasium.make(identity, render_mode=render_mode)
    except gymnasium.error.Error as error:
        raise ValueError(f"Gymnasium cannot make {identity!r}: {error}") from error
    except ModuleNotFoundError as error:
        raise ValueError(_missing_module(identity, error)) from error


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


class GymnasiumEnv(gymnasium.Env[Observation, Any]):
    """`gymnasium:ID`: the image that it observes or draws, resized; actions repeated; its own reward.

    Continuous actions are scaled to [-1, 1]; discrete ones are the environment's own, or one-hot vectors (`ActionVector`).
    A snapshot in `info["state"]` is the flat observation without its image, followed by the action (in the environment's
    own units, discrete ones one-hot) that led to it: what a reward `f(observation, action, next_observation)` takes.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 (Gymnasium's own form)
    render_mode = "rgb_array"
    renderer = "gymnasium"
    drawn_size = 0
    terminates = True

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
        try:
            self._actions = ActionVector(self._inner.action_space, name)
            self._parts = ObservationParts(self._inner.observation_space, name)
        except ValueError:
            self._inner.close()
            raise
        self.discrete, self.action_size = self._actions.discrete, self._actions.size
        self.flat_action_space = self._actions.space
        self.action_space = self._inner.action_space if self.discrete else self._actions.space
        image = spaces.Box(0, 255, (size, size, 3), np.uint8)
        proprio = spaces.Box(-np.inf, np.inf, (self._parts.size,), np.float32)
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
        return self._parts.size + self.action_size

    @property
    def state_layout(self) -> dict[str, int]:
        """Names and lengths of a snapshot's parts."""
        return {"observation": self._parts.size, "action": self.action_size}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; the first one without a seed uses the seed given to `make`."""
        super().reset(seed=seed)
        seed = self._next_seed if seed is None else seed
        self._next_seed = None
        self._last, _ = self._inner.reset(seed=seed)
        self._env_steps, self._running = 0, True
        state = np.concatenate([self._parts.vector(self._last), np.zeros(self.action_size)])[None]
        return self._observe(), {"env_steps": 0, "state": state, "drawn": np.zeros(0)}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Repeats the action; the reward is the sum over the repeated steps."""
        if not self._running:
            raise RuntimeError(f"The episode of {self.name} has ended or not begun: call reset()")
        control = self._actions.to_native(self.flat_action(action))
        state = np.full((self.action_repeat, self.state_size), np.nan)
        total, terminated, truncated = 0.0, False, False
        for row in state:
            before = self._last
            self._last, reward, terminated, truncated, _ = self._inner.step(control)
            self._env_steps += 1
            total += self._own_reward(before, control) if self._task else float(reward)
            row[:] = np.concatenate([self._parts.vector(self._last), self._actions.flatten(control)])
            truncated = truncated or self._env_steps >= self.episode
            if terminated or truncated:
                self._running = False
                break
        return self._observe(), total, bool(terminated), truncated, {"env_steps": self._env_steps, "state": state}

    def _own_reward(self, before: Any, control: Any) -> float:
        assert self._task is not None and self._task.reward is not None
        where = f"env step {self._env_steps}"
        before, after = self._parts.rest(before), self._parts.rest(self._last)
        return call_reward(self._task.reward, self._task.name, lambda: where, before, control, after)

    def flat_action(self, action: Any) -> np.ndarray:
        """The vector for an action of `action_space`; a vector of floats stays what it is."""
        vector = np.asarray(action) if not self.discrete or isinstance(action, np.ndarray) else np.zeros(0)
        if vector.shape == (self.action_size,) and (vector.dtype.kind == "f" or not self.discrete):
            if np.isfinite(vector.astype(np.float64)).all():
                return vector.astype(np.float32)
        elif self.discrete and self.action_space.contains(action):
            return self._actions.to_vector(action)
        what = f"of {self.action_space}" if self.discrete else f"{(self.action_size,)} finite numbers in [-1, 1]"
        raise ValueError(f"An action of {self.name} is {what}; got {action!r}")

    def random_action(self, generator: np.random.Generator) -> np.ndarray:
        """A uniformly random action as a vector."""
        return self._actions.sample(generator)

    def _observe(self) -> Observation:
        if self._draws:
            image = self.render(self.image_buffer)
        else:
            image = self._no_image if self.image_buffer is None else self.image_buffer
        return {"image": image, "proprio": self._parts.vector(self._last).astype(np.float32)}

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The image that is observed, or else the environment's own drawing, resized."""
        picture = resize(self._parts.image(self._last) if self._parts.has_image else self._draw(), self.size)
        if out is None:
            return picture
        out[...] = picture
        return out

    def _draw(self) -> np.ndarray:
        try:
            return np.asarray(self._inner.render(), np.uint8)
        except gymnasium.error.DependencyNotInstalled as error:
            raise RuntimeError(f"{self.name} needs another package to draw itself: {error}") from error

    def close(self) -> None:
        """Closes the environment behind."""
        self._inner.close()
