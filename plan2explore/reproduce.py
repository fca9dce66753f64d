"""`plan2explore reproduce`: the paper's protocols and Crafter as sweeps of task x method x seed.

A cell is a run in `OUT/runs/METHOD-TASK-SEED`.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, get_args

import tyro

from .agent.intrinsic import find_objective
from .config import (
    AdaptConfig,
    AgentConfig,
    ExploreConfig,
    Preset,
    Schedule,
    WorldConfig,
    check_counts,
    check_numbers,
    preset_of,
    whole_steps,
)
from .console import say
from .envs import Task
from .envs.names import GYMNASIUM, PAPER_TASKS, split_name
from .options import parse
from .phases.explore import configure
from .phases.world import named_world
from .reference import METHODS, TASK_AVERAGE, paper_table
from .report.achievements import crafter_markdown
from .runs.results import read_results
from .scale.cells import CRAFTER, Cell, logs_of
from .scale.runner import Runner, run_cells
from .scale.storage import place_of

Protocol = Literal["zero-shot", "few-shot", "crafter"]
CRAFTER_METHODS = ("plan2explore", "random")
EPISODE = 1000  # env steps of an episode of the suite
FINAL_EPISODES = 10
"""Episodes that the last evaluation of a cell has at least."""
OWN_START = frozenset(
    ("cartpole_balance", "cartpole_balance_sparse", "finger_spin", "finger_turn_hard", "quadruped_run", "reacher_hard")
)
"""Tasks whose episodes begin otherwise than those of the bare domain: another pose, target, friction or floor."""


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
    methods: tuple[str, ...] | None = None
    """Exploration objectives; none: all six, for crafter plan2explore and random."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run for each (the paper: 3)."""
    steps: float = 1e6
    """Env steps of exploration (the paper: 3.5e6 zero-shot, 1e6 few-shot)."""
    preset: Preset = "paper"
    """Sizes and pieces of the agent: see explore."""
    out: str = "reproduce"
    """Folder of the sweep, or an address of object storage (s3://BUCKET/NAME): results.csv, cells.jsonl, locks/, runs/."""
    shots: int = 150
    """Few-shot: episodes of the task's policy (the paper: 150)."""
    updates: int = 10_000
    """Few-shot: updates before those (the paper does not say how many)."""
    gradient: Literal["through", "stopped"] | None = None
    """Does the exploration objective's gradient reach the actor through imagined states? None: as the preset says."""
    final_episodes: int = FINAL_EPISODES
    """Episodes that the last evaluation of a cell has at least."""
    world_only: bool = False
    """Explore the bare domain also for tasks whose own episodes begin otherwise (docs/reproducing.md)."""
    runner: Annotated[Runner, tyro.conf.arg(name="")] = field(default_factory=Runner)
    view: Annotated[WorldConfig, tyro.conf.arg(name="")] = field(default_factory=WorldConfig)
    schedule: Annotated[Schedule, tyro.conf.arg(name="")] = field(default_factory=Schedule)
    agent: AgentConfig = field(default_factory=AgentConfig)


