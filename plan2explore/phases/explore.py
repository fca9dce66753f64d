"""Phase 1, the paper's Algorithm 1: explore a world without reward, and learn a model of it."""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import jax

from ..agent.agent import Agent
from ..agent.intrinsic import find_objective
from ..agent.learner import Learner
from ..config import (
    PRESETS,
    RENAMED,
    AgentConfig,
    ExploreConfig,
    Schedule,
    Spaces,
    WorldConfig,
    check_numbers,
    differences,
    read_config,
    whole_steps,
)
from ..console import counted
from ..device import prepare_device
from ..envs import Task
from ..envs.names import UnknownName, argument_texts, folder_name, is_suite, split_name
from ..replay.buffer import ADVICE, Place, Replay, TooLittleMemoryError, device_room, gigabytes, plan_replay
from ..runs.folder import RunError, RunFolder, begin_run
from ..runs.reader import open_exploration, read_stored, stored, stored_config
from .progress import Progress
from .run import Run
from .tasks import as_task, own_tasks, task_settings
from .training import EPISODE, Job, open_training, writing
from .world import WorldInfo, agent_spaces, check_room, check_tasks, inspect_world, named_world

SHORT = 10_000  # env steps that each environment should have at least
RUNNING = 2  # episodes of replay for each environment: the one that is running, and part of another
SLOW = (
    "There is no GPU here, and at the paper's sizes this will take very long: plan2explore bench update measures an update. "
    "--preset tiny and small are for CPUs."
)
SPARE = 8  # episodes of replay beyond what the steps ask for: each that ends early has a first observation too


def configure(world: str, preset: str = "paper", method: str | None = None, seed: int = 0, **options: Any) -> ExploreConfig:
    """A preset's configuration with some settings of `WorldConfig` and `Schedule` changed by name."""
    if preset not in PRESETS:
        raise ValueError(f"There is no preset {preset!r}: choose one of {', '.join(PRESETS)}.")
    agent = PRESETS[preset]
    if method is not None:
        find_objective(method)
        agent = replace(agent, intrinsic=replace(agent.intrinsic, objective=method))
    options = {RENAMED.get(name, name): value for name, value in options.items()}
    ours = {each.name for each in fields(WorldConfig)} - {"world"}
    theirs = {each.name for each in fields(Schedule)}
    options |= {"env_arg": argument_texts(options.pop("env_args"))} if "env_args" in options else {}
    unknown = sorted(set(options) - ours - theirs)
    if unknown:
        raise TypeError(f"There is no option {unknown[0]!r}: choose among {', '.join(sorted(ours | theirs))}.")
    world_config = read_config(WorldConfig, {"world": world} | {k: v for k, v in options.items() if k in ours})
    schedule = read_config(Schedule, {k: v for k, v in options.items() if k in theirs})
    return ExploreConfig(world=world_config, schedule=schedule, agent=agent, seed=seed)


