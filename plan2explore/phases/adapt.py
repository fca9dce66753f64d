"""Phase 2, the paper's Algorithm 2: solve a task from what exploration learned, with no or little interaction.

Zero-shot: replay is labelled with the task's reward, the reward is distilled into a head on the frozen model's
features, and an actor-critic learns in imagination. Some presets refine the model on the same replay before. Few-shot
continues from there: the task's policy collects, the reward may shape the model, and everything in replay stays in use.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from safetensors.numpy import save

from ..agent.agent import Params
from ..agent.inspect import posterior_states
from ..agent.learner import Learner, LearnerState, check_finite
from ..agent.optimizer import TrainState, init_train_state
from ..atomic import write_file
from ..config import (
    AdaptConfig,
    AgentConfig,
    ExploreConfig,
    Schedule,
    Spaces,
    check_numbers,
    differences,
    read_config,
    with_settings,
)
from ..console import counted
from ..device import prepare_device
from ..envs import Task
from ..envs.names import DATASET
from ..replay import Episode, relabel
from ..replay.buffer import Replay, replay_rows
from ..replay.files import EpisodeFolder
from ..runs.checkpoint import read_arrays
from ..runs.folder import RunError, RunFolder, begin_run
from ..runs.reader import read_stored, stored_config
from .collect import select_obs
from .explore import capacity
from .load import find_snapshot, load_policy, task_agent
from .model import read_params
from .policy import Policy
from .progress import Progress
from .run import Run
from .tasks import as_task, changed_rewards, task_settings
from .training import Job, make_replay, open_training, writing
from .world import WorldInfo, check_origin, check_room, check_simulator, check_tasks, world_info

REFINE_RATE, REFINE_BLOCK = 0.2, 25
FEATURES = 5  # a random stream, as COLLECT and SAMPLE in training.py
GROUP = 16  # episodes whose states are inferred together
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
    agent: Sequence[str] = (),
    **schedule: Any,
) -> Policy:
    """Solves a task with a run's model and episodes. The run itself is not changed, byte by byte.

    Args:
        run: An exploration or its folder.
        task: A task's name, or `Task(name, reward=function)`.
        shots: Episodes of new interaction: 0 is zero-shot (the paper's few-shot: 150).
        updates: Before any new interaction, in imagination or from replay, as the preset says; by default 10,000.
        at: Env steps of the snapshot to start from, with the episodes collected until then; by default the last.
        seed: Of the new networks and environments.
        out: Where to write, by default below the run's `adapt/`.
        config: All settings at once.
        agent: Settings of the agent that differ from the exploration's: `["actor_critic.discount=0.99"]`.
        schedule: Fields of `Schedule`, such as `evaluate_episodes=20`.
    """
    run = run if isinstance(run, Run) else Run(run)
    task = as_task(task)
    given: dict[str, Any] = {"shots": shots, "at": at, "seed": seed, "agent": agent, "schedule": schedule}
    config = config or read_config(AdaptConfig, given | ({} if updates is None else {"updates": updates}))
    check_numbers(config)
    shared_out(config.shots, config.schedule)
    explored = stored_config(run.folder)
    explored = replace(explored, agent=with_settings(explored.agent, config.agent))
    check_tasks(explored.world.world, [task])
    if explored.world.world.startswith(DATASET):
        if config.shots:
            check_simulator(explored.world.world)
        config = replace(config, schedule=replace(config.schedule, evaluate_episodes=0))
    steps = find_snapshot(run.folder, config.at)
    prepare_device()
    place = Adaptation(run, task, explored, config, steps)
    zero = place.solve(Path(out) if out and not config.shots else run.folder.adapt / place.name(0))
    if not config.shots:
        return zero
    return place.solve(Path(out) if out else run.folder.adapt / place.name(config.shots), zero)


class Adaptation:
    """One task, one snapshot of one run."""

    def __init__(self, run: Run, task: Task, explored: ExploreConfig, config: AdaptConfig, steps: int) -> None:
        self.run, self.task, self.explored, self.config, self.steps = run, task, explored, config, steps
        self.info: WorldInfo = world_info(run.folder, explored.world)
        self.episodes = EpisodeFolder(run.folder.episodes, read_only=True)
        check_room(explored.world, config.schedule.evaluate_episodes, "--evaluate-episodes")
        check_room(explored.world, shared_out(config.shots, config.schedule), "--environments")

    def name(self, shots: int) -> str:
        """The name of this adaptation's folder."""
        name = re.sub(r"[^\w.-]+", "_", self.task.name).strip(".") or "task"
        name += f"-at-{self.config.at}" if self.config.at is not None else ""
        name += f"-seed-{self.config.seed}" if self.config.seed else ""
        return name + (f"-{shots}-shots" if shots else "")

    def solve(self, path: Path, zero: Policy | None = None) -> Policy:
        """Learns the task from the exploration alone; or continues from the zero-shot policy, collecting."""
        settings = self._settings(self.config.shots if zero else 0)
        if RunFolder.is_run(path):
            folder = RunFolder.open(path)
            self._refuse_other(folder, settings)
            if folder.finished.exists():
                print(f"Adapted before: {path}", file=sys.stderr)
                return load_policy(folder, self.task)
        with Progress(f"adapting to {self.task.name}", self.info.action_repeat) as progress:
            progress.say(f"Adapting to {self.task.name} from env step {self.steps:,} of {self.run.path}; output: {path}")
            rewards = self._label(progress)  # first: a reward that fails leaves nothing behind
            with begin_run(path, "adapt", settings) as folder, writing(folder):
                self._train(folder, zero, rewards, progress)
                folder.finished.touch()
            progress.say(f"Done: {path}")
        return load_policy(folder, self.task)

    def _label(self, progress: Progress) -> Labels:
        """The rewards in the task of the run's episodes up to the snapshot, by their numbers."""
        bare = {}
        for number, episode in self.episodes.load_all(images=False):
            check_origin(self.episodes.path_of(number), episode, self.explored.world)
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

    def _train(self, folder: RunFolder, zero: Policy | None, rewards: Labels, progress: Progress) -> None:
        """Fills replay with the run's episodes, or with the states that a frozen model infers along them, and trains."""
        schedule, shots = self.config.schedule.resolved(self.explored.agent), self.config.shots if zero else 0
        job = Job(
            folder, self.explored.world, self.info, schedule, [self.task], self.config.seed, shots * self.info.episode,
            environments=shared_out(shots, schedule), head_start=0 if shots else self.config.updates,
            policy=self.task.name, collect_for=self.task if shots else None,
        )  # fmt: skip
        agent, steps = task_agent(self.explored, learn_model=shots > 0), sum(map(len, rewards.values()))
        learner = Learner(agent, job.spaces, schedule.devices)
        if zero:
            room = steps + capacity(job.goal, self.info, job.environments)
            replay = make_replay(schedule, job.spaces, agent, room, progress, job.environments)
            self._fill(replay, job.spaces, rewards)
        else:  # single steps, or pairs of them, instead of sequences
            form = replace(agent, batch=agent.batch * agent.length, length=1 + learner.agent.from_replay)
            replay = make_replay(schedule, state_spaces(learner), form, steps, progress)

        def start() -> LearnerState:
            return self._continued(learner, zero) if zero else self._fresh(learner, rewards, progress)

        with open_training(job, learner, replay, progress, start=start) as training:
            if not zero:
                progress.say("Inferring the world model's states along all episodes ...")
                key = jax.random.fold_in(training.key, FEATURES)
                add_states(replay, learner, training.state.params, self._labelled(rewards), key)
            training.run()
        if zero:
            progress.say(f"Collected {counted(len(training.episodes.numbers()), 'episode')} for {self.task.name}.")

    def _fresh(self, learner: Learner, rewards: Labels, progress: Progress) -> LearnerState:
        """A new reward head and actor-critic on the snapshot's model, refined if the preset says so."""
        state = learner.init(jax.random.fold_in(jax.random.key(self.config.seed), 0))
        model = init_train_state(read_params(learner, self.run.folder, self.steps, ["model"])["model"])
        if self.explored.agent.refine:
            model = self._refined(learner, model, rewards, progress)
        return state._replace(networks=state.networks | {"model": model})

    def _continued(self, learner: Learner, zero: Policy) -> LearnerState:
        """All networks of the zero-shot policy."""
        state = learner.init(jax.random.fold_in(jax.random.key(self.config.seed), 1))
        params = read_params(learner, RunFolder.open(zero.path), 0, list(state.networks))
        slow = jax.numpy.copy(params["critic"]) if state.slow_critic.size else state.slow_critic
        return state._replace(networks={name: init_train_state(each) for name, each in params.items()}, slow_critic=slow)

    def _refined(self, learner: Learner, model: TrainState, rewards: Labels, progress: Progress) -> TrainState:
        """The model after more training on replay. It is the same for every task, so the first adaptation keeps it."""
        folder, steps, agent = self.run.folder.adapt, sum(map(len, rewards.values())), learner.agent.config
        settings = sha256(repr((agent.model, agent.batch, agent.length, agent.refine)).encode()).hexdigest()[:8]
        file = folder / f".model-at-{self.steps}-of-{steps}-{settings}-seed-{self.config.seed}.safetensors"
        if file.exists():
            return init_train_state(jax.numpy.asarray(read_arrays(file, expected={"model": model.params})["model"]))
        spaces = replace(learner.agent.spaces, tasks=0)
        replay = make_replay(self.config.schedule, spaces, agent, steps, progress)
        self._fill(replay, spaces, rewards)
        progress.say(f"Refining the world model: {counted(agent.refine, 'update')} on replay ...")
        refined = refine_model(agent, spaces, model, replay, jax.random.key(self.config.seed))
        folder.mkdir(exist_ok=True)
        write_file(file, [save({"model": np.asarray(refined.params)})])
        return refined

    def _fill(self, replay: Replay, spaces: Spaces, rewards: Labels) -> None:
        for episode, labels in self._labelled(rewards):
            replay.add_episode(replay_rows(episode, spaces, labels[:, None]))

    def _labelled(self, rewards: Labels) -> Iterator[tuple[Episode, np.ndarray]]:
        """The run's episodes with their rewards."""
        return ((episode, rewards[number]) for number, episode in self.episodes.load_all() if number in rewards)

    def _settings(self, shots: int) -> dict[str, Any]:
        data = self.run.folder.settings.get("data")
        return {
            "config": asdict(replace(self.config, shots=shots)),
            "explored": asdict(self.explored),
            "run": self.run.folder.id,
            "snapshot": self.steps,
            "task": self.task.name,
            **task_settings([self.task]),
            **({"data": data} if data else {}),
        }

    def _refuse_other(self, folder: RunFolder, settings: dict[str, Any]) -> None:
        """An adaptation is resumed only with its own settings. Few-shot builds on zero-shot of any schedule."""
        if folder.kind != "adapt":
            raise RunError(f"{folder.path} is an exploration: give another --out.")
        ours, theirs = read_config(AdaptConfig, settings["config"]), read_stored(folder, "config", AdaptConfig)
        if ours.shots < self.config.shots:
            ours = replace(ours, schedule=theirs.schedule)
        changed = differences(theirs, ours)
        changed += differences(
            read_stored(folder, "explored", ExploreConfig).resolved(), self.explored.resolved(), "explored."
        )
        plain = json.loads(json.dumps(settings))  # as a file gives it back
        compared = [name for name in plain if name not in ("config", "explored", "reward_digests")]
        changed += [f"another {name}" for name in compared if folder.settings.get(name) != plain[name]]
        changed += [f"another version of the reward {name!r}" for name in changed_rewards(folder, [self.task])]
        if changed:
            found = "; ".join(changed)
            raise RunError(
                f"{folder.path} is an adaptation with other settings ({found}): remove it, or give another --out."
            )


def shared_out(shots: int, schedule: Schedule) -> int:
    """Environments that play exactly so many episodes between them."""
    count = schedule.environments
    if count and shots % count:
        raise ValueError(f"{shots} shots cannot be shared out evenly over {count} environments: choose another number.")
    if count or schedule.collect == "in-turn" or not shots:
        return count or 1
    return max(size for size in range(1, 17) if shots % size == 0)


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
    while group := list(islice(episodes, GROUP)):
        time = 1 << (max(len(episode) for episode, _ in group) - 1).bit_length()  # few lengths to compile for
        image, proprio, action = (
            pad_together([getattr(episode, name) for episode, _ in group], time) for name in ("image", "proprio", "action")
        )
        observation = select_obs(agent.spaces, image, proprio)
        states = posterior_states(agent, model, observation, action, jax.random.fold_in(key, replay.steps))
        features = np.asarray(states.features, np.float32)
        for index, (episode, rewards) in enumerate(group):
            rows = replay_rows(episode, spaces, rewards[:, None])
            replay.add_episode(rows | {"features": features[: len(episode), index]})


def pad_together(arrays: Sequence[np.ndarray], time: int) -> np.ndarray:
    """Arrays of different lengths padded to one, and to `GROUP` arrays: (time, batch, ...)."""
    padded = np.zeros((time, GROUP, *arrays[0].shape[1:]), arrays[0].dtype)
    for index, array in enumerate(arrays):
        padded[: len(array), index] = array
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
