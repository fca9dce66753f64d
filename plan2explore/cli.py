"""The command line: one verb per command, nothing else."""

import logging
import re
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, make_dataclass, replace
from importlib import import_module
from io import StringIO
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional, UseAppendAction, arg

from . import __version__
from .config import AdaptConfig, AgentConfig, ExploreConfig, Preset, check_seed, preset_of, whole_steps
from .options import command, flags_of, parse, take_option
from .streams import PlainFormatter, is_left, quiet_without_reader
from .untrusted import printable

VERBS = {
    "explore": ("cli:explore", "Explores a world without reward and learns a model of it, or resumes a run."),
    "learn": ("cli:learn", "Learns from a data set, or from a run's episodes, without a simulator."),
    "adapt": ("cli:adapt", "Solves a task with what a run has learned: zero-shot, or few-shot with --shots."),
    "evaluate": ("cli:evaluate", "Plays whole episodes of a policy and prints their scores."),
    "report": ("cli:report", "Writes one HTML page about a run, or about several side by side."),
    "runs": ("cli:runs", "Lists runs with their state, env steps and last scores."),
    "export": ("cli:export", "Writes a run's episodes for other programs: a NumPy archive or a Minari data set."),
    "demo": ("demo:main", "Explores a maze without reward on two CPU cores, then solves four tasks; minutes."),
    "reproduce": ("reproduce:main", "Runs the paper's protocols; finished cells are not run again."),
    "sweep": ("scale.sweep:main", "Explores worlds x methods x presets x seeds x any setting, here or on a cluster."),
    "table": ("report.tables:table", "Prints the paper's tables with the scores of runs beside the paper's."),
    "plot": ("report.plots:plot", "Draws the paper's figures from runs or result files."),
    "look": ("cli:look", "Plays a random episode and shows it: a video, a contact sheet, and steps per second."),
    "tasks": ("cli:tasks", "Lists the names that the other commands take."),
    "doctor": ("cli:doctor", "Checks this machine, or a MuJoCo model file: each problem with its fix."),
    "bench": ("bench:main", "Measures speed on this machine: bench render --help, bench update --help."),
}
"""Where each command is, a function of its arguments, and what it does. Its options are a dataclass beside it, such as
`ExploreCommand`, or those of the function that `command` wraps."""
READERS = ("report", "runs", "table", "plot")
"""Commands that read sweeps and runs at an address (s3://...) too."""


@dataclass(frozen=True)
class ExploreCommand:
    """Explores a world without reward and learns a model of it (the paper's Algorithm 1), or resumes a run.

    Kill it at any moment: rerun the command to resume. Numbers of steps are env steps.
    """

    world: Positional[str]
    """A bare domain (walker), a task (walker_walk), gymnasium:ID, mjcf:FILE.xml, or the folder of a run to resume."""
    steps: float | None = None
    """Env steps in all; none: 1e6 (the paper), and those of the run that is resumed."""
    out: Path | None = None
    """The run's folder; none: runs/WORLD."""
    preset: Preset = "paper"
    """Sizes and pieces of the agent. paper: the paper's; small: about a tenth of the cost; tiny: for a CPU; modern: a world
    model of DreamerV3's kind; modern-tiny: that for a CPU."""
    probe: UseAppendAction[tuple[str, ...]] = ()
    """A task whose zero-shot score is followed on the way: walker_walk, or file.py:function. May be repeated."""
    wandb: bool = False
    """Also log to Weights & Biases."""
    config: Annotated[ExploreConfig, arg(name="")] = field(default_factory=ExploreConfig)


EXPLORE = (
    "world", "steps", "out", "preset", "method", "probe", "obs", "seed", "environments", "updates_per_episode", "env_arg",
)  # fmt: skip


def explore(arguments: list[str]) -> int:
    """`plan2explore explore`."""
    agent = ExploreConfig(agent=preset_of(arguments))
    options = parse(ExploreCommand, "explore", arguments, EXPLORE, world=tyro.MISSING, config=agent)
    from .phases.explore import explore as work
    from .phases.world import parse_task
    from .runs.folder import RunFolder

    probes = [parse_task(text) for text in options.probe]
    if RunFolder.is_run(options.world):
        words = {word.partition("=")[0] for word in arguments if word.startswith("--")}
        if words - {"--steps", "--probe", "--wandb", "--no-wandb"}:
            given = "--steps, --wandb, and --probe for rewards of your own"
            raise ValueError(f"{options.world} has its settings already: beside it give {given} only")
        work(options.world, options.steps, probes=probes, wandb=options.wandb)
        return 0
    config = replace(options.config, world=replace(options.config.world, world=options.world))
    work(options.world, options.steps, options.out, probes=probes, config=config, wandb=options.wandb)
    return 0


