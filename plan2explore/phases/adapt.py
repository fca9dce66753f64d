"""Phase 2, the paper's Algorithm 2: solve a task from what exploration learned, with no or little interaction.

Zero-shot: replay is labelled with the task's reward, the reward is distilled into a head on the frozen model's
features, and an actor-critic learns in imagination. Some presets refine the model on the same replay before. Few-shot
continues from there: the task's policy collects, the reward may shape the model, and everything in replay stays in use.
"""

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from safetensors.numpy import save

from ..agent.actor_critic import init_stats
from ..agent.agent import Params
from ..agent.inspect import posterior_states
from ..agent.learner import Learner, LearnerState, check_finite
from ..agent.off_policy import MAX_STD, START_STD, TARGET_RATE
from ..agent.optimizer import TrainState, init_train_state
from ..atomic import write_file
from ..config import AdaptConfig, AgentConfig, ExploreConfig, Schedule, Spaces, check_numbers, differences, read_config
from ..console import counted
from ..device import prepare_device
from ..envs import Task
from ..envs.names import DATASET
from ..replay import Episode, relabel
from ..replay.buffer import Replay, plan_replay, replay_rows
from ..replay.files import EpisodeFolder
from ..runs.checkpoint import Checkpoints, read_arrays, unpack_params
from ..runs.folder import RunError, RunFolder, begin_run
from ..runs.reader import read_stored, stored, stored_config
from .collect import select_obs
from .explore import capacity, changed_rewards, open_training, own_tasks
from .model import KINDS, Model, read_params
from .policy import Policy
from .progress import Progress
from .run import Run
from .training import Job, disk_explained
from .world import WorldInfo, agent_spaces, check_origin, check_room, check_simulator, check_tasks, world_info

log = logging.getLogger("plan2explore.phases")

REFINE_RATE, REFINE_BLOCK = 0.2, 25
FEATURES = 5  # a random stream, as COLLECT and SAMPLE in training.py
LANES = 16  # episodes whose states are inferred together
Labels = dict[int, np.ndarray]
"""Rewards of episodes, by their numbers."""


def adapt(
    run: Run | str | Path,
    task: str | Task,
    shots: int = 0,
    updates: int | None = None,
    at: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    config: AdaptConfig | None = None,
    **schedule: Any,
) -> Policy:
    """Solves a task with a run's model and episodes. The run itself is not changed, byte by byte.

    Args:
        run: An exploration or its folder.
        task: A task's name, or `Task(name, reward=function)`.
        shots: Episodes of new interaction: 0 is zero-shot (the paper's few-shot: 150).
        updates: In imagination, before any new interaction; by default 10,000.
        at: Env steps of the snapshot to start from, with the episodes collected until then; by default the last.
        seed: Of the new networks and environments.
        out: Where to write, by default below the run's `adapt/`.
        config: All settings at once.
        schedule: Fields of `Schedule`, such as `evaluate_episodes=20`.
    """
    run = run if isinstance(run, Run) else Run(run)
    task = Task.named(task) if isinstance(task, str) else task
    if not isinstance(task, Task):
        raise TypeError(f"A task is a name of the suite, or Task(name, reward=function); got {task!r}")
    given: dict[str, Any] = {"shots": shots, "at": at, "seed": seed, "schedule": schedule}
    config = config or read_config(AdaptConfig, given | ({} if updates is None else {"updates": updates}))
    check_numbers(config)
    shared_out(config.shots, config.schedule)
    explored = stored_config(run.folder)
    check_tasks(explored.world.world, [task])
    if explored.world.world.startswith(DATASET):
        if config.shots:
            check_simulator(explored.world.world)
        config = replace(config, schedule=replace(config.schedule, evaluate_episodes=0))
    snapshots = Checkpoints(run.folder.snapshots, keep=None)
    if not snapshots.steps():
        raise RunError(f"{run.path} has no snapshot yet: let it explore further, or stop it with Ctrl-C, which keeps one.")
    steps = snapshots.steps()[-1] if config.at is None else snapshots.nearest(config.at)
    prepare_device()
    place = Adaptation(run, task, explored, config, steps)
    zero = place.zero_shot(Path(out) if out and not config.shots else run.folder.adapt / place.name(0))
    if not config.shots:
        return zero
    return place.few_shot(zero, Path(out) if out else run.folder.adapt / place.name(config.shots))


