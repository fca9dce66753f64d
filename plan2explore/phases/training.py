"""Collecting and learning side by side: what exploration and few-shot adaptation have in common.

An update is due for every so many env steps. With `overlap`, all environments step while the device trains:

    the device   | act | updates that are due ............ | act | updates that are due ............ | act
    the cores    |     | step, draw, keep, evaluate |       |     | step, draw, keep, evaluate |

Actions are asked for before the updates are, so they arrive while the updates run; the next ones come from the
newest parameters. With `in-turn`, whole episodes are collected, and then all updates that they make due are made.
"""

import contextlib
import errno
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ..agent import acting
from ..agent.learner import Learner, LearnerState
from ..config import AgentConfig, Schedule, Spaces, WorldConfig
from ..envs import Task, maze
from ..envs.names import domain_of
from ..replay import Episode
from ..replay.buffer import Replay, plan_replay, replay_rows
from ..replay.files import LARGEST, EpisodeFolder
from ..runs.checkpoint import Arrays, Checkpoints, unpack
from ..runs.files import drop_later
from ..runs.folder import RunError, RunFolder
from ..runs.metrics import Metrics
from ..untrusted import check_counters
from .callbacks import Callback, Evaluations, Log, Saver, Signals
from .collect import Collector, label_steps
from .progress import Progress
from .world import WorldInfo, agent_spaces, check_origin, make_collecting

EPISODE = 1000  # env steps for which a schedule counts its updates
IN_FLIGHT = 2  # blocks of updates that may wait for the device: more would only hold memory
COLLECT, SAMPLE = 1, 2  # random streams, beside EVALUATE of callbacks.py
ADAPTATION = 4  # sets few-shot adaptation's random streams apart from exploration's


@dataclass(frozen=True)
class Job:
    """What is to be trained, in which world, how long."""

    folder: RunFolder
    world: WorldConfig
    info: WorldInfo
    schedule: Schedule
    tasks: list[Task]
    seed: int
    goal: int
    """Env steps to collect in all."""
    environments: int
    random_until: int = 0
    """Env steps of random actions at the start."""
    head_start: int = 0
    """Updates that are due before anything is collected."""
    policy: str = "explorer"
    """Who collects, for the episodes' provenance."""
    collect_for: Task | None = None
    """The task that episodes are collected for, if any: they begin as its episodes do, with random streams of their own."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the run's folder that change once nothing that is there refuses the run any more."""

    @property
    def spaces(self) -> Spaces:
        """What the agent observes and does."""
        return agent_spaces(self.world, self.info, len(self.tasks))

    @property
    def collecting_seed(self) -> int:
        """Of the collected episodes. An adaptation never repeats the starts of an exploration with the same seed."""
        if self.collect_for is None:
            return self.seed
        return int(np.random.SeedSequence((ADAPTATION, self.seed)).generate_state(1)[0])

    @property
    def ratio(self) -> float:
        """Updates for each env step."""
        assert self.schedule.updates_per_episode is not None  # the phases take the preset's where it is none
        return self.schedule.updates_per_episode / EPISODE

    @property
    def block(self) -> int:
        """Updates in one compiled loop: about what one step of all environments makes due."""
        if not self.goal:  # all updates are due at once, and there are to be exactly so many
            most = self.schedule.block or 25
            return max(size for size in range(1, most + 1) if self.head_start % size == 0)
        if self.schedule.block:
            return self.schedule.block
        if self.schedule.collect == "in-turn":
            return 25
        return max(1, min(25, int(self.ratio * self.environments * self.world.action_repeat)))

    def due(self, env_steps: int) -> int:
        """Updates that should have been made after so many env steps."""
        if env_steps < self.random_until:
            return 0
        return self.head_start + int(self.ratio * env_steps)


@contextlib.contextmanager
def writing(folder: RunFolder) -> Iterator[None]:
    """Keeps other processes from writing a run, and says what to do about a full disk."""
    with folder.lock():
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise RunError(
                f"The disk is full ({error}). Everything written before is intact: make room for {folder.path}, and rerun "
                "the command to resume."
            ) from error