@dataclass(frozen=True)
class LearnCommand:
    """Learns world model, ensemble and tasks from episodes that are there already, without a simulator.

    The same command resumes; with more --updates it continues.
    """

    dataset: Positional[str]
    """minari:ID, a file FILE.npz, or the folder of a run."""
    updates: int = 20_000
    """Updates in all."""
    out: Path | None = None
    """The run's folder; none: runs/NAME. The episodes are copied there."""
    preset: Preset = "paper"
    """Sizes and pieces of the agent: see explore."""
    probe: UseAppendAction[tuple[str, ...]] = ()
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


LEARN = ("dataset", "updates", "out", "preset", "method", "probe", "obs", "size", "seed", "wandb")


def learn(arguments: list[str]) -> int:
    """`plan2explore learn`."""
    options = parse(LearnCommand, "learn", arguments, LEARN, dataset=tyro.MISSING, agent=preset_of(arguments))
    from .phases.learn import learn as work
    from .phases.world import parse_task

    config = ExploreConfig(agent=options.agent, seed=options.seed)
    work(
        options.dataset, options.updates, options.out, probes=[parse_task(text) for text in options.probe],
        obs=options.obs, size=options.size, config=config, wandb=options.wandb,
    )  # fmt: skip
    return 0


@command
def adapt(
    run: Positional[Path],
    task: str | None = None,
    reward: str | None = None,
    at: float | None = None,
    out: Path | None = None,
    config: Annotated[AdaptConfig, arg(name="")] = AdaptConfig(),  # noqa: B008
) -> int:
    """Solves a task with what a run has learned (the paper's Algorithm 2): zero-shot, or few-shot with --shots.

    Args:
        run: Folder of an exploration. It is not changed.
        task: A task's name: walker_walk, or a maze's goal: maze_u_goal_n. `plan2explore tasks` lists them.
        reward: A reward of your own, instead of a task: file.py:function.
        at: Env steps of the snapshot to start from; none: the last.
        out: Where to write; none: below the run's adapt/.
    """
    from .phases.adapt import adapt as work

    config = replace(config, at=None if at is None else whole_steps(at))
    work(run, _one_task(task, reward), out=out, config=config)
    return 0


@command
def evaluate(
    path: Positional[Path],
    episodes: int = 10,
    video: bool = False,
    task: str | None = None,
    reward: str | None = None,
    at: float | None = None,
    mode: Literal["mode", "sample", "noise"] = "mode",
    seed: int = 0,
    json: Path | None = None,
) -> int:
    """Plays whole episodes of an adapted policy, or of a run's probe, and prints their scores.

    Args:
        path: Folder of an adaptation, or of an exploration with --task naming a probe.
        episodes: Episodes to play.
        video: Also write a video of the first episode.
        task: Which probe of an exploration.
        reward: The reward of your own that the policy was adapted to: file.py:function.
        at: Env steps of an exploration's snapshot (an adaptation has none to choose); none: the last.
        mode: The policy's mode (the paper), a sample of it, or a sample with exploration noise.
        seed: Of the initial states.
        json: Also write the scores, every episode's, to this file.
    """
    from .phases.load import load_for_evaluation
    from .runs.files import check_writable
    from .runs.folder import RunFolder

    own = _one_task(task, reward) if task or reward else None
    policy = load_for_evaluation(path, own, None if at is None else whole_steps(at))
    if json:
        check_writable(json)
    file = policy.video_file if video else None
    scores = policy.evaluate(episodes, seed, file, mode)
    print(scores)
    if RunFolder.open(policy.path).kind == "explore":
        print(f"snapshot: env step {policy.env_steps:,} of {policy.path}")
    print("every episode: " + ", ".join(f"{score:.1f}" for score in scores.episodes))
    if file:
        print(f"video: {file}")
    if json:
        json.write_text(dumps(scores.summary()) + "\n")
    print(f"scores: {json}" if json else "These scores are not kept: --json FILE writes them to a file.")
    return 0


def _one_task(task: str | None, reward: str | None) -> Any:
    from .envs import Task

    if task is not None and reward is not None:
        raise ValueError(f"Both --task {task} and --reward {reward} were given: give only one of them")
    if task is None and reward is None:
        raise ValueError("Give a task's name as --task NAME, or a reward of your own as --reward file.py:function")
    return Task.named(task) if task is not None else Task.from_file(str(reward))


@command
def report(runs: Positional[tuple[Path, ...]], out: Path | None = None) -> int:
    """Writes one HTML page about a run, or about several side by side: scores, curves, coverage, predictions, videos.

    Args:
        runs: Folders of explorations.
        out: The page; none: report.html in the run's folder, or here for several runs.
    """
    if not runs:
        raise ValueError("Give the folder of a run, or of several: plan2explore report runs/walker")
    from .report.page import write_report

    print(f"report: {write_report(runs, out)}")
    return 0


@command
def runs(folder: Positional[Path] = Path("runs")) -> int:
    """Lists runs with their state, env steps and last scores.

    Args:
        folder: Where to look: here and three folders down.
    """
    from .report.listing import print_runs

    return print_runs(folder)


