"""The command line: one verb per command, nothing else."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

from . import __version__


def look(
    world: Annotated[str, tyro.conf.Positional],
    size: int = 64,
    renderer: str = "auto",
    action_repeat: int = 2,
    seed: int = 0,
    out: Path = Path("look"),
) -> int:
    """Plays a random episode and shows it: a video, a contact sheet, and steps per second.

    Args:
        world: A task (walker_walk), a bare domain (walker), or gymnasium:ID.
        size: Width and height of the picture that an agent would see (the paper: 64).
        renderer: auto, raycast or gl.
        action_repeat: Env steps per action (the paper: 2).
        seed: Of the episode and of its actions.
        out: Folder for the files.
    """
    from .report.look import look_at

    return look_at(world, size=size, renderer=renderer, action_repeat=action_repeat, seed=seed, out=out)


def doctor(json: Path | None = None) -> int:
    """Checks this machine: versions, devices, drawing, cores, memory and disk; each problem with its fix.

    Args:
        json: Also write what was found to this file.
    """
    from .doctor import examine

    return examine(json)


def tasks(which: str = "all") -> int:
    """Lists the names that the other commands take.

    Args:
        which: all, paper, extra or domains.
    """
    from .envs import list_tasks

    print("\n".join(list_tasks(which)))
    return 0


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

    measure(tyro.cli(UpdateBench, prog="plan2explore bench update", args=arguments))
    return 0


def bench(what: Annotated[str, tyro.conf.Positional]) -> int:
    """Measures speed on this machine: bench render --help, bench update --help.

    Args:
        what: render (stepping and drawing) or update (learning and acting).
    """
    raise ValueError(f"There is no benchmark {what!r}; there are: render, update")


VERBS: dict[str, Callable[..., int]] = {"look": look, "doctor": doctor, "tasks": tasks, "bench": bench}


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; mistakes of the user end in a sentence and status 2, Ctrl-C in status 130."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--version"]:
        print(f"plan2explore {__version__}")
        return
    try:
        sys.exit(_run(arguments))
    except KeyboardInterrupt:
        print("plan2explore: stopped", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError, RuntimeError) as error:
        print(f"plan2explore: {error}", file=sys.stderr)
        sys.exit(2)


def _run(arguments: list[str]) -> Any:
    if arguments[:2] == ["bench", "render"]:
        return tyro.cli(bench_render, prog="plan2explore bench render", args=arguments[2:])
    if arguments[:2] == ["bench", "update"]:
        return bench_update(arguments[2:])
    return tyro.extras.subcommand_cli_from_dict(VERBS, prog="plan2explore", args=arguments or ["--help"])
