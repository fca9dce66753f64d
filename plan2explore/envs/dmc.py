"""The control suite as Gymnasium environments, with the physics state beside the pixels."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from . import suite
from .names import split_name
from .render import make_renderer
from .state import Snapshot
from .tasks import PhysicsReward, Task

Observation = dict[str, Any]


class SuiteEnv(gymnasium.Env[Observation, np.ndarray]):
    """A world of the suite: `walker_walk` with its task, or the bare `walker`, whose reward is always 0.

    `info["state"]` holds a snapshot (see `Snapshot`) for each repeated env step, `info["drawn"]`, at reset, what the task
    drew into the model. When `image_buffer` is set, images are drawn straight into it. With `obs="proprio"` observations
    have a black image that costs nothing; `render` draws all the same.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 (Gymnasium's own form)
    render_mode = "rgb_array"
    episode = 1000  # env steps, unless something ends it early
    discrete: tuple[int, ...] = ()

    def __init__(
        self,
        name: str,
        renderer: str,
        size: int,
        action_repeat: int,
        seed: int,
        task: Task | None = None,
        obs: str = "both",
        observe_as: str | None = None,
    ) -> None:
        self.name = name
        self.size = size
        self.action_repeat = action_repeat
        self.domain, named = split_name(name)
        self._world = suite.load(self.domain, named)
        self._observer = self._world.task if observe_as is None else self._observer_of(observe_as)
        self.physics = self._world.physics
        self._own_reward = self._check_task(named, task)
        self._is_paid = named is not None
        model, data = self.physics.model.ptr, self.physics.data.ptr
        self._snapshot = Snapshot(model, data)
        self._draws = obs != "proprio"
        self._renderer = make_renderer(model, data, self.camera, size, renderer)
        self.renderer: str = self._renderer.name
        self.image_buffer: np.ndarray | None = None
        self._no_image = np.zeros((size, size, 3), np.uint8)
        self._set_spaces()
        self._seed_episodes(seed)
        self._env_steps = 0
        self._running = False  # an episode has begun and not ended

    def _observer_of(self, other: str) -> Any:
        domain, task = split_name(other)
        if domain != self.domain:
            raise ValueError(f"{self.name} cannot observe as {other}: that is another body")
        return suite.observer(domain, task)

    def _check_task(self, named: str | None, task: Task | None) -> PhysicsReward | None:
        """The user's own reward, which only a bare domain takes."""
        if task is None:
            return None
        if named:
            raise ValueError(f"{self.name} has a task already; give {task.name!r} to the bare world {self.domain!r}")
        if task.reward is None:
            raise ValueError(f"Task {task.name!r} is the suite's own: make({task.name!r}) instead")
        return PhysicsReward(task, self.physics)

    def _where(self) -> str:
        return f"env step {self._env_steps}"

    def _set_spaces(self) -> None:
        spec = self._world.task.action_spec(self.physics)
        bounded = np.all(spec.maximum < 1e6) and np.all(spec.minimum > -1e6)  # lqr's controls have no bounds
        self._action_low = spec.minimum if bounded else -np.ones(spec.shape)
        self._action_scale = (spec.maximum - spec.minimum) / 2 if bounded else np.ones(spec.shape)
        self.action_space = self.flat_action_space = spaces.Box(-1.0, 1.0, spec.shape, np.float32)
        self.action_size: int = spec.shape[0]
        self._world.reset()
        proprio = spaces.Box(-np.inf, np.inf, self._proprio().shape, np.float32)
        image = spaces.Box(0, 255, (self.size, self.size, 3), np.uint8)
        self.observation_space = spaces.Dict({"image": image, "proprio": proprio})

    @property
    def terminates(self) -> bool:
        """Whether something can end an episode before its time."""
        return self.domain == "lqr"

    @property
    def camera(self) -> int:
        """The camera of the pictures: the paper's choice for the domain."""
        return suite.CAMERAS.get(self.domain, 0)

    @property
    def fps(self) -> float:
        """Frames per second at which a video runs in real time."""
        return 1 / (self._world.substeps * self.physics.timestep() * self.action_repeat)

    @property
    def state_size(self) -> int:
        """Length of one snapshot."""
        return self._snapshot.size

    @property
    def drawn_size(self) -> int:
        """Length of `info["drawn"]`."""
        return self._world.drawn().size

    @property
    def state_layout(self) -> dict[str, int]:
        """Names and lengths of a snapshot's parts."""
        return self._snapshot.layout()

    def _seed_episodes(self, seed: int) -> None:
        if not 0 <= seed < 2**32:
            raise ValueError(f"A seed is a whole number from 0 to 2**32 - 1; got {seed}")
        self._world.task.random.seed(seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; with a seed, one that depends on nothing else."""
        super().reset(seed=seed)
        if seed is not None:
            self._seed_episodes(int(seed))
        self._world.reset()
        if self._own_reward:
            self._own_reward.begin()
        self._env_steps, self._running = 0, True
        state = np.empty((1, self._snapshot.size))
        self._snapshot.read(state[0])
        return self._observe(), {"env_steps": 0, "state": state, "drawn": self._world.drawn()}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Repeats the action; the reward is the sum over the repeated env steps."""
        if not self._running:
            raise RuntimeError(f"The episode of {self.name} has ended or not begun: call reset()")
        control = self._control(action)
        state = np.full((self.action_repeat, self._snapshot.size), np.nan)
        reward, terminated = 0.0, False
        for row in state:
            reward += self._env_step(control)
            self._snapshot.read(row)
            self._env_steps += 1
            # dm_control ends an episode early by a termination value of 0 (only lqr does).
            terminated = self._world.task.get_termination(self.physics) == 0.0
            if terminated or self._env_steps == self.episode:
                self._running = False
                break
        if self._own_reward and not self._running:
            self._own_reward.end(self._where)
        truncated = self._env_steps == self.episode and not terminated
        return self._observe(), reward, terminated, truncated, {"env_steps": self._env_steps, "state": state}

    def _control(self, action: np.ndarray) -> np.ndarray:
        action = np.asarray(action, np.float64)
        if action.shape != self.action_space.shape or not np.isfinite(action).all():
            shape = self.action_space.shape
            raise ValueError(f"An action of {self.name} is {shape} finite numbers in [-1, 1]; got {action!r}")
        return self._action_low + (np.clip(action, -1.0, 1.0) + 1.0) * self._action_scale

    def _env_step(self, control: np.ndarray) -> float:
        """One control step, exactly as dm_control's own environment takes it."""
        task, physics = self._world.task, self.physics
        task.before_step(control, physics)
        physics.step(self._world.substeps)
        task.after_step(physics)
        if self._own_reward:
            return self._own_reward(self._where)
        return float(task.get_reward(physics)) if self._is_paid else 0.0

    def _proprio(self) -> np.ndarray:
        parts = self._observer.get_observation(self.physics).values()
        return np.concatenate([np.ravel(part) for part in parts], dtype=np.float32, casting="same_kind")

    def _observe(self) -> Observation:
        if self._draws:
            return {"image": self._renderer.render(self.image_buffer), "proprio": self._proprio()}
        return {"image": self._no_image if self.image_buffer is None else self.image_buffer, "proprio": self._proprio()}

    def render(self) -> np.ndarray:
        """The current picture."""
        return self._renderer.render()

    def draw(self, states: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Images of stored states, uint8 (n, size, size, 3); the running episode, if any, is over."""
        self._world.reset()
        self._world.restore_drawn(drawn)
        self._running = False
        return np.stack([self._renderer.render() for _ in self._snapshot.replay(states)])

    def close(self) -> None:
        """Frees the renderer."""
        self._renderer.close()
