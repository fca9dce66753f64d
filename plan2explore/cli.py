"""The command line: one verb per command, nothing else."""

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from . import __version__
from .config import (
    AdaptConfig,
    AgentConfig,
    ExploreConfig,
    Schedule,
    WorldConfig,
    check_seed,
    preset_of,
    rename_flags,
    whole_steps,
)
from .streams import PlainFormatter, is_left, quiet_without_reader
from .untrusted import printable


def look(
    world: Annotated[str, tyro.conf.Positional],
    size: int = 64,
    renderer: str = "auto",
    action_repeat: int = 2,
    seed: int = 0,
    out: Path = Path("look"),
    camera: str | None = None,
    env_arg: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
) -> int:
    """Plays a random episode and shows it: a video, a contact sheet, and steps per second.

    Args:
        world: A task (walker_walk), a bare domain (walker), gymnasium:ID, or mjcf:FILE.xml.
        size: Width and height of the picture that an agent would see (the paper: 64).
        renderer: auto, raycast or gl.
        action_repeat: Env steps per action (the paper: 2).
        seed: Of the episode and of its actions.
        out: Folder for the files.
        camera: Name or number of a camera of the model, or free; none: the one chosen for the world.
        env_arg: An argument key=value of a gymnasium: or mjcf: world. May be repeated.
    """
    from .envs.names import full_name, read_arguments
    from .report.look import look_at

    check_seed(seed)
    name = full_name(world, read_arguments(env_arg))
    return look_at(name, out, size=size, renderer=renderer, action_repeat=action_repeat, seed=seed, camera=camera)


def doctor(model: Annotated[Path | None, tyro.conf.Positional] = None, json: Path | None = None) -> int:
    """Checks this machine, or a MuJoCo model file: each problem with its fix.

    Args:
        model: An MJCF file: what an agent would do and observe in it, and what the ray-caster cannot draw. None: the
            machine's versions, devices, drawing, cores, memory and disk.
        json: Also write what was found to this file.
    """
    from .doctor import examine

    return examine(json, model)


def tasks(which: str = "all") -> int:
    """Lists the names that the other commands take.

    Args:
        which: all, paper, extra or domains.
    """
    from .envs import list_tasks

    print("\n".join(list_tasks(which)))
    return 0


def runs(folder: Annotated[Path, tyro.conf.Positional] = Path("runs")) -> int:
    """Lists runs with their state, env steps and last scores.

    Args:
        folder: Where to look: here and three folders down.
    """
    from .report.listing import print_runs

    return print_runs(folder)


def bench_render(
    worlds: tuple[str, ...] = ("cheetah", "walker", "quadruped"),
    size: int = 64,
    seconds: float = 3.0,
    backends: tuple[str, ...] = ("raycast", "osmesa", "egl"),
    json: Path | None = None,
) -> int:
    """Agent steps per second (two env steps and a frame): ours, OSMesa and EGL, with one and all cores.

    Args:
        worlds: Names that `make` takes.
        size: Width and height of the picture.
        seconds: How long each number is measured.
        backends: What draws; one that does not work here is left out with a line that says so.
        json: Also write the numbers to this file.
    """
    from .bench.render import bench

    return bench(worlds, size, seconds, backends, json)


def bench_update(arguments: list[str]) -> int:
    """Milliseconds per update of the agent, whole and by parts, and per step of acting."""
    from .bench.update import UpdateBench
    from .bench.update import main as measure

    command = tyro.cli(UpdateBench, prog="plan2explore bench update", args=arguments)
    if min(command.count, command.repeats, command.devices) < 1:
        raise ValueError(f"--count and --repeats must be at least 1; got {command.count} and {command.repeats}")
    measure(command)
    return 0


def bench(what: Annotated[str, tyro.conf.Positional]) -> int:
    """Measures speed on this machine: bench render --help, bench update --help.

    Args:
        what: render (stepping and drawing) or update (learning and acting).
    """
    raise ValueError(f"There is no benchmark {what!r}; there are: render, update")


