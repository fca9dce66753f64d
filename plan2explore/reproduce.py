"""`plan2explore reproduce`: the paper's protocols and Crafter, cell by cell (task x method x seed), into one file.

A cell is a run in `OUT/runs/METHOD-TASK-SEED`. What it scored goes to `OUT/results.csv`, how it ended to `OUT/cells.jsonl`.
Several commands may share a sweep: each takes cells that no other has.
"""

import gc
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from .config import (
    AdaptConfig,
    AgentConfig,
    ExploreConfig,
    Schedule,
    WorldConfig,
    check_numbers,
    preset_of,
    rename_flags,
    whole_steps,
)
from .envs import Task
from .envs.names import GYMNASIUM, PAPER_TASKS, split_name
from .phases.adapt import adapt
from .phases.explore import configure, explore, refuse_other
from .phases.policy import Policy
from .phases.progress import counted
from .phases.run import Run
from .phases.world import named_world
from .reference import METHODS, TASK_AVERAGE, paper_table
from .report.achievements import crafter_markdown, score_run
from .report.results import (
    ACHIEVEMENTS,
    FEW_SHOT,
    PROBE,
    SUPERVISED,
    Result,
    append_results,
    read_results,
    results_of,
)
from .runs.files import append_line, check_folder, read_lines
from .runs.folder import Held, RunFolder, hold

Protocol = Literal["zero-shot", "few-shot", "crafter"]
CRAFTER = "crafter"
"""The protocol, and the only task of its cells."""
CRAFTER_METHODS = ("plan2explore", "random")
EPISODE = 1000  # env steps of an episode of the suite
FINAL_EPISODES = 10
"""Episodes that the last evaluation of a cell has at least."""
OWN_START = frozenset(
    ("cartpole_balance", "cartpole_balance_sparse", "finger_spin", "finger_turn_hard", "quadruped_run", "reacher_hard")
)
"""Tasks whose episodes begin otherwise than those of the bare domain: another pose, target, friction or floor."""


@dataclass(frozen=True)
class Sweep:
    """What all cells have in common."""

    protocol: Protocol
    steps: int
    """Env steps of exploration."""
    config: ExploreConfig
    """Of every exploration, but for world, objective and seed."""
    adaptation: AdaptConfig
    """Of few-shot adaptation."""
    out: Path
    final_episodes: int = FINAL_EPISODES
    world_only: bool = False


@dataclass(frozen=True)
class Cell:
    """A task, a method and a seed."""

    method: str
    task: str
    seed: int

    def __str__(self) -> str:
        return f"{self.method}-{self.task}-{self.seed}"


def world_of(task: str, method: str, world_only: bool = False) -> str:
    """The world to explore for a task: without its reward, but beginning as the task's own episodes do.

    Dreamer is made with its task. Others explore the bare domain; where that begins otherwise than the task, they explore
    the task's world, whose reward trains the probe alone there too: neither model nor explorer see it.
    """
    if task == CRAFTER:
        return "gymnasium:Crafter-v1"
    if method == "dreamer" or (task in OWN_START and not world_only):
        return task
    return split_name(task)[0]


def reproduce(
    protocol: Protocol,
    tasks: Sequence[str] = (),
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    steps: float = 1e6,
    preset: str = "paper",
    out: str | Path = "reproduce",
    shots: int = 150,
    updates: int = 10_000,
    gradient: Literal["through", "stopped"] | None = None,
    agent: AgentConfig | None = None,
    final_episodes: int = FINAL_EPISODES,
    world_only: bool = False,
    **options: Any,
) -> int:
    """Runs a protocol of the paper, or scores explorations of Crafter; 1 if a cell failed, else 0.

    The same call resumes a sweep that was killed.

    Args:
        protocol: zero-shot (the task is a probe of the exploration), few-shot (and then adapts with episodes of its own), or
            crafter (which achievements the exploration unlocks, without a task).
        tasks: By default those of the paper's table; none for crafter.
        methods: Exploration objectives; by default all six, for crafter plan2explore and random.
        seeds: One run each.
        steps: Env steps of exploration (the paper: zero-shot 3.5e6, few-shot 1e6).
        preset: Sizes of the agent.
        out: Folder of the sweep.
        shots: Few-shot episodes (the paper: 150).
        updates: Few-shot: updates in imagination before them.
        gradient: through or stopped; by default the preset's.
        agent: All settings of the agent, instead of a preset.
        final_episodes: Episodes that the last evaluation has at least.
        world_only: Explore the bare domain also for tasks whose episodes begin otherwise.
        options: Fields of `WorldConfig` and `Schedule`, such as `environments=8`.
    """
    config = configure("walker", preset, **options)
    config = replace(config, agent=agent or config.agent)
    if gradient is not None:
        intrinsic = replace(config.agent.intrinsic, gradient=gradient)
        config = replace(config, agent=replace(config.agent, intrinsic=intrinsic))
    # A number of environments is for exploring: shots have to come out even over theirs.
    adaptation = AdaptConfig(replace(config.schedule, environments=0), updates, shots)
    sweep = Sweep(protocol, whole_steps(steps), config, adaptation, Path(out), final_episodes, world_only)
    if methods is None:
        methods = CRAFTER_METHODS if protocol == CRAFTER else METHODS
    cells = [Cell(method, task, seed) for seed in seeds for task in tasks or paper_tasks(protocol) for method in methods]
    check_sweep(sweep, cells)
    status = run_cells(sweep, cells)
    if protocol == CRAFTER and (sweep.out / "results.csv").exists():
        print(crafter_markdown(read_results([sweep.out / "results.csv"])), flush=True)
    return status


