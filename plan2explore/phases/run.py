"""An exploration on disk, as a Python object: adapt it, read its scores and episodes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..envs import Task
from ..replay import Episode
from ..replay.files import EpisodeFolder
from ..runs.checkpoint import Checkpoints
from ..runs.files import read_lines
from ..runs.reader import open_exploration, read_metrics, stored_config

if TYPE_CHECKING:
    from ..replay.dataset import Dataset
    from .model import Model
    from .policy import Policy


class Run:
    """A finished or unfinished exploration. Nothing here changes its files, except what is put below `adapt/`."""

    def __init__(self, path: str | Path) -> None:
        self.folder = open_exploration(path)

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def snapshots(self) -> list[int]:
        """Env steps at which the agent was kept, and from which an adaptation can start."""
        return Checkpoints(self.folder.snapshots, keep=None).steps()

    def adapt(self, task: str | Task, **options: Any) -> "Policy":
        """Solves a task with what was learned: see `plan2explore.adapt`."""
        from .adapt import adapt

        return adapt(self, task, **options)

    def probe(self, task: str | Task, at: int | None = None) -> "Policy":
        """The policy of a task that was trained beside exploration, from the last or another snapshot."""
        from .load import probe_policy

        return probe_policy(self.folder, task, at)

    def model(self, at: int | None = None) -> "Model":
        """The world model and what belongs to it, from the last or another snapshot."""
        from .load import load_model

        return load_model(self.folder, at)

    def episodes(self, images: bool = True, pictures: bool = True) -> Iterator[Episode]:
        """All episodes that were collected, in order. Without `images` those are not read; `pictures` is its former name."""
        for _, episode in EpisodeFolder(self.folder.episodes, read_only=True).load_all(images=images and pictures):
            yield episode

    def dataset(self, length: int = 50, tasks: Sequence[Task] = ()) -> "Dataset":
        """All steps as windows of NumPy arrays, with the rewards of tasks: see `plan2explore.Dataset`."""
        from ..replay.dataset import Dataset
        from .world import agent_spaces, world_info

        config = stored_config(self.folder).world
        spaces = agent_spaces(config, world_info(self.folder, config), 0)
        return Dataset(self.episodes(images=spaces.image is not None), spaces, length, tasks)

    def export(self, format: str = "npz", out: str | Path | None = None, obs: str | None = None) -> str:
        """Writes the episodes for other programs: see `plan2explore.export`."""
        from .learn import export

        return export(self, format, out, obs)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl that say at which env step they were written."""
        return read_metrics(self.path)

    def evaluations(self) -> list[dict[str, Any]]:
        """Every evaluation of the probes: task, env steps, mean, every episode."""
        return read_lines(self.folder.evaluations_file)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"
