"""What all environments have in common: observations, repeated actions, and snapshots beside them."""

import functools
from dataclasses import dataclass
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces

from .render import RENDERERS, Renderer, make_renderer
from .spaces import ActionVector
from .tasks import PhysicsReward, Task
from .world import World

LIMITS = {
    "size": (8, 1024), "action_repeat": (1, 100), "seed": (0, 2**32 - 1), "episode": (1, 10**9), "substeps": (1, 10**6),
}  # fmt: skip
CHOICES = {"renderer": RENDERERS, "obs": ("pixels", "proprio", "both")}
Observation = dict[str, Any]


@dataclass(frozen=True)
class EnvOptions:
    """What `make` was given, checked."""

    name: str
    renderer: str
    size: int
    action_repeat: int
    seed: int
    task: Task | None
    obs: str
    observe_as: str | None
    camera: str | None

    def __post_init__(self) -> None:
        for what in ("size", "action_repeat", "seed"):
            check_whole(what, getattr(self, what))
        for what, choices in CHOICES.items():
            if getattr(self, what) not in choices:
                raise ValueError(f"{what} is one of {', '.join(choices)}; got {getattr(self, what)!r}")


def check_whole(what: str, value: Any) -> None:
    """A whole number of the user's."""
    low, high = LIMITS[what]
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ValueError(f"{what} is a whole number from {low} to {high}; got {value!r:.40}")


class EnvError(RuntimeError):
    """The environment's own code failed, not this package."""


class Env(gymnasium.Env[Observation, Any]):
    """An environment with an image and a vector, whose actions are repeated.

    `info["state"]` holds a snapshot for each repeated env step, `info["drawn"]`, at reset, what the episode's start drew
    into the model. When `image_buffer` is set, images are drawn straight into it. With `obs="proprio"` observations have
    a black image that costs nothing; `render` draws all the same.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 (Gymnasium's own form)
    render_mode = "rgb_array"
    discrete: tuple[int, ...]
    """Choices of each discrete action; empty for continuous actions."""
    episode: int
    """Env steps, unless something ends it early."""
    state_layout: dict[str, int]
    """Names and lengths of a snapshot's parts."""
    terminates: bool
    """Whether something can end an episode before its time."""
    draws_states = True
    """Whether images of stored states can be drawn."""
    _world: World | None
    """The simulation that is drawn, and that rewards of `physics` are asked about."""

    def __init__(self, options: EnvOptions) -> None:
        self.options = options
        self.name, self.size, self.action_repeat = options.name, options.size, options.action_repeat
        self.image_buffer: np.ndarray | None = None
        self._draws = options.obs != "proprio"
        self._next_seed: int | None = int(options.seed)
        self._physics_reward: PhysicsReward | None = None
        """The user's own, if it is one of `physics`."""
        self._env_steps = 0
        self._running = False  # an episode has begun and not ended

    @functools.cached_property
    def state_size(self) -> int:
        """Length of one snapshot."""
        return sum(self.state_layout.values())

    def _set_spaces(self, actions: ActionVector, proprio: int) -> None:
        self._actions, self.discrete, self.action_size = actions, actions.discrete, actions.size
        self.action_space, self.flat_action_space = actions.native if actions.discrete else actions.space, actions.space
        image = spaces.Box(0, 255, (self.size, self.size, 3), np.uint8)
        vector = spaces.Box(-np.inf, np.inf, (proprio,), np.float32)
        self.observation_space = spaces.Dict({"image": image, "proprio": vector})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; with a seed, one that depends on nothing else. The first has the seed given to `make`."""
        if seed is not None:
            check_whole("seed", seed)
        seed = self._next_seed if seed is None else int(seed)
        super().reset(seed=seed)
        self._next_seed = None
        self._begin(seed)
        if self._physics_reward:
            self._physics_reward.begin()
        self._env_steps, self._running = 0, True
        state = np.empty((1, self.state_size))
        self._read_state(state[0])
        return self._observe(), {"env_steps": 0, "state": state, "drawn": self._drawn}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Repeats the action; the reward is the sum over the repeated env steps."""
        if not self._running:
            raise RuntimeError(f"The episode of {self.name} has ended or not begun: call reset()")
        control = self._actions.to_native(self.flat_action(action))
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
        """The vector that episodes store for an action of `action_space`; a vector of floats stays what it is."""
        if not self.discrete or (isinstance(action, np.ndarray) and action.dtype.kind == "f"):
            vector = np.asarray(action, np.float64)
            if vector.shape == (self.action_size,) and np.isfinite(vector).all():
                return vector
        elif self.action_space.contains(action):
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
            image = np.zeros((self.size, self.size, 3), np.uint8) if self.image_buffer is None else self.image_buffer
        return {"image": image, "proprio": self._proprio()}

    @functools.cached_property
    def _renderer(self) -> Renderer | None:
        """Draws the simulation; none where the environment draws or observes its image."""
        if self._world is None or not self.draws_states:
            return None
        model, data = self._world.model, self._world.data
        return make_renderer(model, data, self._camera(), self.size, self.options.renderer)

    @property
    def renderer(self) -> str:
        """What draws: raycast, gl-egl, gl-osmesa, or gymnasium (the environment itself); none for vectors alone."""
        if not self._draws:
            return "none"
        return self._renderer.name if self._renderer else "gymnasium"

    def render(self, out: np.ndarray | None = None) -> np.ndarray:
        """The current image, drawn into `out` when that is given."""
        assert self._renderer
        return self._renderer.render(out)

    def draw(self, states: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Images of stored states, uint8 (n, size, size, 3), where MuJoCo is behind; ends the running episode."""
        if not self._renderer or not self._world:
            raise RuntimeError(f"{self.name} draws itself: stored states cannot be drawn")
        self._running = False
        physics = states[:, self.state_size - self._world.snapshot.size :]
        return np.stack([self._renderer.render() for _ in self._world.replay(physics, drawn)])

    def close(self) -> None:
        """Frees the renderer, if one was made."""
        if vars(self).get("_renderer"):
            self._renderer.close()  # type: ignore[union-attr]

    def _camera(self) -> mujoco.MjvCamera | int:
        raise NotImplementedError

    def _begin(self, seed: int | None) -> None:
        """Starts an episode of the simulator."""
        raise NotImplementedError

    def _env_step(self, control: Any, state: np.ndarray) -> tuple[float, bool, bool]:
        """One env step, whose snapshot is written to `state`: its reward, terminated, truncated."""
        raise NotImplementedError

    def _read_state(self, out: np.ndarray) -> None:
        raise NotImplementedError

    def _proprio(self) -> np.ndarray:
        raise NotImplementedError

    @property
    def _drawn(self) -> np.ndarray:
        return self._world.drawn() if self._world else np.zeros(0)

    @property
    def drawn_size(self) -> int:
        """Length of `info["drawn"]`."""
        return self._drawn.size
