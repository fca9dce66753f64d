"""Runs and policies from their folders."""

from pathlib import Path

from ..device import prepare_device
from ..envs import Task
from ..runs.folder import RunError, RunFolder
from .adapt import load_policy
from .policy import Policy
from .run import Run


def load(path: str | Path, task: Task | None = None) -> Run | Policy:
    """What is in a folder: a `Run` (an exploration) or a `Policy` (an adaptation).

    No code of the folder is executed. A policy that was adapted to a reward of your own needs that again, as `task`.
    """
    folder = RunFolder.open(path)
    if folder.kind == "explore":
        return Run(path)
    prepare_device()
    return load_policy(folder, task)


def load_for_evaluation(path: Path, task: Task | None, at: int | None) -> Policy:
    """The policy of an adaptation, or of a probe of an exploration."""
    adapted = RunFolder.open(path).kind == "adapt"
    if adapted and at is not None:
        raise RunError(
            f"{path} is an adaptation, whose policy is the one at its end: leave out --at, which chooses a snapshot of an "
            "exploration. To adapt from an earlier snapshot, give --at to the adapt command."
        )
    found = load(path, task) if adapted else load(path)
    if isinstance(found, Policy):
        return found
    if task is None:
        raise RunError(f"{path} is an exploration: name one of its probes with --task, or give the folder of an adaptation.")
    prepare_device()
    return found.probe(task, at)