class Adaptation:
    """One task, one snapshot of one run."""

    def __init__(self, run: Run, task: Task, explored: ExploreConfig, config: AdaptConfig, steps: int) -> None:
        self.run, self.task, self.explored, self.config, self.steps = run, task, explored, config, steps
        self.info: WorldInfo = world_info(run.folder, explored.world)
        check_room(explored.world, config.schedule.evaluate_episodes, "--evaluate-episodes")
        check_room(explored.world, shared_out(config.shots, config.schedule), "--environments")

    def name(self, shots: int) -> str:
        """The name of this adaptation's folder."""
        name = re.sub(r"[^\w.-]+", "_", self.task.name).strip(".") or "task"
        name += f"-at-{self.config.at}" if self.config.at is not None else ""
        name += f"-seed-{self.config.seed}" if self.config.seed else ""
        return name + (f"-{shots}-shots" if shots else "")

    def zero_shot(self, path: Path) -> Policy:
        """Learns the task in imagination alone."""
        agent = task_agent(self.explored, learn_model=False)
        learner = Learner(agent, agent_spaces(self.explored.world, self.info, 1), self.config.schedule.devices)
        return self._work(path, 0, learner, partial(self._fresh, learner))

    def few_shot(self, zero: Policy, path: Path) -> Policy:
        """Continues from the zero-shot policy, collecting."""
        agent = task_agent(self.explored, learn_model=True)
        learner = Learner(agent, agent_spaces(self.explored.world, self.info, 1), self.config.schedule.devices)
        return self._work(path, self.config.shots, learner, lambda *_: self._continued(learner, zero))

    def _fresh(self, learner: Learner, rewards: Labels, progress: Progress) -> LearnerState:
        """A new reward head and actor-critic on the snapshot's model, refined if the preset says so."""
        arrays, _ = Checkpoints(self.run.folder.snapshots, keep=None).load(self.steps)
        state = learner.init(jax.random.fold_in(jax.random.key(self.config.seed), 0))
        model = _loaded(state.networks["model"], "model", unpack_params(arrays))
        if self.explored.agent.refine:
            model = self._refined(learner, model, rewards, progress)
        return state._replace(networks=state.networks | {"model": model})

    def _refined(self, learner: Learner, model: TrainState, rewards: Labels, progress: Progress) -> TrainState:
        """The model after more training on replay. It is the same for every task, so the first adaptation keeps it."""
        folder, steps = self.run.folder.adapt, sum(map(len, rewards.values()))
        file = folder / f".model-at-{self.steps}-of-{steps}-seed-{self.config.seed}.safetensors"
        if file.exists():
            return init_train_state(jax.numpy.asarray(read_arrays(file, expected={"model": model.params})["model"]))
        spaces, key = replace(learner.agent.spaces, tasks=0), jax.random.key(self.config.seed)
        agent = learner.agent.config
        replay = self._replay(spaces, steps, 1, agent.batch, agent.length, progress)
        for episode, labels in self._labelled(rewards):
            replay.add_episode(replay_rows(episode, spaces, labels[:, None]))
        progress.say(f"Refining the world model: {counted(self.explored.agent.refine, 'update')} on replay ...")
        refined = refine_model(agent, spaces, model, replay, key)
        folder.mkdir(exist_ok=True)
        write_file(file, [save({"model": np.asarray(refined.params)})])
        return refined

    def _continued(self, learner: Learner, zero: Policy) -> LearnerState:
        arrays, _ = Checkpoints(RunFolder.open(zero.path).snapshots, keep=None).load(0)
        state = learner.init(jax.random.fold_in(jax.random.key(self.config.seed), 1))
        params = unpack_params(arrays)
        loaded = {name: _loaded(now, name, params) for name, now in state.networks.items()}
        slow = jax.numpy.copy(loaded["critic"].params) if state.slow_critic.size else state.slow_critic
        return state._replace(networks=loaded, slow_critic=slow)

    def _work(self, path: Path, shots: int, learner: Learner, start: Any) -> Policy:
        settings = {
            "config": asdict(replace(self.config, shots=shots)),
            "explored": asdict(self.explored),
            "run": self.run.folder.id,
            "snapshot": self.steps,
            "task": self.task.name,
            "own_rewards": [self.task.name] if self.task.reward is not None else [],
            "reward_digests": {self.task.name: self.task.digest},
            **({"data": self.run.folder.settings["data"]} if self.run.folder.settings.get("data") else {}),
        }
        if RunFolder.is_run(path):
            _refuse_other(path, settings, self.task, every_detail=shots == self.config.shots)
            if RunFolder.open(path).finished.exists():
                print(f"Adapted before: {path}", file=sys.stderr)
                return load_policy(RunFolder.open(path), self.task)
        with Progress(f"adapting to {self.task.name}", self.info.action_repeat) as progress:
            progress.say(f"Adapting to {self.task.name} from env step {self.steps:,} of {self.run.path}; output: {path}")
            rewards = self._label(progress)  # first: a reward that fails leaves nothing behind
            with begin_run(path, "adapt", settings) as folder, disk_explained(path), folder.lock():
                self._train(self._job(folder, shots), learner, rewards, start, progress)
                folder.finished.touch()
            progress.say(f"Done: {path}")
        return load_policy(folder, self.task)

    def _job(self, folder: RunFolder, shots: int) -> Job:
        schedule, goal = self.config.schedule.resolved(self.explored.agent), shots * self.info.episode
        return Job(
            folder, self.explored.world, self.info, schedule, [self.task], self.config.seed, goal,
            environments=shared_out(shots, schedule), head_start=0 if shots else self.config.updates,
            policy=self.task.name, collect_for=self.task if shots else None,
        )  # fmt: skip

    def _train(self, job: Job, learner: Learner, rewards: Labels, start: Any, progress: Progress) -> None:
        """Fills replay with the run's episodes, or with the states that a frozen model infers along them, and trains."""
        spaces, agent = learner.agent.spaces, learner.agent.config
        steps = sum(map(len, rewards.values()))
        if agent.learn_model:
            room = steps + capacity(job.goal, self.info, job.environments)
            replay = self._replay(spaces, room, job.environments, agent.batch, agent.length, progress)
            for episode, labels in self._labelled(rewards):
                replay.add_episode(replay_rows(episode, spaces, labels[:, None]))
        else:  # single steps, or pairs of them, instead of sequences
            replay = self._replay(
                state_spaces(learner), steps, 1, agent.batch * agent.length, 1 + learner.agent.from_replay, progress
            )
        with open_training(job, learner, replay, progress, start=lambda: start(rewards, progress)) as training:
            if not agent.learn_model:
                progress.say("Inferring the world model's states along all episodes ...")
                key = jax.random.fold_in(training.key, FEATURES)
                add_states(replay, learner, training.state.params, self._labelled(rewards), key)
            training.run(lambda: job.folder.record_start(sys.argv))
        if job.goal:
            collected = counted(len(training.episodes.numbers()), "episode")
            progress.say(f"Collected {collected} for {self.task.name}.")

    def _replay(self, spaces: Spaces, room: int, streams: int, batch: int, length: int, progress: Progress) -> Replay:
        """An empty replay where it fits."""
        plan = plan_replay(self.config.schedule.memory, room, spaces)
        progress.say(plan.sentence)
        return Replay(plan.place, room, streams, spaces, batch, length)

    def _labelled(self, rewards: Labels) -> Iterator[tuple[Episode, np.ndarray]]:
        """The run's episodes with their rewards."""
        for number, episode in self._explored_episodes().load_all():
            if number in rewards:
                yield episode, rewards[number]

    def _explored_episodes(self) -> EpisodeFolder:
        return EpisodeFolder(self.run.folder.episodes, read_only=True)

    def _label(self, progress: Progress) -> Labels:
        """The rewards in the task of the run's episodes up to the snapshot, by their numbers."""
        folder, bare = self._explored_episodes(), {}
        for number, episode in folder.load_all(images=False):
            check_origin(folder.path_of(number), episode, self.explored.world)
            if self.config.at is None or episode.meta.get("run_env_steps", 0) <= self.steps:
                bare[number] = episode
        if not bare:
            raise RunError(f"{self.run.path} has no whole episode before env step {self.steps:,}.")
        progress.say(f"Labelling {counted(len(bare), 'episode')} with {self.task.name} ...")
        rewards = dict(zip(bare, relabel(list(bare.values()), self.task), strict=True))
        means = [float(each.sum()) for each in rewards.values()]
        progress.say(f"Replay holds episodes worth {np.mean(means):.1f} on average, {max(means):.1f} at best.")
        if not any(each.any() for each in rewards.values()):
            progress.say("No step in replay is paid anything: there is nothing to learn the task from. Explore longer.")
        return rewards