def paper_tasks(protocol: Protocol) -> list[str]:
    """The tasks of the paper's table for this protocol; Crafter is one by itself."""
    if protocol == CRAFTER:
        return [CRAFTER]
    return [task for task in paper_table(1 if protocol == "zero-shot" else 2) if task != TASK_AVERAGE]


def check_sweep(sweep: Sweep, cells: Sequence[Cell]) -> None:
    """Finds mistakes in names and numbers before the first cell is begun."""
    if sweep.protocol not in get_args(Protocol):
        raise ValueError(f"There is no protocol {sweep.protocol!r}: choose zero-shot, few-shot or crafter.")
    if not cells:
        raise ValueError("There is nothing to run: give at least one task, one method and one seed.")
    if len(set(cells)) < len(cells):
        raise ValueError("Each task, method and seed can be given once only.")
    if sweep.final_episodes < 1 or sweep.steps < 1:
        raise ValueError(f"Env steps and final episodes must be at least 1; got {sweep.steps} and {sweep.final_episodes}.")
    check_folder(sweep.out)
    check_numbers(sweep.adaptation)
    if sweep.protocol == "few-shot" and sweep.adaptation.shots < 1:
        raise ValueError(f"Few-shot needs at least 1 shot; got {sweep.adaptation.shots}.")
    for cell in cells:
        if cell.task.startswith(GYMNASIUM):
            raise ValueError(f"The protocols are about tasks of the suite, such as {PAPER_TASKS[0]}; got {cell.task!r}.")
        if sweep.protocol != CRAFTER:
            Task.named(cell.task)
        elif cell.task != CRAFTER or cell.method == "dreamer":
            task = f"task {cell.task}" if cell.task != CRAFTER else "method dreamer"
            raise ValueError(f"Crafter is explored without any task: leave out the {task}.")
        configure("walker", method=cell.method)
        check_numbers(config_of(sweep, cell))


# --- Cells ---


def run_cells(sweep: Sweep, cells: Sequence[Cell]) -> int:
    """Every cell that is not finished and that no other command has, one after the other, a line for each."""
    failed, left = [], []
    locks_of(sweep).mkdir(parents=True, exist_ok=True)
    for number, cell in enumerate(cells, 1):
        place = f"[{number}/{len(cells)}] {cell}"
        try:
            with hold(locks_of(sweep) / str(cell), path_of(sweep, cell)):
                done = was(sweep, cell, "finished")
                if done:
                    print(f"{place}: finished before", flush=True)
                if not done and not _ran(sweep, cell, place):
                    failed.append(str(cell))
        except Held as error:
            print(f"{place}: left to {error.holder}", flush=True)
            left.append(cell)
    if busy := [str(cell) for cell in left if not was(sweep, cell, "finished")]:
        print(f"{counted(len(busy), 'cell')} of {len(cells)} left to other commands: {', '.join(busy)}.", file=sys.stderr)
    if failed:
        names, log = ", ".join(failed), sweep.out / "cells.jsonl"
        print(f"{len(failed)} of {len(cells)} cells failed: {names}. Why is in {log}.", file=sys.stderr)
    return 1 if failed else 0


def locks_of(sweep: Sweep) -> Path:
    """Where commands that share a sweep tell each other which cells they have."""
    return sweep.out / "locks"


def writing(sweep: Sweep) -> AbstractContextManager[None]:
    """One command at a time adds to the sweep's files."""
    return hold(locks_of(sweep) / "files", sweep.out, wait=True)