def make_replay(
    schedule: Schedule, spaces: Spaces, agent: AgentConfig, room: int, progress: Progress, streams: int = 1
) -> Replay:
    """An empty replay for so many steps, where they fit."""
    plan = plan_replay(schedule.memory, room, spaces)
    progress.say(plan.sentence)
    return Replay(plan.place, room, streams, spaces, agent.batch, agent.length)


def check_checkpoint(job: Job, arrays: Arrays, meta: dict[str, Any]) -> None:
    """Raises a `ValueError` for counters that no run of this job could have come to."""
    most = job.goal + job.environments * job.info.episode if job.goal else LARGEST
    updates = arrays["update"].item() if "update" in arrays else 0
    counters = dict.fromkeys(("env_steps", "rounds", "evaluations", "evaluated_at", "snapshot_at"), most)
    check_counters(meta, {"updates": updates} | counters)
    if meta["updates"] != updates:
        raise ValueError(f"its updates are {meta['updates']}, and its arrays are of update {updates}")
    if meta.get("evaluated_updates") != -1:  # none yet
        check_counters(meta, {"evaluated_updates": updates})


class Training:
    """A job under way: its agent, its replay, and where both are on disk."""

    def __init__(
        self, job: Job, learner: Learner, state: LearnerState, replay: Replay, metrics: Metrics, progress: Progress
    ) -> None:
        self.job, self.learner, self.state, self.replay = job, learner, state, replay
        self.metrics, self.progress = metrics, progress
        self.updates = int(state.update)
        self.rounds = 0
        self.steps_before = 0
        """Env steps of the episodes that were there at the start."""
        self.steps_at_checkpoint = 0
        self.episodes = EpisodeFolder(job.folder.episodes)
        self.in_turn = job.schedule.collect == "in-turn"
        self.collector: Collector | None = None
        domain = domain_of(job.world.world)
        self.coverage = maze.Coverage(domain) if domain in maze.LAYOUTS and job.folder.kind == "explore" else None
        """Of a maze that is explored."""
        key = jax.random.key(job.seed)
        self.key = key if job.collect_for is None else jax.random.fold_in(key, ADAPTATION)
        self.flight: deque[Any] = deque()
        """Blocks of updates that the device may still be making."""
        self.compiling = threading.Thread(target=self._compile_early, name="compiler")
        self.log, self.evaluations, self.saver, self.signals = Log(self), Evaluations(self), Saver(self), Signals(self)
        self.callbacks: list[Callback] = [self.log, self.evaluations, self.saver, self.signals]

    # ---- what was there before ----

    def meta(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the parameters."""
        counters = {name: getattr(each, name) for each in self.callbacks for name in each.counters}
        return {"env_steps": self.reached, "updates": self.updates, "rounds": self.rounds, **counters}

    def restore(self, meta: dict[str, Any]) -> None:
        """Continues where a checkpoint was made."""
        self.rounds, self.steps_at_checkpoint = meta["rounds"], meta["env_steps"]
        for each in self.callbacks:
            for name in each.counters:
                setattr(each, name, meta[name])

    def fill_replay(self) -> int:
        """Fills replay with the episodes on disk; the next number of an environment's episodes.

        Taking turns, episodes of rounds after the checkpoint wait for their round: learning continues exactly as if
        nothing had happened.
        """
        following = self.rounds
        for number, episode in self.episodes.load_all(self.rounds * self.job.environments if self.in_turn else None):
            self._add(number, episode)
            if not self.in_turn:
                following = max(following, episode.meta.get("episode", 0) + 1)
        return following

    def _add(self, number: int, episode: Episode) -> None:
        check_origin(self.episodes.path_of(number), episode, self.job.world)
        rewards = label_steps(episode, self.job.tasks, 0)
        rows = replay_rows(episode, self.learner.agent.spaces, rewards)
        self.replay.add_episode(rows, number % self.job.environments)
        if self.coverage:
            self.coverage.add(episode.state)
        self.steps_before += episode.env_steps

    # ---- the loop ----

    @property
    def env_steps(self) -> int:
        """Env steps so far, those of running episodes included."""
        return self.steps_before + (self.collector.env_steps if self.collector else 0)

    @property
    def reached(self) -> int:
        """Env steps that the agent has learned from, those of episodes included that ended unfinished with a process."""
        return max(self.env_steps, self.steps_at_checkpoint)

    def run(self) -> None:
        """Trains and collects until the goal is reached."""
        job = self.job
        with self.signals.handled(), contextlib.ExitStack() as stack:
            for each in self.callbacks:
                stack.callback(each.close)
            stack.callback(self._stop_collecting)
            self.compiling.start()
            stack.callback(self.compiling.join)
            following = self.fill_replay()
            job.folder.record_start(sys.argv)
            if job.settings:
                job.folder.change_settings({**job.folder.settings, **job.settings})
            self._train_all()
            self._on_step_end()  # a killed run may have come to its updates, but not to what follows them
            if self.in_turn:
                self._in_turn()
            elif self.reached < job.goal:
                if lost := self.reached - self.env_steps:
                    self.progress.say(f"{lost:,} env steps were of unfinished episodes: they are collected anew.")
                self._overlap(self._start_collecting(following))
            self._conclude()

    def _overlap(self, collector: Collector) -> None:
        """Steps all environments while the device trains."""
        step = 0
        collector.reset()
        actions = self._act(collector, step)
        while self.env_steps < self.job.goal:
            self._train_all()
            collector.send(np.asarray(actions))
            collector.receive()
            step += 1
            actions = self._act(collector, step)
            self._on_step_end()
        self._train_all()

    def _in_turn(self) -> None:
        """Collects an episode in every environment, then trains."""
        while self.env_steps < self.job.goal:
            self._collect_round()
            self.rounds += 1
            self._train_all()
            self._on_step_end()

    def _on_step_end(self) -> None:
        if self.collector:
            self.collector.check_writes()
        self.show()
        for each in self.callbacks:
            each.on_step_end()

    def _conclude(self) -> None:
        """The end: a last evaluation, a snapshot and a checkpoint."""
        self.evaluations.finish()
        if self.saver.snapshot_at < self.reached or not self.saver.snapshots.steps():
            self.saver.snapshot(self.reached)
        self.saver.save()
        if self.evaluations.evaluated_updates != self.updates:
            self.evaluations.start()
            self.evaluations.finish()
            self.saver.save()

    def show(self) -> None:
        """Tells how far it is."""
        goal = max(self.job.goal, self.env_steps)
        self.progress.show(self.env_steps, goal, self.updates, self.job.due(goal))

    # ---- collecting ----

    def _start_collecting(self, first_episode: int) -> Collector:
        job = self.job
        self.collector = Collector(
            make_collecting(job.world, job.environments, job.collecting_seed, first_episode, task=job.collect_for),
            self.replay, self.episodes, job.tasks, job.world, job.info, self.learner.agent.spaces, job.collecting_seed,
            piece=None if self.in_turn else self.learner.agent.config.length, coverage=self.coverage,
        )  # fmt: skip
        self.carried = self.learner.carry(job.environments)
        return self.collector

    def _stop_collecting(self) -> None:
        if self.collector:
            self.collector.close()

    def _collect_round(self) -> None:
        """One episode in every environment."""
        first, count = self.rounds * self.job.environments, self.job.environments
        if self.collector is None:
            stored = dict(self.episodes.load_all(first + count, first=first))
            if len(stored) == count:  # a killed run had collected all of them: they need not be played again
                for number, episode in stored.items():
                    self._add(number, episode)
                return
        collector, step = self.collector or self._start_collecting(self.rounds), 0
        collector.reset(self.rounds)
        before = collector.finished_episodes
        while collector.finished_episodes < before + count:
            collector.send(np.asarray(self._act(collector, self.rounds, step)))
            collector.receive()
            self.show()
            step += 1
            if collector.worker_restarted:  # its process died: the round is played again, as if nothing had happened
                collector.reset(self.rounds)
                step = 0
        collector.check_writes(wait=True)

    def _act(self, collector: Collector, *moment: int) -> Float[Array, "environments action"]:
        """Asks for the next actions, without waiting for them."""
        key = jax.random.fold_in(self.key, COLLECT)
        for number in moment:
            key = jax.random.fold_in(key, number)
        random = self.env_steps < self.job.random_until
        uniform = self.learner.agent.objective.collector == "uniform"
        collector.policy = "random" if random or uniform else self.job.policy
        collector.notes = {"updates": self.updates, "run_env_steps": self.env_steps}
        if random:
            actions, self.carried = acting.act_uniformly(self.learner.agent, self.carried, key)
        else:
            obs, is_first = collector.observation, collector.is_first
            actions, self.carried = self.learner.act(self.state, self.carried, obs, is_first, key, "noise")
        return actions

    # ---- learning ----

    def _compile_early(self) -> None:
        """Compiles updates, if any are to come, while episodes are read, environments start and first steps are taken."""
        if self.job.due(self.job.goal) - self.updates >= self.job.block:
            with contextlib.suppress(Exception):  # the first update will meet it again, where it is heard
                form = jax.eval_shape(self.learner.init, self.key)
                self.learner.compile_block(form, self.replay.batches(self.job.block))

    def _due(self) -> int:
        if not self.replay.steps:
            return 0  # many environments have taken the first steps together, but none has flushed them yet
        steps = self.reached if self.steps_before else self.env_steps  # without an episode, replay is empty after a kill
        return self.job.due(steps) - self.updates

    def _train_all(self) -> None:
        """Makes all the updates that are due."""
        while self._due() >= self.job.block:
            self._update()
            self.show()
            for each in self.callbacks:
                each.on_updates()

    def _update(self) -> None:
        """Starts a block of updates on the device."""
        if self.compiling.is_alive():
            self.progress.say("Waiting for the compiler; what it makes is kept for the next start ...")
            self.compiling.join()
        while len(self.flight) >= IN_FLIGHT:
            jax.block_until_ready(self.flight.popleft())
        key = jax.random.fold_in(jax.random.fold_in(self.key, SAMPLE), self.updates)
        batches = self.replay.sample(key, self.job.block)
        self.state, metrics = self.learner.update_block(self.state, batches)
        self.updates += self.job.block
        self.flight.append(metrics["update"])
        self.log.unlogged.append(metrics)


@contextlib.contextmanager
def open_training(
    job: Job,
    learner: Learner,
    replay: Replay,
    progress: Progress,
    wandb: bool = False,
    start: Callable[[], LearnerState] | None = None,
) -> Iterator[Training]:
    """A training that resumes from the folder's last checkpoint, or begins with what `start` makes, or a fresh agent."""
    key = jax.random.fold_in(jax.random.key(job.seed), 0)
    arrays, meta = Checkpoints(job.folder.checkpoints).load_latest(partial(check_checkpoint, job)) or (None, {})
    if arrays is None:
        state = start() if start else learner.init(key)
        if job.goal and (there := len(EpisodeFolder(job.folder.episodes, read_only=True).numbers())):
            progress.say(f"There is no checkpoint: learning starts anew, with the {there:,} episodes that are there.")
    else:
        state = jax.device_put(unpack(jax.eval_shape(learner.init, key), arrays))
        progress.say(f"Resuming at update {int(meta['updates']):,}, env step {int(meta['env_steps']):,}.")
    with Metrics(job.folder, meta.get("env_steps", 0), wandb, meta.get("updates", 0)) as metrics:
        # What a killed process evaluated after its last checkpoint is evaluated again.
        drop_later(job.folder.evaluations_file, {"evaluation": meta.get("evaluations", 0) - 1})
        training = Training(job, learner, state, replay, metrics, progress)
        progress.coverage = training.coverage
        if meta:
            training.restore(meta)
        yield training
