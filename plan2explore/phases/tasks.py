"""The tasks of a run: those of the suite by their names, and rewards of the user's own, which no folder holds."""

import logging
from collections.abc import Sequence
from typing import Any

from ..envs import Task
from ..runs.folder import RunError, RunFolder
from ..runs.reader import stored

log = logging.getLogger("plan2explore.phases")


def as_task(task: str | Task) -> Task:
    """A task, or the suite's of this name."""
    task = Task.named(task) if isinstance(task, str) else task
    if not isinstance(task, Task):
        raise TypeError(f"A task is a name of the suite, or Task(name, reward=function); got {task!r}")
    return task


def task_settings(tasks: Sequence[Task]) -> dict[str, Any]:
    """What a run's settings keep of its tasks, beside their names."""
    own = [task.name for task in tasks if task.reward is not None]
    return {"own_rewards": own, "reward_digests": {task.name: task.digest for task in tasks}}


def own_tasks(folder: RunFolder, names: Sequence[str], given: Sequence[Task], resume: bool = False) -> list[Task]:
    """The tasks of a run. Rewards of the user's own are never taken from the folder: they must be given again.

    A run cannot `resume` with another version of one. Policies may be judged by another one, but not unknowingly.
    """
    by_name = {task.name: task for task in given}
    strange = sorted(set(by_name) - set(names))
    if strange:
        raise RunError(f"{folder.path} has no task {strange[0]!r}; it has {', '.join(names) or 'none'}.")
    missing = [name for name in stored(folder, "own_rewards", list) if name in names and name not in by_name]
    if missing:
        raise RunError(
            f"{folder.path} uses the reward {missing[0]!r}, which is your own code and not in the folder: give it again, "
            f"as file.py:{missing[0]} (--reward; in explore --probe)."
        )
    tasks = [by_name.get(name) or Task.named(name) for name in names]
    for name in changed_rewards(folder, tasks):
        if resume:
            raise RunError(
                f"{folder.path} has learned from another version of the reward {name!r}: give that again, or begin a new "
                "run (--out). Any reward can also be given afterwards: plan2explore adapt."
            )
        text = "%s was learned with another version of the reward %r: scores are by the one given now."
        log.warning(text, folder.path, name)
    return tasks


def changed_rewards(folder: RunFolder, tasks: Sequence[Task]) -> list[str]:
    """Names of rewards that are not those that the folder was begun with, as far as that is known.

    Version 0.1 kept a digest of the source alone.
    """
    known = folder.settings.get("reward_digests")
    if not isinstance(known, dict):
        return []
    pairs = [(task.name, str(known[task.name]), str(task.digest)) for task in tasks if known.get(task.name)]
    return [name for name, before, now in pairs if before not in (now, now.partition("-")[0])]
