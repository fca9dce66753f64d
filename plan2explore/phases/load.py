"""Runs, policies and models from their folders. No code of a folder is executed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax

from ..agent.actor_critic import init_stats
from ..agent.learner import Learner, LearnerState
from ..agent.off_policy import MAX_STD, START_STD, TARGET_RATE
from ..agent.optimizer import TrainState
from ..config import AdaptConfig, AgentConfig, ExploreConfig
from ..device import prepare_device
from ..envs import Task
from ..runs.checkpoint import Checkpoints
from ..runs.folder import RunError, RunFolder
from ..runs.reader import read_stored, stored, stored_config
from .model import KINDS, Model, read_params
from .policy import Policy
from .run import Run
from .tasks import own_tasks
from .world import agent_spaces, check_tasks, world_info


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
    folder = RunFolder.open(path)
    if folder.kind == "adapt" and at is not None:
        raise RunError(
            f"{path} is an adaptation, whose policy is the one at its end: leave out --at, which chooses a snapshot of an "
            "exploration. To adapt from an earlier snapshot, give --at to the adapt command."
        )
    if folder.kind == "explore" and task is None:
        raise RunError(f"{path} is an exploration: name one of its probes with --task, or give the folder of an adaptation.")
    prepare_device()
    return load_policy(folder, task) if task is None or folder.kind == "adapt" else probe_policy(folder, task, at)


def load_policy(folder: RunFolder, task: Task | None = None) -> Policy:
    """The policy of an adaptation. A reward of the user's own is not in the folder and must be given again."""
    explored = stored_config(folder, "explored")
    (task,) = own_tasks(folder, [stored(folder, "task", str)], [task] if task else [])
    check_tasks(explored.world.world, [task])
    agent = task_agent(explored, learn_model=read_stored(folder, "config", AdaptConfig).shots > 0)
    return _policy(folder, explored, agent, task, tasks=[task.name])


def probe_policy(folder: RunFolder, task: str | Task, at: int | None = None) -> Policy:
    """The policy of a probe of an exploration."""
    explored = stored_config(folder)
    name, given = (task, []) if isinstance(task, str) else (task.name, [task])
    if name not in explored.probes:
        raise RunError(f"{folder.path} has no probe {name!r}; it has {', '.join(explored.probes) or 'none'}.")
    (task,) = own_tasks(folder, [name], given)
    return _policy(folder, explored, explored.agent, task, explored.probes, at)


def load_model(folder: RunFolder, at: int | None = None) -> Model:
    """The world model of an exploration."""
    prepare_device()
    explored = stored_config(folder)
    learner = _learner(folder, explored, explored.agent, len(explored.probes))
    return Model(learner.agent, read_params(learner, folder, find_snapshot(folder, at), KINDS), explored.probes)


def find_snapshot(folder: RunFolder, at: int | None = None) -> int:
    """Env steps of a run's last snapshot, or of the one at these env steps."""
    snapshots = Checkpoints(folder.snapshots, keep=None)
    if not snapshots.steps():
        if folder.kind == "adapt":
            raise RunError(f"{folder.path} is not finished: rerun the adapt command to resume.")
        raise RunError(
            f"{folder.path} has no snapshot yet: let it explore further, or stop it with Ctrl-C, which keeps one."
        )
    return snapshots.steps()[-1] if at is None else snapshots.nearest(at)


def task_agent(explored: ExploreConfig, learn_model: bool) -> AgentConfig:
    """The agent that adapts: the explorer's sizes, the task's policy collects, no explorer."""
    agent = explored.agent
    discount = agent.actor_critic.discount if agent.adapt_discount is None else agent.adapt_discount
    actor_critic = replace(agent.actor_critic, learn_from=agent.adapt_from, discount=discount)
    if agent.adapt_from == "replay":
        floor = agent.actor_critic.min_std
        actor_critic = replace(actor_critic, start_std=floor + START_STD, max_std=floor + MAX_STD, slow_critic=TARGET_RATE)
    intrinsic = replace(agent.intrinsic, objective="dreamer")
    batch = agent.adapt_batch or agent.batch
    return replace(agent, actor_critic=actor_critic, intrinsic=intrinsic, batch=batch, learn_model=learn_model)


def _learner(folder: RunFolder, explored: ExploreConfig, agent: AgentConfig, tasks: int) -> Learner:
    return Learner(agent, agent_spaces(explored.world, world_info(folder, explored.world), tasks))


def _policy(
    folder: RunFolder, explored: ExploreConfig, agent: AgentConfig, task: Task, tasks: Sequence[str], at: int | None = None
) -> Policy:
    """The policy of one of the tasks of an agent, without what only learning needs."""
    steps, learner = find_snapshot(folder, at), _learner(folder, explored, agent, len(tasks))
    params = read_params(learner, folder, steps, ("model", "actor"))
    networks = {name: TrainState(each, None) for name, each in params.items()}
    nothing = jax.numpy.zeros((0, 0))
    state = LearnerState(networks, nothing, init_stats(0), jax.numpy.zeros((), int), jax.random.key(0))
    return Policy(learner, state, explored.world, task, tasks.index(task.name), folder.path, steps)