def shared_out(shots: int, schedule: Schedule) -> int:
    """Environments that play exactly so many episodes between them."""
    count = schedule.environments
    if count and shots % count:
        raise ValueError(f"{shots} shots cannot be shared out evenly over {count} environments: choose another number.")
    if count or schedule.collect == "in-turn" or not shots:
        return count or 1
    return max(size for size in range(1, 17) if shots % size == 0)


def task_agent(explored: ExploreConfig, learn_model: bool) -> Any:
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


def state_spaces(learner: Learner) -> Spaces:
    """The agent's spaces where replay holds states in place of observations."""
    sizes = learner.agent.sizes
    return replace(learner.agent.spaces, image=None, proprio=None, features=sizes.deter + sizes.stoch)


def add_states(
    replay: Replay, learner: Learner, params: Params, episodes: Iterable[tuple[Episode, np.ndarray]], key: PRNGKeyArray
) -> None:
    """Adds episodes with their rewards to replay, as the states that a frozen model infers.

    They are inferred once, along whole episodes, as they are when a policy acts. Inferred from the start of a short
    sequence they would be states that no policy meets.
    """
    agent, model, spaces = learner.agent, {"model": params["model"]}, state_spaces(learner)
    episodes = iter(episodes)
    while group := list(islice(episodes, LANES)):
        time = 1 << (max(len(episode) for episode, _ in group) - 1).bit_length()  # few lengths to compile for

        image, proprio, action = (
            side_by_side([getattr(episode, name) for episode, _ in group], time) for name in ("image", "proprio", "action")
        )
        observation = select_obs(agent.spaces, image, proprio)
        states = posterior_states(agent, model, observation, action, jax.random.fold_in(key, replay.steps))
        features = np.asarray(states.features, np.float32)
        for lane, (episode, rewards) in enumerate(group):
            rows = replay_rows(episode, spaces, rewards[:, None])
            replay.add_episode(rows | {"features": features[: len(episode), lane]})


