"""Runs as a report sees them: read only, and whatever is missing or damaged stays a sentence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..agent.agent import Agent, Params
from ..agent.intrinsic import OBJECTIVES
from ..config import PRESETS, AgentConfig, ExploreConfig, Spaces, differences
from ..phases.explore import read_stored
from ..phases.run import Run
from ..replay import Episode
from ..replay.files import EpisodeFolder
from ..runs.checkpoint import Checkpoints, unpack_params
from ..runs.folder import RunError, RunFolder
from .results import adaptations_of


class Missing(Exception):
    """Something that a report would show is not there; the text says what and why."""


@dataclass(frozen=True)
class Explored:
    """A run, what it is called in the report, and its number there: which is its colour."""

    run: Run
    name: str
    number: int

    @cached_property
    def config(self) -> ExploreConfig:
        """The settings that it was started with. No world is made of them here, so its module may be missing."""
        return read_stored(self.run.folder, "config", ExploreConfig)

    @property
    def world(self) -> str:
        """What it explored, also where its settings cannot be read by this version."""
        found: Any = self.run.folder.settings.get("config")
        world = found.get("world") if isinstance(found, dict) else None
        return str(world.get("world", "?")) if isinstance(world, dict) else "?"

    @property
    def method(self) -> str:
        """What it sought."""
        try:
            return self.config.agent.intrinsic.objective
        except RunError:
            return "unknown method"

    @property
    def probes(self) -> tuple[str, ...]:
        """Tasks that were trained beside exploration."""
        try:
            return self.config.probes
        except RunError:
            return ()

    @property
    def label(self) -> str:
        """Name and method, for legends."""
        return self.name if self.method in self.name else f"{self.name} ({self.method})"

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Lines of metrics.jsonl that say at which env step they were written, under today's names."""
        lines = [line for line in self.run.metrics() if is_number(line.get("env_steps"))]
        return [{re.sub("^novelty/", "intrinsic/", name): value for name, value in line.items()} for line in lines]

    @cached_property
    def episodes(self) -> EpisodeFolder:
        """Its episodes."""
        return EpisodeFolder(self.run.folder.episodes, read_only=True)

    @property
    def adaptations(self) -> list[RunFolder]:
        """Folders of its adaptations that can be read."""
        return self._adaptations[0]

    @property
    def faults(self) -> list[str]:
        """Adaptations that cannot be read, each in a sentence."""
        return self._adaptations[1]

    @cached_property
    def _adaptations(self) -> tuple[list[RunFolder], list[str]]:
        return adaptations_of(self.run.folder)

    def last_episode(self) -> tuple[int, Episode]:
        """The last episode that can be read."""
        numbers = self.episodes.numbers()
        for number in reversed(numbers):
            try:
                return number, self.episodes.load(number)
            except (ValueError, OSError):
                continue
        if numbers:
            raise ValueError(f"No episode of {self.name} can be read.")
        raise Missing(f"{self.name} has no whole episode.")

    def load_agent(self, episode: Episode) -> tuple[Agent, Params, int]:
        """The agent of the last good snapshot, its parameters, and its env steps; sizes are those of the episode."""
        if self.method not in OBJECTIVES:
            raise ValueError(
                f"It was explored with the objective {self.method!r}, which is not registered here: import your file that "
                "registers it and call plan2explore.write_report from Python."
            )
        agent = agent_of(self.config.agent, spaces_of(self.config, episode))
        snapshots = Checkpoints(self.run.folder.snapshots, keep=None)
        for steps in reversed(kept := snapshots.steps()):
            try:
                arrays, _ = snapshots.load(steps)
            except (ValueError, OSError):
                continue
            return agent, _fitting(agent, unpack_params(arrays), self.name), steps
        if kept:
            raise ValueError(f"{self.name} has no snapshot that can be read.")
        raise Missing(f"{self.name} has no snapshot.")


@cache
def agent_of(config: AgentConfig, spaces: Spaces) -> Agent:
    """The same agent each time: what is compiled for it, is so once."""
    return Agent(config, spaces)


def spaces_of(config: ExploreConfig, episode: Episode) -> Spaces:
    """What the agent saw and did, told by what it stored."""
    obs = config.world.obs
    action = episode.action.shape[1]
    discrete = tuple(int(count) for count in episode.meta.get("discrete", ()))
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


def _fitting(agent: Agent, params: dict[str, np.ndarray], name: str) -> Params:
    for part in ("model", "intrinsic"):
        if part not in params or params[part].shape != (1, agent.layouts[part].size):
            raise ValueError(f"The snapshot of {name} does not fit its own settings: {part} has other sizes.")
    return {part: jnp.asarray(params[part]) for part in ("model", "intrinsic")}


def open_runs(paths: Sequence[Path]) -> tuple[list[Explored], list[str]]:
    """The runs with names that tell them apart, and a sentence for each whose description is damaged.

    If all of them are, nothing can be shown, and that is an error.
    """
    found, damaged = [], []
    for path in paths:
        if not RunFolder.is_run(path):
            RunFolder.open(path)  # says why: no folder, or no run in it
        try:
            found.append(Run(path))
        except RunError as error:
            if RunFolder.is_run(path) and "damaged" not in str(error):
                raise
            damaged.append(str(error))
    if not found:
        raise RunError(" ".join(damaged))
    names = _names([run.path for run in found])
    return [Explored(run, name, number) for number, (run, name) in enumerate(zip(found, names, strict=True))], damaged


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    whole = [path.resolve() for path in paths]
    for length in range(1, max((len(path.parts) for path in whole), default=0) + 1):
        names = ["/".join(path.parts[-length:]) for path in whole]
        if len(set(names)) == len(set(whole)):
            return names
    return [str(path) for path in paths]


def nearest_preset(config: ExploreConfig) -> tuple[str, list[str]]:
    """The preset that a configuration differs least from, and the settings in which it does."""
    apart = {name: differences(config, ExploreConfig(agent=preset)) for name, preset in PRESETS.items()}
    name = min(apart, key=lambda name: len(apart[name]))
    known = ("world.world:", "probes:", "seed:")  # said elsewhere
    return name, [each for each in apart[name] if not each.startswith(known)]


def is_number(value: Any) -> bool:
    """Whether a value out of a file is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def last_of(metrics: Sequence[dict[str, Any]], name: str) -> float:
    """The greatest value of a metric that only grows; 0 where there is none."""
    return max((line[name] for line in metrics if is_number(line.get(name))), default=0)