@dataclass(frozen=True)
class ExploreCommand:
    """Explores a world without reward and learns a model of it (the paper's Algorithm 1), or resumes a run.

    Kill it at any moment: rerun the command to resume. Numbers of steps are env steps.

    What it seeks is --method: plan2explore, retrospective, max, curiosity, random, dreamer, or an objective of one's own.

    --import MODULE imports a module that registers environments or starts episodes; it may be repeated, in every command.

    --config FILE reads options from a TOML or YAML file, in every command; those on the command line win.
    """

    world: tyro.conf.Positional[str]
    """A bare domain (walker), a task (walker_walk), gymnasium:ID, mjcf:FILE.xml, or the folder of a run to resume."""
    steps: float | None = None
    """Env steps in all; none: 1e6 (the paper), and those of the run that is resumed."""
    out: Path | None = None
    """The run's folder; none: runs/WORLD."""
    preset: Literal["paper", "small", "tiny", "modern", "modern-tiny"] = "paper"
    """The agent's sizes and pieces: the paper's, about a tenth of their cost, for a CPU, DreamerV3's, those for a CPU."""
    probe: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A task whose zero-shot score is followed on the way: walker_walk, or file.py:function. May be repeated."""
    seed: int = 0
    """Random seed."""
    wandb: bool = False
    """Also log to Weights & Biases."""
    view: Annotated[WorldConfig, tyro.conf.arg(name="")] = field(default_factory=WorldConfig)
    schedule: Annotated[Schedule, tyro.conf.arg(name="")] = field(default_factory=Schedule)
    agent: AgentConfig = field(default_factory=AgentConfig)


@dataclass(frozen=True)
class ExploreHelp(ExploreCommand):
    """Explores a world without reward and learns a model of it (the paper's Algorithm 1), or resumes a run.

    Kill it at any moment: rerun the command to resume. Numbers of steps are env steps.

    --method is plan2explore (default), retrospective, max, curiosity, random, dreamer, or an objective of your own.
    --config FILE reads options from a TOML or YAML file. --import MODULE imports a module that registers environments.

    --help-all shows every option: the schedule's (--updates-per-episode, --environments, ...) and the agent's.
    """

    schedule: tyro.conf.Suppress[Schedule] = field(default_factory=Schedule)
    agent: tyro.conf.Suppress[AgentConfig] = field(default_factory=AgentConfig)


def explore(arguments: list[str]) -> int:
    """Explores a world without reward and learns a model of it, or resumes a run."""
    arguments = rename_flags(arguments)
    if {"-h", "--help"} & set(arguments):
        tyro.cli(ExploreHelp, prog="plan2explore explore", args=["--help"])
    arguments = ["--help" if word == "--help-all" else word for word in arguments]
    default = ExploreCommand(world=tyro.MISSING, agent=preset_of(arguments))
    command = tyro.cli(ExploreCommand, prog="plan2explore explore", args=arguments, default=default)
    from .phases.explore import explore as work
    from .phases.world import parse_task
    from .runs.folder import RunFolder

    probes = [parse_task(text) for text in command.probe]
    if RunFolder.is_run(command.world):
        allowed = replace(default, world=command.world, steps=command.steps, probe=command.probe, wandb=command.wandb)
        words = {word.partition("=")[0] for word in arguments if word.startswith("--")}
        if command != allowed or words - {"--steps", "--probe", "--wandb", "--no-wandb"}:  # a default may be given, too
            given = "--steps, --wandb, and --probe for rewards of your own"
            raise ValueError(f"{command.world} has its settings already: beside it give {given} only")
        work(command.world, command.steps, probes=probes, wandb=command.wandb)
        return 0
    view = replace(command.view, world=command.world)
    config = ExploreConfig(view, command.schedule, command.agent, seed=command.seed)
    work(command.world, command.steps, command.out, probes=probes, config=config, wandb=command.wandb)
    return 0


@dataclass(frozen=True)
class LearnCommand:
    """Learns world model, ensemble and tasks from episodes that are there already, without a simulator.

    The same command resumes; with more --updates it continues.
    """

    dataset: tyro.conf.Positional[str]
    """minari:ID, a file FILE.npz, or the folder of a run."""
    updates: int = 20_000
    """Updates in all."""
    out: Path | None = None
    """The run's folder; none: runs/NAME. The episodes are copied there."""
    preset: Literal["paper", "small", "tiny", "modern", "modern-tiny"] = "paper"
    """The agent's sizes and pieces."""
    probe: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A task that is learned beside the model: file.py:function. May be repeated."""
    obs: Literal["pixels", "proprio", "both"] | None = None
    """What the agent observes: images, vectors, or both; none: all that there is."""
    size: int = 64
    """Side of the images in pixels, to which they are resized."""
    seed: int = 0
    """Random seed."""
    wandb: bool = False
    """Also log to Weights & Biases."""
    agent: AgentConfig = field(default_factory=AgentConfig)


def learn(arguments: list[str]) -> int:
    """Learns from a data set, or from a run's episodes, without a simulator."""
    arguments = rename_flags(arguments)
    default = LearnCommand(dataset=tyro.MISSING, agent=preset_of(arguments))
    command = tyro.cli(LearnCommand, prog="plan2explore learn", args=arguments, default=default)
    from .phases.learn import learn as work
    from .phases.world import parse_task

    config = ExploreConfig(agent=command.agent, seed=command.seed)
    work(
        command.dataset, command.updates, command.out, probes=[parse_task(text) for text in command.probe],
        obs=command.obs, size=command.size, config=config, wandb=command.wandb,
    )  # fmt: skip
    return 0


@dataclass(frozen=True)
class ExportCommand:
    """Writes a run's episodes for other programs: one NumPy archive, or a Minari data set."""

    run: tyro.conf.Positional[Path]
    """Folder of an exploration."""
    format: Literal["npz", "minari"] = "npz"
    """npz, or minari (needs the extra `data`)."""
    out: str | None = None
    """The file, or Minari's id; none: NAME.npz, plan2explore/NAME-v0."""
    obs: Literal["both", "pixels", "proprio"] | None = None
    """Observations to write: vectors are always there, images unless the agent sees vectors alone; none: the agent's."""


def export(arguments: list[str]) -> int:
    """Writes a run's episodes for other programs: a NumPy archive or a Minari data set."""
    command = tyro.cli(ExportCommand, prog="plan2explore export", args=arguments)
    from .phases.learn import export as work

    print(work(command.run, command.format, command.out, command.obs))
    return 0


@dataclass(frozen=True)
class AdaptCommand:
    """Solves a task with what a run has learned (the paper's Algorithm 2): zero-shot, or few-shot with --shots.

    --import MODULE imports a module that registers environments or starts episodes; it may be repeated, in every command.
    """

    run: tyro.conf.Positional[Path]
    """Folder of an exploration. It is not changed."""
    task: str | None = None
    """A task of the suite: walker_walk."""
    reward: str | None = None
    """A reward of your own, instead of a task: file.py:function."""
    shots: int = 0
    """Episodes that the task's policy collects: 0 is zero-shot (the paper's few-shot: 150)."""
    updates: int = 10_000
    """Updates in imagination before any new interaction (the paper does not say how many)."""
    at: float | None = None
    """Env steps of the snapshot to start from; none: the last."""
    out: Path | None = None
    """Where to write; none: below the run's adapt/."""
    seed: int = 0
    """Of the new networks and environments."""
    schedule: Annotated[Schedule, tyro.conf.arg(name="")] = field(default_factory=Schedule)


def adapt(arguments: list[str]) -> int:
    """Solves a task with what a run has learned: zero-shot, or few-shot with --shots."""
    command = tyro.cli(AdaptCommand, prog="plan2explore adapt", args=arguments)
    from .phases.adapt import adapt as work

    at = None if command.at is None else whole_steps(command.at)
    config = AdaptConfig(command.schedule, command.updates, command.shots, at, command.seed)
    work(command.run, _one_task(command.task, command.reward), out=command.out, config=config)
    return 0


@dataclass(frozen=True)
class EvaluateCommand:
    """Plays whole episodes of an adapted policy, or of a run's probe, and prints their scores.

    --import MODULE imports a module that registers environments or starts episodes; it may be repeated, in every command.
    """

    path: tyro.conf.Positional[Path]
    """Folder of an adaptation, or of an exploration with --task naming a probe."""
    episodes: int = 10
    """Episodes to play."""
    video: bool = False
    """Also film the first episode."""
    task: str | None = None
    """Which probe of an exploration."""
    reward: str | None = None
    """The reward of your own that the policy was adapted to: file.py:function."""
    at: float | None = None
    """Env steps of an exploration's snapshot (an adaptation has none to choose); none: the last."""
    mode: Literal["mode", "sample", "noise"] = "mode"
    """The policy's mode (the paper), a sample of it, or a sample with exploration noise."""
    seed: int = 0
    """Of the initial states."""
    json: Path | None = None
    """Also write the scores, every episode's, to this file."""


def evaluate(arguments: list[str]) -> int:
    """Plays whole episodes of an adapted policy, or of a run's probe, and prints their scores."""
    command = tyro.cli(EvaluateCommand, prog="plan2explore evaluate", args=arguments)
    from .phases.load import load_for_evaluation
    from .runs.files import check_writable
    from .runs.folder import RunFolder

    if command.json:
        check_writable(command.json)
    own = _one_task(command.task, command.reward) if command.task or command.reward else None
    policy = load_for_evaluation(command.path, own, None if command.at is None else whole_steps(command.at))
    video = policy.film if command.video else None
    scores = policy.evaluate(command.episodes, command.seed, video, command.mode)
    print(scores)
    if RunFolder.open(policy.path).kind == "explore":
        print(f"snapshot: env step {policy.env_steps:,} of {policy.path}")
    print("every episode: " + ", ".join(f"{score:.1f}" for score in scores.episodes))
    if video:
        print(f"video: {video}")
    if command.json:
        command.json.write_text(json.dumps(scores.summary()) + "\n")
    print(f"scores: {command.json}" if command.json else "These scores are not kept: --json FILE writes them to a file.")
    return 0


def _one_task(task: str | None, reward: str | None) -> Any:
    from .envs import Task

    if task is not None and reward is not None:
        raise ValueError(f"Both --task {task} and --reward {reward} were given: give only one of them")
    if task is None and reward is None:
        raise ValueError("Give a task of the suite as --task NAME, or a reward of your own as --reward file.py:function")
    return Task.named(task) if task is not None else Task.from_file(str(reward))


def reproduce(arguments: list[str]) -> int:
    """Runs the paper's protocols, task by task and seed by seed; finished cells are not run again."""
    from .reproduce import main as work

    return work(arguments)


def sweep(arguments: list[str]) -> int:
    """Explores worlds x methods x presets x seeds x any setting, here, in a job array or on Ray."""
    from .scale.sweep import main as work

    return work(arguments)


def table(arguments: list[str]) -> int:
    """Prints the paper's tables with the scores of runs or result files beside the paper's."""
    from .report.tables import main as work

    return work(arguments)


def plot(arguments: list[str]) -> int:
    """Draws the paper's figures from runs or result files."""
    from .report.plots import main as work

    return work(arguments)


@dataclass(frozen=True)
class ReportCommand:
    """Writes one HTML page about a run, or about several side by side: scores, curves, coverage, predictions, videos.

    --import MODULE imports a module that registers environments or starts episodes; it may be repeated, in every command.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of explorations."""
    out: Path | None = None
    """The page; none: report.html in the run's folder, or here for several runs."""


def report(arguments: list[str]) -> int:
    """Writes one HTML page about a run, or about several side by side."""
    command = tyro.cli(ReportCommand, prog="plan2explore report", args=arguments)
    if not command.runs:
        raise ValueError("Give the folder of a run, or of several: plan2explore report runs/walker")
    from .report.page import write_report

    print(f"report: {write_report(command.runs, command.out)}")
    return 0


def demo(arguments: list[str]) -> int:
    """Explores a maze without reward on two CPU cores, then solves four tasks; minutes."""
    from .demo import main as work

    return work(arguments)


def _listed(verb: Callable[[list[str]], int]) -> Callable[[], int]:
    """A stand-in for the list of verbs, with the same first line of help."""

    def stand_in() -> int:
        return verb([])

    stand_in.__doc__ = verb.__doc__
    return stand_in


PARSED_HERE: dict[str, Callable[[list[str]], int]] = {
    "explore": explore,
    "learn": learn,
    "adapt": adapt,
    "export": export,
    "evaluate": evaluate,
    "demo": demo,
    "report": report,
    "reproduce": reproduce,
    "sweep": sweep,
    "table": table,
    "plot": plot,
}
"""Verbs whose settings depend on their arguments."""


VERBS: dict[str, Callable[..., int]] = {
    **{name: _listed(function) for name, function in PARSED_HERE.items()},
    "runs": runs,
    "look": look,
    "doctor": doctor,
    "tasks": tasks,
    "bench": bench,
}


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; mistakes of the user end in a sentence and status 2, Ctrl-C in 130, a reader that left in 141."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(handlers=[handler])
    with quiet_without_reader():
        sys.exit(_status(sys.argv[1:] if arguments is None else arguments))


def _status(arguments: list[str]) -> Any:
    """Runs a command and says what went wrong; its exit status."""
    try:
        return _run(arguments)
    except KeyboardInterrupt as stop:
        print("plan2explore: stopped", file=sys.stderr)
        return getattr(stop, "status", 130)
    except (ValueError, OSError, RuntimeError, FloatingPointError) as error:
        if isinstance(error, BrokenPipeError) and any(map(is_left, (sys.stdout, sys.stderr))):
            raise
        print(f"plan2explore: {printable(str(error))}", file=sys.stderr)
        return 2


def take_option(arguments: list[str], flag: str) -> tuple[list[str], list[str]]:
    """The values of an option that every command takes, and the other arguments."""
    values, others, words = [], [], iter(arguments)
    for word in words:
        if word == flag:
            values.append(next(words, ""))
        elif word.startswith(f"{flag}="):
            values.append(word.removeprefix(f"{flag}="))
        else:
            others.append(word)
    return values, others


def _run(arguments: list[str]) -> Any:
    modules, arguments = take_option(arguments, "--import")
    if modules:
        from .envs.registered import import_modules

        import_modules(modules)
    files, arguments = take_option(arguments, "--config")
    if files:
        from .config_file import flags_of

        first = next((at for at, word in enumerate(arguments) if word.startswith("-")), len(arguments))
        told = [flag for file in files for flag in flags_of(Path(file))]
        arguments = [*arguments[:first], *told, *arguments[first:]]  # an option of the command line comes later, and wins
    if arguments[:1] == ["--version"]:
        print(f"plan2explore {__version__}")
        return 0
    if arguments[:1] and arguments[0] in PARSED_HERE:
        return PARSED_HERE[arguments[0]](arguments[1:])
    if arguments[:2] == ["bench", "render"]:
        return tyro.cli(bench_render, prog="plan2explore bench render", args=arguments[2:])
    if arguments[:2] == ["bench", "update"]:
        return bench_update(arguments[2:])
    return tyro.extras.subcommand_cli_from_dict(VERBS, prog="plan2explore", args=arguments or ["--help"])
