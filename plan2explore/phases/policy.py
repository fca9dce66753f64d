"""A trained behaviour that one can use: act, evaluate, record a video."""

from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..agent.acting import Carried, Mode
from ..agent.learner import Learner, LearnerState
from ..config import WorldConfig, check_counts, check_seed
from ..envs import Task
from ..envs.names import DATASET
from ..envs.spaces import ActionVector, discrete_space
from ..runs.files import check_writable
from ..runs.folder import RunFolder
from ..video import write_video
from .callbacks import EVALUATION_SEED
from .collect import as_batch
from .evaluate import Scores, evaluate_tasks, finish, step_key
from .model import KINDS, Model, read_params
from .world import check_room, check_simulator, inspect_world, make_for_tasks, make_world


class Policy:
    """What an agent does for a task. The recurrent state of one episode is kept inside."""

    def __init__(
        self, learner: Learner, state: LearnerState, world: WorldConfig, task: Task, row: int, path: Path, env_steps: int
    ) -> None:
        self.learner, self.state, self.world, self.task = learner, state, world, task
        self.row, self.path, self.env_steps = row, path, env_steps
        self.reset()

    @property
    def video_file(self) -> Path:
        """Where its video belongs: reports know by the name what it shows."""
        return self.path / "videos" / f"{self.task.name}-{self.env_steps}.mp4"

    @property
    def film(self) -> Path:
        """The former name of `video_file`."""
        return self.video_file

    def reset(self, seed: int = 0) -> None:
        """Forgets the episode so far. Call it before the first observation of each episode."""
        self._carried: Carried | None = None
        self._key = jax.random.key(seed)
        self._step = 0

    def act(self, observation: Any, mode: Mode = "mode", is_first: np.ndarray | None = None) -> Any:
        """The action for an observation: the policy's mode, or a `sample` of it.

        Args:
            observation: What the agent observes: an image, a vector, or a dictionary of `image` and `proprio` such as
                `make(...)` gives, whose other entries are ignored. With a leading axis it is a batch of environments.
            mode: `mode`, `sample`, or `noise` (a sample with exploration noise).
            is_first: Which environments of a batch begin an episode, bool (batch,); by default all do at the first call
                after `reset`, and none later.

        Returns:
            What the environment takes: numbers in [-1, 1], or discrete choices as its own `action_space` has them; for
            a batch an array or a list of as many.
        """
        obs, single = as_batch(self.learner.agent.spaces, observation)
        count = len(jax.tree.leaves(obs)[0])
        if self._carried is None:
            self._carried = self.learner.carry(count)
        if len(self._carried.action) != count:
            before = len(self._carried.action)
            raise ValueError(f"The policy acts in {before} environments since its last reset(), and {count} are observed.")
        first = np.full(count, self._step == 0) if is_first is None else np.asarray(is_first, bool).reshape(count)
        key = step_key(self._key, self._step, 0)
        action, self._carried = self.learner.act(self.state, self._carried, obs, first, key, mode, self.row)
        self._step += 1
        taken: Any = np.asarray(action)
        if self.learner.agent.spaces.discrete:
            taken = [self._choices.to_native(each) for each in taken]
            taken = np.stack(taken) if isinstance(taken[0], np.ndarray | np.generic) else taken
        return taken[0] if single else taken

    @cached_property
    def _choices(self) -> ActionVector:
        """Translates one-hot vectors to the environment's own discrete actions."""
        if self.world.world.startswith(DATASET):
            return ActionVector(discrete_space(self.learner.agent.spaces.discrete), self.world.world)
        env = make_world(self.world)
        env.close()
        return ActionVector(env.action_space, self.world.world)

    def evaluate(self, episodes: int = 10, seed: int = 0, video: str | Path | None = None, mode: Mode = "mode") -> Scores:
        """Plays whole episodes of the task. `video` is a file for a video of the first one."""
        check_counts(episodes=episodes)
        check_seed(seed)
        check_simulator(self.world.world)
        check_room(self.world, episodes, "--episodes")
        if video is not None:
            check_writable(Path(video))
        with make_for_tasks(self.world, [self.task], episodes, seed + EVALUATION_SEED + 1) as envs:
            key = jax.random.key(seed)
            playing = evaluate_tasks(
                self.learner, self.state, envs, [self.task], [self.row], key, self.env_steps, mode, video is not None
            )
            (scores,) = finish(playing)
        if video is not None:
            assert scores.frames is not None
            write_video(Path(video), scores.frames, inspect_world(self.world).fps)
        return scores

    def model(self) -> Model:
        """The world model that the policy was trained in, with the reward head of its task (and other probes of the run)."""
        folder = RunFolder.open(self.path)
        tasks = (self.task.name,) if folder.kind == "adapt" else folder.settings["config"]["probes"]
        return Model(self.learner.agent, read_params(self.learner, folder, self.env_steps, KINDS), tasks)

    def __repr__(self) -> str:
        return f"Policy({self.task.name!r} from {str(self.path)!r}, {self.env_steps:,} env steps)"