def side_by_side(arrays: Sequence[np.ndarray], time: int) -> np.ndarray:
    """Arrays of different lengths padded to one, and to `LANES` arrays: (time, lanes, ...)."""
    padded = np.zeros((time, LANES, *arrays[0].shape[1:]), arrays[0].dtype)
    for lane, array in enumerate(arrays):
        padded[: len(array), lane] = array
    return padded


def refine_model(agent: AgentConfig, spaces: Spaces, model: TrainState, replay: Replay, key: PRNGKeyArray) -> TrainState:
    """Trains a world model on replay at a reduced learning rate, which takes the noise of training out of it.

    An actor-critic finds what is wrong in a model: a wall that gives way a little in each imagined step is a door.
    """
    rate, nothing = agent.model.learning_rate * REFINE_RATE, replace(agent.intrinsic, objective="random")
    model_only = replace(agent.model, learning_rate=rate)
    agent = replace(agent, model=model_only, intrinsic=nothing, learn_model=True, warmup=0)
    learner = Learner(agent, spaces)
    init_key, sample_key = jax.random.split(jax.random.fold_in(key, 2))
    state = learner.init(init_key)
    state = state._replace(networks=state.networks | {"model": model})
    for update in range(0, agent.refine, REFINE_BLOCK):
        state, metrics = learner.update_block(state, replay.sample(jax.random.fold_in(sample_key, update), REFINE_BLOCK))
    check_finite(metrics)
    return init_train_state(state.networks["model"].params)


def _loaded(state: TrainState, name: str, params: dict[str, np.ndarray]) -> TrainState:
    """Networks with the parameters of a snapshot, and a fresh optimiser."""
    ours = state.params
    if name not in params or params[name].shape != ours.shape:
        got = params[name].shape if name in params else "nothing"
        raise RunError(f"The snapshot's {name} has sizes {got}; the configuration asks for {ours.shape}.")
    return init_train_state(jax.numpy.asarray(params[name]))


