"""`plan2explore sweep`: explore worlds x methods x presets x seeds x any setting, each in a run of its own."""

import re
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated

import tyro

from ..agent.intrinsic import find_objective
from ..config import PRESETS, AgentConfig, ExploreConfig, Preset, Schedule, WorldConfig, check_numbers, whole_steps
from ..envs.names import domain_of, folder_name
from ..options import parse as parse_options
from ..phases.world import named_world, parse_task
from .cells import Cell
from .runner import Runner, run_cells
from .storage import place_of


@dataclass(frozen=True)
class SweepCommand:
    """Explores every world with every method, preset, seed and setting, each in a run of its own.

    Kill it at any moment: rerun the command to resume. Start it again beside itself, on another GPU for instance: each
    command takes cells that no other has. All of it may be in a file: --config FILE.
    """

    worlds: tuple[str, ...]
    """Bare domains (walker), tasks (walker_walk), gymnasium:ID or mjcf:FILE.xml."""
    methods: tuple[str, ...] = ("plan2explore",)
    """Exploration objectives."""
    presets: tuple[Preset, ...] = ("paper",)
    """Agents."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run for each."""
    vary: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A setting and its values: agent.batch=16,32. May be repeated: every combination is run."""
    probes: tuple[str, ...] = ()
    """Tasks whose zero-shot scores are followed: walker_walk in all worlds with a walker, file.py:function in all."""
    steps: float = 1e6
    """Env steps of each run."""
    out: str = "sweep"
    """Folder of the sweep, or an address of object storage (s3://BUCKET/NAME): results.csv, cells.jsonl, locks/, runs/."""
    runner: Annotated[Runner, tyro.conf.arg(name="")] = field(default_factory=Runner)
    view: Annotated[WorldConfig, tyro.conf.arg(name="")] = field(default_factory=WorldConfig)
    schedule: Annotated[Schedule, tyro.conf.arg(name="")] = field(default_factory=Schedule)
    agent: AgentConfig = field(default_factory=AgentConfig)


SHORT = (
    "worlds", "methods", "presets", "seeds", "vary", "probes", "steps", "out", "obs", "environments", "updates_per_episode",
    "on", "cell", "list",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Runs a sweep."""
    command = parse(arguments)
    return run_cells(place_of(command.out), cells_of(command, arguments), command.runner)


def parse(arguments: list[str], preset: str = "paper") -> SweepCommand:
    """The command, with the settings of a preset where the arguments give no others."""
    return parse_options(SweepCommand, "sweep", arguments, SHORT, worlds=tyro.MISSING, agent=PRESETS[preset])


def cells_of(command: SweepCommand, arguments: list[str]) -> list[Cell]:
    """A cell for each combination, seed by seed; mistakes are found here, before the first one is begun."""
    steps, probes = whole_steps(command.steps), [_absolute(probe) for probe in command.probes]
    followed = {world: tuple(probe for probe in probes if _fits(probe, world)) for world in command.worlds}
    if lost := set(probes) - {probe for each in followed.values() for probe in each}:
        raise ValueError(f"The probe {min(lost)} belongs to none of the worlds {', '.join(command.worlds)}.")
    cells = []
    choices = [choice for preset in command.presets for choice in _varied(command, arguments, preset)]
    for seed, world, (name, given), method in product(command.seeds, command.worlds, choices, command.methods):
        find_objective(method)
        agent = replace(given.agent, intrinsic=replace(given.agent.intrinsic, objective=method))
        view = named_world(replace(given.view, world=world))
        config = ExploreConfig(view, given.schedule, agent, followed[world], seed)
        check_numbers(config)
        cells.append(Cell(f"{method}-{folder_name(view.world)}-{name}-{seed}", config, steps))
    if not cells or steps < 1:
        raise ValueError("There is nothing to run: give at least one world, method, preset, seed and env step.")
    if len({cell.name for cell in cells}) < len(cells) or len({cell.config for cell in cells}) < len(cells):
        raise ValueError(
            "Two cells would be the same: give each world, method, preset, seed and value once, and vary settings of "
            "explore only."
        )
    return cells


def _varied(command: SweepCommand, arguments: list[str], preset: str) -> list[tuple[str, SweepCommand]]:
    """The command with each combination of values that a setting is varied over, and what the combination is called."""
    axes = []
    for text in command.vary:
        name, _, values = text.partition("=")
        if not name or not values:
            raise ValueError(f"--vary is a setting and its values, such as agent.batch=16,32; got {text!r}.")
        axes.append([f"{name}={value}" for value in values.split(",")])
    found = []
    for settings in product(*axes):
        given = parse([*arguments, *(f"--{setting}" for setting in settings)], preset)
        found.append((re.sub(r"[^\w.=+-]", "_", "-".join([preset, *settings])), given))
    return found


def _absolute(probe: str) -> str:
    """A reward's file is found from any folder, on any node that sees it."""
    file, colon, function = probe.partition(".py:")
    return f"{Path(file).resolve()}{colon}{function}" if colon else probe


def _fits(probe: str, world: str) -> bool:
    """Whether a task can be computed from a world's states: one of the suite is about one body."""
    task = parse_task(probe)
    return task.reward is not None or domain_of(task.name) == domain_of(world)
