"""Runs as a report reads them: nothing is changed, and whatever is missing or damaged becomes a sentence."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp

from ..agent.agent import Agent, Params
from ..agent.intrinsic import OBJECTIVES
from ..config import ExploreConfig, Spaces
from ..replay import Episode
from ..replay.files import EpisodeFolder
from ..runs.checkpoint import Checkpoints, unpack_params
from ..runs.folder import RunError, RunFolder
from ..runs.reader import Summary, adaptations_of, open_exploration, read_metrics, read_stored, summary_of
from .charts import Line

Content = TypeVar("Content")
agent_of = cache(Agent)
"""The same agent each time: what is compiled for it, is so once."""


class Missing(Exception):
    """Something that a report would show is not there; the text says what and why."""


@dataclass(frozen=True)
class ReportRun:
    """A run, what it is called in the report, and its number there: which is its colour."""

    folder: RunFolder
    name: str
    number: int

    @cached_property
    def config(self) -> ExploreConfig:
        """The settings that it was started with. No environment is made of them, so its module may be missing."""
        return read_stored(self.folder, "config", ExploreConfig)

    @cached_property
    def about(self) -> Summary:
        """What its settings say, also where this version cannot read them."""
        return summary_of(self.folder)

    @property
    def label(self) -> str:
        """Name and method, for legends."""
        return self.name if self.about.method in self.name else f"{self.name} ({self.about.method})"

    def line(self, x: Any, y: Any) -> Line:
        """A curve of this run; those of one method can be shown as their mean."""
        return Line(self.label, x, y, colour=self.number, group=self.about.method)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Its metrics, by env steps."""
        return read_metrics(self.folder.path)

    @cached_property
    def episodes(self) -> EpisodeFolder:
        """Its episodes."""
        return EpisodeFolder(self.folder.episodes, read_only=True)

    @cached_property
    def adaptations(self) -> tuple[list[RunFolder], list[str]]:
        """Folders of its adaptations, and a sentence for each that cannot be read."""
        return adaptations_of(self.folder)

    def load_episode(self, number: int) -> Episode:
        """One of its episodes. The name in an episode's file is untrusted: it decides which simulator is loaded."""
        episode = self.episodes.load(number)
        if episode.world != self.about.world:
            raise ValueError(f"It is of {episode.world!r}, which is not the run's world.")
        return episode

    def last_episode(self) -> tuple[int, Episode]:
        """The last episode that can be read, and its number."""
        return self._last("whole episode", self.episodes.numbers(), self.load_episode)

    def load_agent(self, episode: Episode) -> tuple[Agent, Params, int]:
        """The agent of the last good snapshot, its parameters, and its env steps; sizes are those of the episode."""
        if self.about.method not in OBJECTIVES:
            raise ValueError(
                f"It was explored with the objective {self.about.method!r}, which is not registered here: name the module "
                "that registers it with --import, or import it before you call plan2explore.write_report."
            )
        agent = agent_of(self.config.agent, spaces_of(self.config, episode))
        snapshots = Checkpoints(self.folder.snapshots, keep=None)
        steps, params = self._last("snapshot", snapshots.steps(), lambda steps: unpack_params(snapshots.load(steps)[0]))
        for part in ("model", "intrinsic"):
            if part not in params or params[part].shape != (1, agent.layouts[part].size):
                raise ValueError(f"The snapshot of {self.name} does not fit its own settings: {part} has other sizes.")
        return agent, {part: jnp.asarray(params[part]) for part in ("model", "intrinsic")}, steps

    def _last(self, what: str, numbers: Sequence[int], load: Callable[[int], Content]) -> tuple[int, Content]:
        for number in reversed(numbers):
            with suppress(ValueError, OSError):
                return number, load(number)
        if numbers:
            raise ValueError(f"{self.name} has no {what} that can be read.")
        raise Missing(f"{self.name} has no {what}.")


def spaces_of(config: ExploreConfig, episode: Episode) -> Spaces:
    """What the agent observed and did, told by what it stored."""
    obs = config.world.obs
    action = episode.action.shape[1]
    discrete = tuple(int(choices) for choices in episode.meta.get("discrete", ()))
    if discrete and (min(discrete) < 1 or sum(discrete) != action):
        raise ValueError(f"An episode says that its actions are choices of {discrete}; they have {action} numbers.")
    return Spaces(
        action=action,
        image=None if obs == "proprio" else episode.image.shape[1],
        proprio=None if obs == "pixels" else episode.proprio.shape[1] or None,
        tasks=len(config.probes),
        discrete=discrete,
        terminates=bool(episode.meta.get("terminates", False)),
    )


def open_runs(paths: Sequence[Path]) -> tuple[list[ReportRun], list[str]]:
    """The runs with names that tell them apart, and a sentence for each whose description is damaged.

    If all of them are, nothing can be shown, and that is an error.
    """
    found, damaged = [], []
    for path in paths:
        try:
            found.append(open_exploration(path))
        except RunError as error:
            if "damaged" not in str(error):
                raise
            damaged.append(str(error))
    if not found:
        raise RunError(" ".join(damaged))
    names = names_of([folder.path for folder in found])
    return [ReportRun(folder, name, number) for number, (folder, name) in enumerate(zip(found, names, strict=True))], damaged


def names_of(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    whole = [path.resolve().parts for path in paths]
    ends = (["/".join(parts[-length:]) for parts in whole] for length in count(1))
    return next(names for names in ends if len(set(names)) == len(set(whole)))