def _ran(sweep: Sweep, cell: Cell, place: str) -> bool:
    """Runs a cell and says what it scored, or why it failed."""
    began = time.monotonic()
    try:
        results = run_cell(sweep, cell)
        with writing(sweep):
            append_results(sweep.out / "results.csv", results)
        seconds = round(time.monotonic() - began, 1)
        note(sweep, cell, "finished", seconds=seconds)
    except Exception as error:  # whatever it was: the others may well work
        note(sweep, cell, "failed", error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
        print(f"{place}: failed: {error}", flush=True)
        return False
    finally:
        gc.collect()  # what this cell held on the device is free for the next
    print(f"{place}: {_score(sweep, cell, results)}, {seconds:.0f} s", flush=True)
    return True


def _score(sweep: Sweep, cell: Cell, results: Sequence[Result]) -> str:
    last = final_result(sweep, cell, results)
    if last is None:
        return "no score"
    return f"{last.score:.1f} at {last.env_steps:,} env steps ({counted(last.episodes, 'episode')})"


def final_result(sweep: Sweep, cell: Cell, results: Sequence[Result]) -> Result | None:
    """The last evaluation of what the cell is about."""
    if sweep.protocol == CRAFTER:
        return next((each for each in results if each.protocol == ACHIEVEMENTS), None)
    protocol = SUPERVISED if cell.method == "dreamer" else FEW_SHOT if sweep.protocol == "few-shot" else PROBE
    ours = [result for result in results if (result.task, result.protocol) == (cell.task, protocol)]
    return max(reversed(ours), key=lambda result: result.env_steps, default=None)


def run_cell(sweep: Sweep, cell: Cell) -> list[Result]:
    """Explores, adapts if the protocol says so, and gives back every evaluation of the cell."""
    run = _explored(sweep, cell)
    if sweep.protocol == CRAFTER:
        return [score_run(run, cell.method, cell.seed)]
    policy = _adapted(sweep, cell, run) if adapts(sweep, cell) else None
    results = results_of(run.path)
    last = final_result(sweep, cell, results)
    if last is not None and last.episodes < sweep.final_episodes:
        scores = (policy or run.probe(cell.task)).evaluate(sweep.final_episodes)
        results.append(replace(last, score=scores.mean, std=scores.std, episodes=len(scores.episodes), wall_s=None))
    return results


def _explored(sweep: Sweep, cell: Cell) -> Run:
    """The cell's exploration, from where it is: the other protocol may have made it, or taken it further."""
    path, goal = path_of(sweep, cell), goal_of(sweep, cell)
    if was(sweep, cell, "explored"):
        return Run(path)
    probes = () if sweep.protocol == CRAFTER else (cell.task,)
    config = replace(config_of(sweep, cell), probes=probes)
    if RunFolder.is_run(path):
        folder = RunFolder.open(path)
        refuse_other(folder, config, "Give the sweep the settings that the run has")
        goal = max(goal, int(folder.settings.get("goal", 0)))
    run = explore(config.world.world, goal, path, probes=probes, config=config)
    note(sweep, cell, "explored")
    return run


def path_of(sweep: Sweep, cell: Cell) -> Path:
    """The run's folder."""
    return sweep.out / "runs" / str(cell)


def goal_of(sweep: Sweep, cell: Cell) -> int:
    """Env steps to explore. Dreamer, which has its task, gets as many in all as others with their shots."""
    extra = sweep.adaptation.shots * EPISODE if sweep.protocol == "few-shot" and cell.method == "dreamer" else 0
    return sweep.steps + extra


def adapts(sweep: Sweep, cell: Cell) -> bool:
    """Whether the cell ends with few-shot adaptation."""
    return sweep.protocol == "few-shot" and cell.method != "dreamer"


def config_of(sweep: Sweep, cell: Cell) -> ExploreConfig:
    """The settings of the cell's exploration. Crafter's actions are not repeated."""
    agent, world = sweep.config.agent, world_of(cell.task, cell.method, sweep.world_only)
    repeat = 1 if cell.task == CRAFTER else sweep.config.world.action_repeat
    return replace(
        sweep.config,
        world=named_world(replace(sweep.config.world, world=world, action_repeat=repeat)),
        agent=replace(agent, intrinsic=replace(agent.intrinsic, objective=cell.method)),
        seed=cell.seed,
    )


def _adapted(sweep: Sweep, cell: Cell, run: Run) -> Policy:
    """Few-shot adaptation from the snapshot at the sweep's number of env steps."""
    at = min(run.snapshots, key=lambda steps: abs(steps - sweep.steps))
    return adapt(run, cell.task, config=replace(sweep.adaptation, at=at, seed=cell.seed))


# --- What was done before ---


def settings_of(sweep: Sweep, cell: Cell) -> dict[str, Any]:
    """All that a cell depends on: a cell is finished if it was with the same."""
    adaptation = asdict(sweep.adaptation) if adapts(sweep, cell) else None
    return {"steps": goal_of(sweep, cell), "config": asdict(config_of(sweep, cell)), "adaptation": adaptation}


def was(sweep: Sweep, cell: Cell, state: str) -> bool:
    """Whether the cell came so far (explored, finished) with these settings, and its run is still there."""
    path = path_of(sweep, cell)
    if not RunFolder.is_run(path):
        return False
    wanted, run = plain(settings_of(sweep, cell)), _id_of(path)
    lines = read_lines(sweep.out / "cells.jsonl")
    ours = [line for line in lines if (line.get("cell"), line.get("state"), line.get("run")) == (str(cell), state, run)]
    if state == "finished":  # each protocol has an end of its own
        ours = [line for line in ours if line.get("protocol") == sweep.protocol]
    return any(_covers(line.get("settings"), wanted, state) for line in ours)


def _covers(found: Any, wanted: dict[str, Any], state: str) -> bool:
    """An exploration that went further holds the shorter one; an adaptation has to begin where it was told to."""
    if not isinstance(found, dict) or found.get("config") != wanted["config"] or not isinstance(found.get("steps"), int):
        return False
    if state == "explored" or not wanted["adaptation"]:
        return found["steps"] >= wanted["steps"]
    return found["steps"] == wanted["steps"] and found.get("adaptation") == wanted["adaptation"]


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as a JSON file gives them back: tuples are lists."""
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return plain(value)
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def note(sweep: Sweep, cell: Cell, state: str, **more: Any) -> None:
    """Adds a line to `cells.jsonl`: how a cell ended."""
    path = path_of(sweep, cell)
    run = _id_of(path) if RunFolder.is_run(path) else None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"cell": str(cell), "state": state, "time": now, "protocol": sweep.protocol, "run": run, **more}
    with writing(sweep):
        append_line(sweep.out / "cells.jsonl", line | {"settings": plain(settings_of(sweep, cell))})


def _id_of(path: Path) -> str | None:
    try:
        return RunFolder.open(path).id
    except ValueError:  # its run.json may be why the cell failed
        return None


# --- The command ---


@dataclass(frozen=True)
class ReproduceCommand:
    """Runs the paper's protocols, or scores explorations of Crafter: every task with every method and seed.

    Kill it at any moment: rerun the command to resume. Start it again beside itself, on another GPU for instance: each
    command takes cells that no other has.
    """

    protocol: tyro.conf.Positional[Protocol]
    """zero-shot: the task is a probe of the exploration. few-shot: and then its policy collects some episodes. crafter:
    which achievements are unlocked without reward."""
    tasks: tuple[str, ...] = ()
    """Tasks of the suite; none: those of the paper's table (20 zero-shot, 8 few-shot)."""
    methods: tuple[str, ...] = ()
    """Exploration objectives; none: all six, for crafter plan2explore and random."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run for each (the paper: 3)."""
    steps: float = 1e6
    """Env steps of exploration (the paper: 3.5e6 zero-shot, 1e6 few-shot)."""
    preset: Literal["paper", "small", "tiny", "modern", "modern-tiny"] = "paper"
    """Sizes of the agent."""
    out: Path = Path("reproduce")
    """Folder of the sweep: results.csv, cells.jsonl, locks/, runs/."""
    shots: int = 150
    """Few-shot: episodes of the task's policy (the paper: 150)."""
    updates: int = 10_000
    """Few-shot: updates in imagination before those (the paper does not say how many)."""
    gradient: Literal["through", "stopped"] | None = None
    """Does the exploration objective's gradient reach the actor through imagined states? None: as the preset says."""
    final_episodes: int = FINAL_EPISODES
    """Episodes that the last evaluation of a cell has at least."""
    world_only: bool = False
    """Explore the bare domain also for tasks whose own episodes begin otherwise (docs/reproducing.md)."""
    view: Annotated[WorldConfig, tyro.conf.arg(name="")] = field(default_factory=WorldConfig)
    schedule: Annotated[Schedule, tyro.conf.arg(name="")] = field(default_factory=Schedule)
    agent: AgentConfig = field(default_factory=AgentConfig)


def main(arguments: list[str]) -> int:
    """Runs the paper's protocols: every task with every method and seed."""
    arguments = rename_flags(arguments)
    default = ReproduceCommand(protocol=tyro.MISSING, agent=preset_of(arguments))
    command = tyro.cli(ReproduceCommand, prog="plan2explore reproduce", args=arguments, default=default)
    if command.agent.intrinsic.objective != default.agent.intrinsic.objective:
        raise ValueError(f"Name methods as --methods {command.agent.intrinsic.objective} ...: a sweep has several.")
    world = {name: value for name, value in asdict(command.view).items() if name != "world"}
    return reproduce(
        command.protocol, command.tasks, command.methods or None, command.seeds, command.steps, command.preset, command.out,
        command.shots, command.updates, command.gradient, command.agent, command.final_episodes, command.world_only,
        **world, **asdict(command.schedule),
    )  # fmt: skip