@command
def export(
    run: Positional[Path],
    format: Literal["npz", "minari"] = "npz",
    out: str | None = None,
    obs: Literal["both", "pixels", "proprio"] | None = None,
) -> int:
    """Writes a run's episodes for other programs: one NumPy archive, or a Minari data set.

    Args:
        run: Folder of an exploration.
        format: npz, or minari (needs the extra `data`).
        out: The file, or Minari's id; none: NAME.npz, plan2explore/NAME-v0.
        obs: Observations to write. Vectors are always there, images unless the agent observes vectors alone; none: the
            agent's.
    """
    from .phases.learn import export as work

    print(work(run, format, out, obs))
    return 0


@command
def look(
    world: Positional[str],
    size: int = 64,
    renderer: str = "auto",
    action_repeat: int = 2,
    seed: int = 0,
    out: Path = Path("look"),
    camera: str | None = None,
    env_arg: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY=VALUE")] = (),
) -> int:
    """Plays a random episode and shows it: a video, a contact sheet, and steps per second.

    Of a long episode these are the first 2,000 env steps.

    Args:
        world: A task (walker_walk), a bare domain (walker), gymnasium:ID, or mjcf:FILE.xml.
        size: Side of the images in pixels (the paper: 64).
        renderer: auto, raycast or gl.
        action_repeat: Env steps per action (the paper: 2).
        seed: Of the episode and of its actions.
        out: Folder for the files.
        camera: Name or number of a camera of the model, or free; none: the one chosen for the world.
        env_arg: An argument of a gymnasium: or mjcf: world. May be repeated.
    """
    from .envs.names import full_name, read_arguments
    from .report.frames import look_at

    check_seed(seed)
    name = full_name(world, read_arguments(env_arg))
    return look_at(name, out, size=size, renderer=renderer, action_repeat=action_repeat, seed=seed, camera=camera)


@command
def tasks(start: Positional[str] = "", which: str = "all") -> int:
    """Lists the names that the other commands take.

    Args:
        start: Only names that begin so, such as those of a domain: maze.
        which: all, paper, extra or domains.
    """
    from .envs import list_tasks

    if not (names := [name for name in list_tasks(which) if name.startswith(start)]):
        raise ValueError(f"No name begins with {start!r}; the domains are {', '.join(list_tasks('domains'))}")
    print("\n".join(names))
    return 0


@command
def doctor(model: Positional[Path | None] = None, json: Path | None = None) -> int:
    """Checks this machine, or a MuJoCo model file: each problem with its fix.

    Args:
        model: An MJCF file: what an agent would do and observe in it, and what the ray-caster cannot draw. None: the
            machine's versions, devices, drawing, cores, memory and disk.
        json: Also write what was found to this file.
    """
    from .doctor import examine

    return examine(json, model)


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


def _run(arguments: list[str]) -> Any:
    files, arguments = take_option(arguments, "--config")
    if files:
        first = next((at for at, word in enumerate(arguments) if word.startswith("-")), len(arguments))
        given = [flag for file in files for flag in flags_of(Path(file))]
        arguments = [*arguments[:first], *given, *arguments[first:]]  # an option of the command line comes later, and wins
    modules, arguments = take_option(arguments, "--import")
    if modules:
        from .envs.registered import import_modules

        import_modules(modules)
    if arguments[:1] == ["--version"]:
        print(f"plan2explore {__version__}")
        return 0
    if arguments[:1] and arguments[0] in VERBS:
        if arguments[0] in READERS and any("://" in word for word in arguments):
            from .scale.storage import local_copy, place_of

            bulk = arguments[0] == "report"
            arguments = [str(local_copy(word, bulk)) if isinstance(place_of(word), str) else word for word in arguments]
        where, name = VERBS[arguments[0]][0].split(":")
        return getattr(import_module(f".{where}", __package__), name)(arguments[1:])
    verbs: dict[str, Any]
    if not any(word.startswith("--tyro-") for word in arguments):  # a shell's completion knows all options
        verbs = {verb: make_dataclass(verb, [], namespace={"__doc__": about}) for verb, (_, about) in VERBS.items()}
        return tyro.extras.subcommand_cli_from_dict(verbs, prog="plan2explore", args=arguments or ["--help"])
    with redirect_stdout(StringIO()) as script, suppress(SystemExit):
        verbs = {verb: _options_of(verb) for verb in VERBS}
        tyro.extras.subcommand_cli_from_dict(verbs, prog="plan2explore", args=arguments)
    # Of a description in two lines, the second would be offered as a word to complete.
    print(re.sub("^COMPLETION_SPEC = .*$", lambda line: line[0].replace("\\n", " "), script.getvalue(), flags=re.M))
    return 0


def _options_of(verb: str) -> Any:
    """A command's dataclass, or a function of its options."""
    where, name = VERBS[verb][0].split(":")
    module = import_module(f".{where}", __package__)
    return getattr(getattr(module, name), "__wrapped__", None) or getattr(module, f"{verb.title()}Command")