def _refuse_other(path: Path, settings: dict[str, Any], task: Task, every_detail: bool) -> None:
    """An adaptation is resumed only with its own settings. Few-shot builds on zero-shot of any schedule."""
    folder = RunFolder.open(path)
    if folder.kind != "adapt":
        raise RunError(f"{path} is an exploration: give another --out.")
    ours, theirs = read_config(AdaptConfig, settings["config"]), read_stored(folder, "config", AdaptConfig)
    if not every_detail:
        ours = replace(ours, schedule=theirs.schedule)
    explored = read_config(ExploreConfig, settings["explored"])
    changed = differences(theirs, ours)
    changed += differences(read_stored(folder, "explored", ExploreConfig).resolved(), explored.resolved(), "explored.")
    plain = json.loads(json.dumps(settings))  # as a file gives it back
    compared = [name for name in plain if name not in ("config", "explored", "reward_digests")]
    changed += [f"another {name}" for name in compared if folder.settings.get(name) != plain[name]]
    changed += [f"another version of the reward {name!r}" for name in changed_rewards(folder, [task])]
    if changed:
        found = "; ".join(changed)
        raise RunError(f"{path} is an adaptation with other settings ({found}): remove it, or give another --out.")


def load_policy(folder: RunFolder, task: Task | None = None) -> Policy:
    """The policy of an adaptation. A reward of the user's own is not in the folder and must be given again."""
    explored = stored_config(folder, "explored")
    (task,) = own_tasks(folder, [stored(folder, "task", str)], [task] if task else [])
    warn_of_changes(folder, task)
    check_tasks(explored.world.world, [task])
    learn = read_stored(folder, "config", AdaptConfig).shots > 0
    snapshots = Checkpoints(folder.snapshots, keep=None)
    if not snapshots.steps():
        raise RunError(f"{folder.path} is not finished: rerun the adapt command to resume.")
    learner = Learner(task_agent(explored, learn), agent_spaces(explored.world, world_info(folder, explored.world), 1))
    return _policy(learner, snapshots, snapshots.steps()[-1], explored, task, 0, folder.path)


def warn_of_changes(folder: RunFolder, task: Task) -> None:
    """A policy may be judged by another reward than the one it learned, but not unknowingly."""
    for name in changed_rewards(folder, [task]):
        text = "%s was learned with another version of the reward %r: scores are by the one given now."
        log.warning(text, folder.path, name)


def probe_policy(run: Run, task: str | Task, at: int | None = None) -> Policy:
    """The policy of a probe."""
    explored = stored_config(run.folder)
    name = task if isinstance(task, str) else task.name
    if name not in explored.probes:
        raise RunError(f"{run.path} has no probe {name!r}; it has {', '.join(explored.probes) or 'none'}.")
    given = [] if isinstance(task, str) else [task]
    chosen = own_tasks(run.folder, [name], given)[0]
    warn_of_changes(run.folder, chosen)
    learner, snapshots, steps = _explorer(run, explored, at)
    return _policy(learner, snapshots, steps, explored, chosen, explored.probes.index(name), run.path)


def load_model(run: Run, at: int | None = None) -> Model:
    """The world model of a run."""
    prepare_device()
    explored = stored_config(run.folder)
    learner, snapshots, steps = _explorer(run, explored, at)
    return Model(learner.agent, read_params(learner, snapshots, steps, KINDS, run.path), explored.probes)


def _explorer(run: Run, explored: ExploreConfig, at: int | None) -> tuple[Learner, Checkpoints, int]:
    """A run's learner, its snapshots, and the env steps of the one that is asked for."""
    snapshots = Checkpoints(run.folder.snapshots, keep=None)
    if not snapshots.steps():
        raise RunError(f"{run.path} has no snapshot yet.")
    steps = snapshots.steps()[-1] if at is None else snapshots.nearest(at)
    spaces = agent_spaces(explored.world, world_info(run.folder, explored.world), len(explored.probes))
    return Learner(explored.agent, spaces), snapshots, steps


def _policy(
    learner: Learner, snapshots: Checkpoints, steps: int, explored: ExploreConfig, task: Task, row: int, path: Path
) -> Policy:
    params = read_params(learner, snapshots, steps, ("model", "actor"), path)
    networks = {name: TrainState(each, None) for name, each in params.items()}
    nothing = jax.numpy.zeros((0, 0))
    state = LearnerState(networks, nothing, init_stats(0), jax.numpy.zeros((), int), jax.random.key(0))
    return Policy(learner, state, explored.world, task, row, path, steps)
