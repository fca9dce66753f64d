"""What all environments have in common: observations, repeated actions, and snapshots beside them."""

from pathlib import Path
from traceback import extract_tb
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from .tasks import PhysicsReward

Observation = dict[str, Any]
HERE = str(Path(__file__).parent)


class EnvError(RuntimeError):
    """The environment's own code failed, not this package."""


def own_error(name: str, doing: str, error: BaseException, module: str | None = None) -> EnvError:
    """Says what an environment raised, and in which line: of its `module`'s file if that is in the traceback."""
    frames = [frame for frame in extract_tb(error.__traceback__)[1:] if not frame.filename.startswith(HERE)]
    own = [frame for frame in frames if frame.filename == module] or frames[-1:]
    place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return EnvError(f"{name} itself raised {type(error).__name__} in {doing}: {error}{place}")


class Env(gymnasium.Env[Observation, Any]):
    """An environment with an image and a vector, whose actions are repeated.

    `info["state"]` holds a snapshot for each repeated env step, `info["drawn"]`, at reset, what the episode's start drew
    into the model. When `image_buffer` is set, images are drawn straight into it. With `obs="proprio"` observations have
    a black image that costs nothing; `render` draws all the same.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 (Gymnasium's own form)
    render_mode = "rgb_array"
    discrete: tuple[int, ...] = ()
    """Choices of each discrete action; empty for continuous actions."""
    episode: int
    """Env steps, unless something ends it early."""
    state_size: int
    """Length of one snapshot."""
    terminates: bool
    """Whether something can end an episode before its time."""
    draws_states = True
    """Whether images of stored states can be drawn."""

    def __init__(self, name: str, size: int, action_repeat: int, seed: int, obs: str) -> None:
        self.name, self.size, self.action_repeat = name, size, action_repeat
        self.image_buffer: np.ndarray | None = None
        self._draws = obs != "proprio"
        self._next_seed: int | None = _checked(seed)
        self._physics_reward: PhysicsReward | None = None
        """The user's own, if it is one of `physics`."""
        self._env_steps = 0
        self._running = False  # an episode has begun and not ended

    def _set_spaces(self, action: spaces.Space[Any], flat_action: spaces.Box, proprio: int) -> None:
        self.action_space, self.flat_action_space = action, flat_action
        self.action_size: int = flat_action.shape[0]
        image = spaces.Box(0, 255, (self.size, self.size, 3), np.uint8)
        vector = spaces.Box(-np.inf, np.inf, (proprio,), np.float32)
        self.observation_space = spaces.Dict({"image": image, "proprio": vector})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; with a seed, one that depends on nothing else. The first has the seed given to `make`."""
        seed = self._next_seed if seed is None else _checked(int(seed))
        super().reset(seed=seed)
        self._next_seed = None
        self._begin(seed)
        if self._physics_reward:
            self._physics_reward.begin()
        self._env_steps, self._running = 0, True
        state = np.empty((1, self.state_size))
        self._read_state(state[0])
        return self._observe(), {"env_steps": 0, "state": state, "drawn": self._drawn()}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Repeats the action; the reward is the sum over the repeated env steps."""
        if not self._running:
            raise RuntimeError(f"The episode of {self.name} has ended or not begun: call reset()")
        control = self._control(self.flat_action(action))
        state = np.full((self.action_repeat, self.state_size), np.nan)
        total, terminated, truncated = 0.0, False, False
        for row in state:
            self._env_steps += 1
            reward, terminated, truncated = self._env_step(control, row)
            total += reward
            truncated = truncated or (self._env_steps >= self.episode and not terminated)
            if terminated or truncated:
                self._running = False
                break
        if self._physics_reward and not self._running:
            self._physics_reward.end(self._where)
        return self._observe(), total, terminated, truncated, {"env_steps": self._env_steps, "state": state}

    def _where(self) -> str:
        return f"env step {self._env_steps}"

    def flat_action(self, action: Any) -> np.ndarray:
        """The vector that episodes store for an action."""
        vector = np.asarray(action, np.float64)
        if vector.shape != (self.action_size,) or not np.isfinite(vector).all():
            raise ValueError(f"An action of {self.name} is {(self.action_size,)} finite numbers in [-1, 1]; got {action!r}")
        return vector

    def random_action(self, generator: np.random.Generator) -> np.ndarray:
        """A uniformly random action as a vector."""
        return generator.uniform(-1, 1, self.action_size).astype(np.float32)

    def _observe(self) -> Observation:
        if self._draws:
            image = self.render(self.image_buffer)
        else:
            image = np.zeros((self.size, self.size, 3), np.uint8) if self.image_buffer is None else self.image_buffer
        return {"image": image, "proprio": self._proprio()}

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The current image, drawn into `out` when that is given."""
        raise NotImplementedError

    def _begin(self, seed: int | None) -> None:
        """Starts an episode of the simulator."""
        raise NotImplementedError

    def _control(self, vector: np.ndarray) -> Any:
        """What the simulator takes for the agent's vector."""
        raise NotImplementedError

    def _env_step(self, control: Any, state: np.ndarray) -> tuple[float, bool, bool]:
        """One env step, whose snapshot is written to `state`: its reward, terminated, truncated."""
        raise NotImplementedError

    def _read_state(self, out: np.ndarray) -> None:
        raise NotImplementedError

    def _drawn(self) -> np.ndarray:
        return np.zeros(0)

    def _proprio(self) -> np.ndarray:
        raise NotImplementedError

    @property
    def drawn_size(self) -> int:
        """Length of `info["drawn"]`."""
        return self._drawn().size


def _checked(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise ValueError(f"A seed is a whole number from 0 to 2**32 - 1; got {seed}")
    return seed