def explore(
    world: str | Path,
    steps: float | None = None,
    out: str | Path | None = None,
    preset: str = "paper",
    method: str | None = None,
    probes: Sequence[str | Task] = (),
    seed: int = 0,
    config: ExploreConfig | None = None,
    wandb: bool = False,
    **options: Any,
) -> Run:
    """Explores a world, or resumes a run whose folder is given in its place.

    Args:
        world: A name that `make` takes, or the folder of a run.
        steps: Env steps in all (the paper: 1e6).
        out: The run's folder, by default `runs/WORLD`. If it is a run with the same settings, it is resumed.
        preset: The agent: paper, small, tiny, modern or modern-tiny.
        method: plan2explore, retrospective, max, curiosity, random or dreamer.
        probes: Tasks whose zero-shot score is followed on the way.
        seed: Random seed.
        config: All settings at once, instead of preset, method, seed and options.
        wandb: Also log to Weights & Biases.
        options: Fields of `WorldConfig` and `Schedule`, such as `obs="proprio"` or `environments=4`; and `env_args`, a
            mapping of arguments of a `gymnasium:` or `mjcf:` world.
    """
    given = [as_task(probe) for probe in probes]
    if RunFolder.is_run(world):
        settings = {"out": out, "method": method, "config": config, **options}
        changed = [name for name, value in settings.items() if value is not None]
        if changed:
            raise RunError(f"{world} has its settings already: {changed[0]} cannot be changed. Only steps can.")
        path, config = Path(world), stored_config(open_exploration(world))
    else:
        _refuse_missing(str(world))
        config = config or configure(str(world), preset, method, seed, **options)
        config = replace(config, world=named_world(replace(config.world, world=str(world))))
        given = given or [Task.named(name) for name in config.probes] or _own_task(config)
        config = replace(config, probes=tuple(task.name for task in given))
        path = Path(out) if out is not None else Path("runs") / folder_name(config.world.world)
        if RunFolder.is_run(path):
            refuse_other(RunFolder.open(path), config)
    if RunFolder.is_run(path):
        tasks, goal, count = _resumed(RunFolder.open(path), config, given, steps)
    else:
        tasks, goal = given, whole_steps(1e6 if steps is None else steps)
        count = environments(config, goal)
    if goal < 1:
        raise ValueError(f"The number of env steps must be at least 1; got {goal}.")
    info = check(config, tasks)
    place = plan_memory(config, info, goal, count)
    new = {"config": asdict(config), "goal": goal, "environments": count, **task_settings(tasks)}
    with begin_run(path, "explore", new) as folder:
        job = Job(
            folder, config.world, info, config.schedule.resolved(config.agent), tasks, config.seed, goal, count,
            random_until=min(goal, config.schedule.seed_episodes * EPISODE), policy=config.agent.intrinsic.objective,
            settings={"goal": goal},
        )  # fmt: skip
        return _work(job, config.agent, place, wandb)


def _refuse_missing(name: str) -> None:
    """Somebody who gives a folder wants to resume a run, and is not helped by a list of worlds."""
    if not name or not is_suite(name) or not (os.sep in name or Path(name).is_dir()):
        return
    try:
        split_name(name)
    except UnknownName:
        why = "it has no run.json" if Path(name).is_dir() else "there is no such folder"
        raise RunError(
            f"There is no run in {name}: {why}. A new run needs a world's name, and its folder as --out: "
            f"plan2explore explore walker --out {name}"
        ) from None


def _own_task(config: ExploreConfig) -> list[Task]:
    """The task of a world that was made with one, for a method that follows a task."""
    name = config.world.world
    supervised = find_objective(config.agent.intrinsic.objective).collector == "task"
    if not is_suite(name) or split_name(name)[1] is None:
        if supervised:
            raise ValueError(f"{config.agent.intrinsic.objective} follows a task: give one as a probe, such as walker_walk.")
        return []
    return [Task.named(name)]


