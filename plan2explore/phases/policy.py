"""A trained behaviour that one can use: act, evaluate, film."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..agent.acting import Mode
from ..agent.learner import Learner, LearnerState
from ..config import WorldConfig, check_seed
from ..envs import Task
from ..runs.files import check_writable
from .collect import select_obs
from .evaluate import Scores, evaluate_tasks, finish, step_key
from .training import EVALUATION_SEED
from .world import check_room, inspect_world, make_for_tasks


class Policy:
    """What an agent does for a task. The recurrent state of one episode is kept inside."""

    def __init__(
        self, learner: Learner, state: LearnerState, world: WorldConfig, task: Task, row: int, path: Path, env_steps: int
    ) -> None:
        self.learner, self.state, self.world, self.task = learner, state, world, task
        self.row, self.path, self.env_steps = row, path, env_steps
        self.reset()

    @property
    def film(self) -> Path:
        """Where its film belongs, by which reports know what it shows."""
        return self.path / "videos" / f"{self.task.name}-{self.env_steps}.mp4"

    def reset(self, seed: int = 0) -> None:
        """Forgets the episode so far. Call it before the first observation of each episode."""
        self._carried = self.learner.carry(1)
        self._key = jax.random.key(seed)
        self._step = 0

    def act(self, observation: dict[str, Any], mode: Mode = "mode") -> np.ndarray:
        """The action for an observation of `make(...)`, or the part of it that the agent observes: the policy's mode, or a
        `sample` of it."""
        spaces = self.learner.agent.spaces
        image, proprio = (np.asarray(observation.get(name))[None] for name in ("image", "proprio"))
        seen = select_obs(spaces, image, proprio)
        key = step_key(self._key, self._step, 0)
        first = np.array([self._step == 0])
        action, self._carried = self.learner.act(self.state, self._carried, seen, first, key, mode, self.row)
        self._step += 1
        return np.asarray(action)[0]

    def evaluate(self, episodes: int = 10, seed: int = 0, video: str | Path | None = None, mode: Mode = "mode") -> Scores:
        """Plays whole episodes of the task. `video` films the first one."""
        if episodes < 1:
            raise ValueError(f"An evaluation needs at least 1 episode; got {episodes}.")
        check_seed(seed)
        check_room(self.world, episodes, "--episodes")
        if video is not None:
            check_writable(Path(video))
        with make_for_tasks(self.world, [self.task], episodes, seed + EVALUATION_SEED + 1) as worlds:
            key = jax.random.key(seed)
            playing = evaluate_tasks(
                self.learner, self.state, worlds, [self.task], [self.row], key, self.env_steps, mode, video is not None
            )
            (scores,) = finish(playing)
        if video is not None:
            from ..report.pictures import write_video

            assert scores.frames is not None
            write_video(Path(video), scores.frames, inspect_world(self.world).fps)
        return scores

    def __repr__(self) -> str:
        return f"Policy({self.task.name!r} from {str(self.path)!r}, {self.env_steps:,} env steps)"