SHORT = (
    "protocol", "tasks", "methods", "seeds", "steps", "out", "preset", "shots", "updates", "final_episodes", "obs",
    "environments", "updates_per_episode", "on", "cell", "list",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """`plan2explore reproduce`."""
    agent = preset_of(arguments)
    command = parse(ReproduceCommand, "reproduce", arguments, SHORT, protocol=tyro.MISSING, agent=agent)
    if command.agent.intrinsic.objective != agent.intrinsic.objective:
        raise ValueError(f"Name methods as --methods {command.agent.intrinsic.objective} ...: a sweep has several.")
    return run(command)


def reproduce(protocol: Protocol, preset: Preset = "paper", agent: AgentConfig | None = None, **settings: Any) -> int:
    """Runs a protocol of the paper, or scores explorations of Crafter; 1 if a cell failed, else 0.

    The same call resumes a sweep that was killed.

    Args:
        protocol: zero-shot, few-shot or crafter.
        preset: The agent.
        agent: All settings of the agent, instead of a preset.
        settings: Other fields of `ReproduceCommand`, and those of `WorldConfig` and `Schedule`, such as `environments=8`.
    """
    own = {name: value for name, value in settings.items() if name in ReproduceCommand.__dataclass_fields__}
    config = configure("walker", preset, **{name: value for name, value in settings.items() if name not in own})
    agent = agent or config.agent
    return run(ReproduceCommand(protocol, preset=preset, view=config.world, schedule=config.schedule, agent=agent, **own))


def run(command: ReproduceCommand) -> int:
    """Every cell of a protocol."""
    protocol = command.protocol
    if protocol not in get_args(Protocol):
        raise ValueError(f"There is no protocol {protocol!r}: choose zero-shot, few-shot or crafter.")
    check_counts(steps=whole_steps(command.steps), final_episodes=command.final_episodes)
    if protocol == "few-shot" and command.shots < 1:
        raise ValueError(f"Few-shot needs at least 1 shot; got {command.shots}.")
    methods = command.methods
    if methods is None:
        methods = CRAFTER_METHODS if protocol == CRAFTER else METHODS
    tasks = command.tasks or paper_tasks(protocol)
    names = [(method, task, seed) for seed in command.seeds for task in tasks for method in methods]
    if not names:
        raise ValueError("There is nothing to run: give at least one task, one method and one seed.")
    if len(set(names)) < len(names):
        raise ValueError("Each task, method and seed can be given once only.")
    out = place_of(command.out)
    status = run_cells(out, [cell_of(command, *name) for name in names], command.runner)
    with logs_of(out, ()) as folder:
        if protocol == CRAFTER and (folder / "results.csv").exists():
            say(crafter_markdown(read_results([folder / "results.csv"])))
    return status


def paper_tasks(protocol: str) -> list[str]:
    """The tasks of the paper's table for this protocol; Crafter is one by itself."""
    if protocol == CRAFTER:
        return [CRAFTER]
    return [task for task in paper_table(1 if protocol == "zero-shot" else 2) if task != TASK_AVERAGE]


def cell_of(command: ReproduceCommand, method: str, task: str, seed: int) -> Cell:
    """A cell with its own settings. Crafter's actions are not repeated."""
    if task.startswith(GYMNASIUM):
        raise ValueError(f"The protocols are about tasks of the suite, such as {PAPER_TASKS[0]}; got {task!r}.")
    if command.protocol != CRAFTER:
        Task.named(task)
    elif task != CRAFTER or method == "dreamer":
        other = f"task {task}" if task != CRAFTER else "method dreamer"
        raise ValueError(f"Crafter is explored without any task: leave out the {other}.")
    find_objective(method)
    world = replace(command.view, world=world_of(task, method, command.world_only))
    world = replace(world, action_repeat=1) if task == CRAFTER else world
    before = command.agent.intrinsic
    intrinsic = replace(before, objective=method, gradient=command.gradient or before.gradient)
    config = ExploreConfig(named_world(world), command.schedule, replace(command.agent, intrinsic=intrinsic), seed=seed)
    # A number of environments is for exploring: shots have to come out even over theirs.
    adaptation = AdaptConfig(replace(command.schedule, environments=0), command.updates, command.shots)
    check_numbers(config)
    check_numbers(adaptation)
    few_shot = command.protocol == "few-shot" and method != "dreamer"
    # Dreamer, which has its task, gets as many env steps in all as others with their shots.
    extra = command.shots * EPISODE if command.protocol == "few-shot" and not few_shot else 0
    return Cell(
        f"{method}-{task}-{seed}", config, whole_steps(command.steps) + extra, command.protocol, task,
        adaptation if few_shot else None, command.final_episodes,
    )  # fmt: skip