def environments(config: ExploreConfig, goal: int) -> int:
    """How many environments collect: so few in a short run that each of them finishes some episodes."""
    if config.schedule.environments:
        return config.schedule.environments
    return 1 if config.schedule.collect == "in-turn" else max(1, min(16, len(os.sched_getaffinity(0)), goal // SHORT))


def check(config: ExploreConfig, tasks: Sequence[Task], info: WorldInfo | None = None) -> WorldInfo:
    """Finds what cannot work before anything is written. A world without an `info` is made once to inspect it."""
    check_numbers(config)
    check_tasks(config.world.world, tasks)
    info = info or inspect_world(config.world)
    Agent(config.agent, agent_spaces(config.world, info, len(tasks)))  # an objective that does not exist, or lacks a task
    return info


def capacity(goal: int, info: WorldInfo, count: int) -> int:
    """Steps for which replay has room, by whole episodes. Should more come, the oldest are overwritten."""
    return (-(-goal // info.episode) + RUNNING * count + SPARE) * info.frames


def plan_memory(config: ExploreConfig, info: WorldInfo, goal: int, count: int) -> Place:
    """Decides and says where frames will be kept and what they take; a run that cannot fit ends here."""
    spaces = agent_spaces(config.world, info, len(config.probes))
    prepare_device()
    check_room(config.world, count, "--environments")
    check_room(config.world, len(config.probes) * config.schedule.evaluate_episodes, "--evaluate-episodes")
    need, advice = capacity(goal, info, count), ADVICE
    if RUNNING * count * info.frames > need / 2:
        advice = f"Most are for {count:,} environments at once: use fewer (--environments)"
    place, sentence = plan_replay(config.schedule.memory, need, spaces, advice=advice)
    print(sentence, file=sys.stderr)
    check_batch(config.agent, spaces)
    if jax.default_backend() == "cpu" and config.agent.model.deter >= PRESETS["paper"].model.deter:
        print(SLOW, file=sys.stderr)
    return place


def check_batch(agent: AgentConfig, spaces: Spaces) -> None:
    """Refuses a batch of which even the observations and the imagined states have no room: the machine would hang."""
    observed = 3 * (spaces.image or 0) ** 2 + (spaces.proprio or 0)
    state = agent.model.deter + agent.model.stoch
    need = 4 * agent.batch * agent.length * (observed + agent.actor_critic.horizon * state)
    if need > (room := device_room(0)) > 0:  # 0: it does not tell
        raise TooLittleMemoryError(
            f"A batch of {agent.batch:,} sequences of {agent.length:,} steps needs more than {gigabytes(need)}, and "
            f"{gigabytes(room)} are free: use smaller ones (--agent.batch, --agent.length)."
        )


def refuse_other(folder: RunFolder, config: ExploreConfig, advice: str = "Give its folder alone to resume it") -> None:
    """The same command resumes its run; another one must not."""
    if folder.kind != "explore":
        raise RunError(f"{folder.path} is an adaptation, not an exploration.")
    changed = differences(read_stored(folder, "config", ExploreConfig).resolved(), config.resolved())
    if changed:
        found = "; ".join(changed)
        raise RunError(f"{folder.path} is a run with other settings ({found}). {advice}, or choose another --out.")


def _resumed(
    folder: RunFolder, config: ExploreConfig, given: Sequence[Task], steps: float | None
) -> tuple[list[Task], int, int]:
    """The tasks, the goal and the environments with which a run resumes."""
    if "learned_from" in folder.settings:
        source = str(folder.settings["learned_from"])
        raise RunError(f"{folder.path} was learned from {source:.100} and does not explore: plan2explore learn resumes it.")
    tasks = own_tasks(folder, config.probes, given, resume=True)
    former = stored(folder, "goal", int)
    goal = former if steps is None else whole_steps(steps)
    if goal < former:
        raise RunError(f"{folder.path} was to have {former:,} env steps; {goal:,} would be fewer: leave --steps out.")
    return tasks, goal, stored(folder, "environments", int)


def _work(job: Job, agent: AgentConfig, place: Place, wandb: bool) -> Run:
    """Resumes from the last checkpoint, if there is one, and runs to the goal."""
    folder, room = job.folder, capacity(job.goal, job.info, job.environments)
    learner = Learner(agent, job.spaces, job.schedule.devices)
    replay = Replay(place, room, job.environments, job.spaces, agent.batch, agent.length)
    with writing(folder), Progress(f"{job.policy} in {job.world.world}", job.info.action_repeat) as progress:
        progress.say(f"Run folder: {folder.path}")
        with open_training(job, learner, replay, progress, wandb) as training:
            before = training.updates
            training.run()
        made = f"{counted(training.reached, 'env step')}, {counted(training.updates, 'update')}"
        made += f" ({training.updates - before:,} of them now)" if before else ""
        made += f", {training.coverage.share:.0%} of the maze" if training.coverage else ""
        progress.say(f"Done: {made} in {progress.spent(training.updates)}. Run folder: {folder.path}")
    return Run(folder.path)
