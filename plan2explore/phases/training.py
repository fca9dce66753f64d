"""Collecting and learning side by side: what exploration and few-shot adaptation have in common.

An update is due for every so many env steps. With `overlap`, all environments step while the device trains:

    the device   | act | updates that are due ............ | act | updates that are due ............ | act
    the cores    |     | step, draw, keep, evaluate |       |     | step, draw, keep, evaluate |

Actions are asked for before the updates are, so they arrive while the updates run; the next ones come from the
newest parameters. With `in-turn`, whole episodes are collected, and then all updates that they make due are made.
"""

import contextlib
import errno
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ..agent import acting
from ..agent.learner import Learner, LearnerState, check_finite
from ..config import Schedule, WorldConfig
from ..envs import Task, VectorEnv, maze
from ..replay import Episode
from ..replay.buffer import Replay, replay_rows
from ..replay.files import LARGEST, EpisodeFolder
from ..runs.checkpoint import Arrays, Checkpoints, pack, pack_params
from ..runs.files import append_line
from ..runs.folder import RunError, RunFolder
from ..runs.metrics import Metrics
from ..untrusted import check_counters
from .collect import Collector, label_steps
from .evaluate import Scores, acting_copy, evaluate_tasks
from .progress import Progress
from .watch import Look, look_inside, rehearse_look, show_episode, show_look
from .world import WorldInfo, check_origin, domain_of, make_collecting, make_for_tasks

EPISODE = 1000  # env steps for which a schedule counts its updates
LOG_EVERY = 100  # updates between lines of metrics
IN_FLIGHT = 2  # blocks of updates that may wait for the device: more would only hold memory
COLLECT, SAMPLE, EVALUATE = 1, 2, 3  # independent streams of chance
Evaluation = Generator[None, None, list[Scores]]
DIVERGED = 10  # times what rewards allow
ADAPTATION = 4  # sets few-shot adaptation's random streams apart from exploration's
EVALUATION_SEED = 1_000_003  # evaluations never see the initial states of collected episodes


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


class Stopped(KeyboardInterrupt):
    """The run was asked to stop by a signal, or nobody reads what it says; everything was saved."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number
        """The exit status by which a shell knows the signal: 130 for Ctrl-C."""


@contextlib.contextmanager
def disk_explained(path: Path) -> Iterator[None]:
    """A full disk is no riddle: says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise RunError(
            f"The disk is full ({error}). Everything written before is intact: make room for {path}, and rerun "
            "the command to resume."
        ) from error


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


def play_nothing() -> Evaluation:
    """The evaluation of a run without tasks: it pauses once, while the device is looking into the agent."""
    yield
    return []


class Training:
    """A job under way: its agent, its replay, and where both are on disk.

    A fresh agent may be given while it is still made: its program is compiled beside that of the updates.
    """

    def __init__(
        self,
        job: Job,
        learner: Learner,
        state: LearnerState | Future[LearnerState],
        replay: Replay,
        metrics: Metrics,
        progress: Progress,
    ) -> None:
        self.job, self.learner, self._state, self.replay = job, learner, state, replay
        self.metrics, self.progress = metrics, progress
        self.updates = 0 if isinstance(state, Future) else int(state.update)
        self.rounds = 0
        self.evaluations = 0
        self.scores: list[Scores] = []
        """Of the last evaluation."""
        self.steps_before = 0
        """Env steps of the episodes that were there at the start."""
        self.steps_at_checkpoint = 0
        self.episodes = EpisodeFolder(job.folder.episodes)
        self.checkpoints = Checkpoints(job.folder.checkpoints)
        self.snapshots = Checkpoints(job.folder.snapshots, keep=None)
        self.collector: Collector | None = None
        domain = domain_of(job.world.world)
        self.coverage = maze.Coverage(domain) if domain in maze.LAYOUTS and job.folder.kind == "explore" else None
        """Of a maze that is explored."""
        key = jax.random.key(job.seed)
        self._key = key if job.collect_for is None else jax.random.fold_in(key, ADAPTATION)
        self._flight: deque[Any] = deque()
        self._unlogged: list[Any] = []
        self._logged: dict[str, float] = {}
        self._ended: set[str] = set()
        """Tasks whose losses were not finite."""
        self._evaluation: Evaluation | None = None
        self._evaluating_updates = 0
        self._rehearsed: LearnerState | None = None
        self._look = Look(0)
        self._evaluation_worlds: VectorEnv | None = None
        self._evaluated_at = self._snapshot_at = 0
        self._evaluated_updates = -1
        self._saved = self._began = time.monotonic()
        self._stop: int | None = None
        self._ending = threading.Event()
        """Nothing more is to be prepared."""
        self._compiling = threading.Thread(target=self._compile_early, name="compiler")
        self._preparing = threading.Thread(target=self._prepare_evaluation, name="evaluation")
        self._vector_steps = 0

    @property
    def state(self) -> LearnerState:
        """The agent. Whoever asks for one that is still made waits for it."""
        if isinstance(self._state, Future):
            self._state = self._state.result()
        return self._state

    @state.setter
    def state(self, state: LearnerState) -> None:
        self._state = state

    # ---- what was there before ----

    def meta(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the parameters."""
        return {
            "env_steps": self.reached,
            "updates": self.updates,
            "rounds": self.rounds,
            "evaluations": self.evaluations,
            "evaluated_at": self._evaluated_at,
            "evaluated_updates": self._evaluated_updates,
            "snapshot_at": self._snapshot_at,
        }

    def restore(self, meta: dict[str, Any]) -> None:
        """Goes on where a checkpoint was made."""
        self.rounds, self.evaluations = meta["rounds"], meta["evaluations"]
        self._evaluated_at, self._snapshot_at = meta["evaluated_at"], meta["snapshot_at"]
        self._evaluated_updates, self.steps_at_checkpoint = meta["evaluated_updates"], meta["env_steps"]

    def remember(self) -> int:
        """Fills replay with the episodes on disk; the next number of an environment's episodes.

        Taking turns, episodes of rounds after the checkpoint wait for their round: learning continues exactly as if
        nothing had happened.
        """
        in_turn = self.job.schedule.collect == "in-turn"
        up_to = self.rounds * self.job.environments if in_turn else None
        following = self.rounds
        for number, episode in self.episodes.load_all(up_to):
            self._add(number, episode)
            if not in_turn:
                following = max(following, int(episode.meta.get("episode", 0)) + 1)
        return following

    def _add(self, number: int, episode: Episode) -> None:
        check_origin(self.episodes.path_of(number), episode, self.job.world)
        rewards = label_steps(episode, self.job.tasks, 0)
        rows = replay_rows(episode, self.learner.agent.spaces, rewards)
        self.replay.add_episode(rows, number % self.job.environments)
        if self.coverage:
            self.coverage.add(episode.state)
        self.steps_before += episode.env_steps

    # ---- the work ----

    @property
    def env_steps(self) -> int:
        """Env steps so far, those of running episodes included."""
        return self.steps_before + (self.collector.env_steps if self.collector else 0)

    @property
    def reached(self) -> int:
        """Env steps that the agent has learned from, those of episodes included that ended unfinished with a process."""
        return max(self.env_steps, self.steps_at_checkpoint)

    def run(self, begin: Callable[[], None]) -> list[Scores]:
        """Trains and collects until the goal is reached; the scores of the last evaluation.

        `begin` is called once nothing that is there can refuse the run any more: it may change what is kept of it.
        """
        with self._told_to_stop(), contextlib.ExitStack() as stack:
            stack.callback(self.checkpoints.wait)
            stack.callback(self._close)
            for thread in (self._compiling, self._preparing):
                thread.start()
                stack.callback(thread.join)
            stack.callback(self._ending.set)
            following = self.remember()
            begin()
            self._train_all()
            self.on_step_end()  # a killed run may have come to its updates, but not to what follows them
            if self.job.schedule.collect == "in-turn":
                self._in_turn()
            elif self.reached < self.job.goal:
                if lost := self.reached - self.env_steps:
                    self.progress.say(f"{lost:,} env steps were of unfinished episodes: they are collected anew.")
                self._start_collecting(following)
                self._overlap()
            self._conclude()
        return self.scores

    @property
    def _is_to_learn(self) -> bool:
        return self.job.due(self.job.goal) - self.updates >= self.job.block

    def _compile_early(self) -> None:
        """Compiles updates, if any are to come, while episodes are read, environments start and first steps are taken."""
        if self._is_to_learn:
            with contextlib.suppress(Exception):  # the first update will meet it again, where it is heard
                form = jax.eval_shape(self.learner.init, self._key)
                self.learner.compile_block(form, self.replay.batches(self.job.block))
                self._rehearsed = acting_copy(self.state, "intrinsic")  # before updates, which wait for this thread

    def _prepare_evaluation(self) -> None:
        """Rehearses an evaluation: at the first one the device would wait for its environments and for the compiler."""
        self._compiling.join()  # what is needed first has the cores to itself
        state, self._rehearsed = self._rehearsed, None  # its memory is free again afterwards
        if state is None or not self.job.goal:  # then there is one evaluation, at the end
            return
        if self._plays and not self._ending.is_set():
            try:
                next(self._evaluate(state, jax.random.key(0)))
            except Exception:  # the first evaluation will meet it again, where it is heard
                worlds, self._evaluation_worlds = self._evaluation_worlds, None
                if worlds:
                    worlds.close()
        if not self._ending.is_set():
            with contextlib.suppress(Exception):  # likewise
                rehearse_look(self.learner.agent, state, self.replay, self.job.info.frames)

    def _start_collecting(self, first_episode: int) -> None:
        job = self.job
        overlap = job.schedule.collect == "overlap"
        self.collector = Collector(
            make_collecting(job.world, job.environments, job.collecting_seed, first_episode, task=job.collect_for),
            self.replay, self.episodes, job.tasks, job.world, job.info, self.learner.agent.spaces, job.collecting_seed,
            piece=self.learner.agent.config.length if overlap else None, coverage=self.coverage,
        )  # fmt: skip
        self.carried = self.learner.carry(job.environments)

    def _overlap(self) -> None:
        assert self.collector is not None
        self.collector.reset()
        actions = self._act(self._vector_steps)
        while self.env_steps < self.job.goal:
            self._train_all()
            self.collector.send(np.asarray(actions))
            self.collector.receive()
            self._vector_steps += 1
            actions = self._act(self._vector_steps)
            self.on_step_end()
        self._train_all()

    def _in_turn(self) -> None:
        while self.env_steps < self.job.goal:
            self._collect_round()
            self.rounds += 1
            self._train_all()
            self.on_step_end()

    def _collect_round(self) -> None:
        """One episode in every environment."""
        if self.collector is None:
            stored = self._stored_round()
            if stored:
                for number, episode in stored.items():
                    self._add(number, episode)
                return
            self._start_collecting(self.rounds)
        collector, count, step = self.collector, self.job.environments, 0
        assert collector is not None
        collector.reset(self.rounds)
        before = collector.finished_episodes
        while collector.finished_episodes < before + count:
            collector.send(np.asarray(self._act(self.rounds, step)))
            collector.receive()
            self._show()
            step += 1
            if collector.worker_restarted:  # its process died: the round is played again, as if nothing had happened
                collector.reset(self.rounds)
                step = 0
        collector.check_writes(wait=True)

    def _stored_round(self) -> dict[int, Episode]:
        """The episodes of this round, if a killed run had collected all of them: they need not be played again."""
        first, count = self.rounds * self.job.environments, self.job.environments
        found = dict(self.episodes.load_all(first + count, first=first))
        return found if len(found) == count else {}

    def _act(self, *moment: int) -> Float[Array, "environments action"]:
        """Asks for the next actions, without waiting for them."""
        assert self.collector is not None
        key = jax.random.fold_in(self._key, COLLECT)
        for number in moment:
            key = jax.random.fold_in(key, number)
        random = self.env_steps < self.job.random_until
        self.collector.policy = "random" if random or self._collects_at_random() else self.job.policy
        self.collector.notes = {"updates": self.updates, "run_env_steps": self.env_steps}
        if random:
            actions, self.carried = acting.act_uniformly(self.learner.agent, self.carried, key)
        else:
            obs, is_first = self.collector.observation, self.collector.is_first
            actions, self.carried = self.learner.act(self.state, self.carried, obs, is_first, key, "noise")
        return actions

    def _collects_at_random(self) -> bool:
        return self.learner.agent.objective.collector == "uniform"

    # ---- learning ----

    def _due(self) -> int:
        if not self.replay.steps:
            return 0  # many environments have taken the first steps together, but none has flushed them yet
        steps = self.reached if self.steps_before else self.env_steps  # without an episode, replay is empty after a kill
        return self.job.due(steps) - self.updates

    def _train_all(self) -> None:
        """Makes all the updates that are due."""
        while self._due() >= self.job.block:
            self._update()
            self._log()
            self._save_sometimes()
            self._show()
            self.handle_signal()

    def _update(self) -> None:
        """Starts a block of updates on the device."""
        if self._compiling.is_alive():
            self.progress.say("Waiting for the compiler; what it makes is kept for the next start ...")
            self._compiling.join()
        while len(self._flight) >= IN_FLIGHT:
            jax.block_until_ready(self._flight.popleft())
        key = jax.random.fold_in(jax.random.fold_in(self._key, SAMPLE), self.updates)
        batches = self.replay.sample(key, self.job.block)
        self.state, metrics = self.learner.update_block(self.state, batches)
        self.updates += self.job.block
        self._flight.append(metrics["update"])
        self._unlogged.append(metrics)

    def _log(self, all_of_it: bool = False) -> None:
        """Writes the metrics of updates that are over: asking for newer ones would leave the device idle."""
        over = self._unlogged[: None if all_of_it else -len(self._flight) or None]
        if not over or (len(over) * self.job.block < LOG_EVERY and not all_of_it):
            return
        del self._unlogged[: len(over)]
        fetched = jax.device_get(over)
        together = {name: np.concatenate([each[name] for each in fetched]) for name in fetched[0]}
        for index in sorted(check_finite(together) - self._ended):
            self._ended.add(index)
            self.progress.say(f"Task {self._named(index)} has ended: its loss was not finite. Everything else learns on.")
        shown = {name: value for name, value in together.items() if not name.endswith("/finite")}
        values = {self._named(name): float(np.mean(value)) for name, value in shown.items()}
        values |= {"update": float(together["update"][-1]) + 1, "episodes": self.replay.episodes}
        values |= {"coverage": self.coverage.share} if self.coverage else {}
        self.metrics.write(self.reached, values)
        self._logged = values

    def _named(self, metric: str) -> str:
        """`task 0/reward` under the task's own name."""
        head, _, rest = metric.partition("/")
        if head.startswith("task "):
            head = self.job.tasks[int(head.removeprefix("task "))].name
        return f"{head}/{rest}" if rest else head

    # ---- between steps ----

    def on_step_end(self) -> None:
        """Logs, evaluates, keeps snapshots and checkpoints where they are due, and stops if asked to."""
        if self.collector:
            self.collector.check_writes()
        self._log()
        self._evaluate_sometimes()
        if self.reached - self._snapshot_at >= self.job.schedule.snapshot_every and self.updates:
            self._snapshot(self.reached // self.job.schedule.snapshot_every * self.job.schedule.snapshot_every)
        self._save_sometimes()
        self._show()
        self.handle_signal()

    def _evaluate_sometimes(self) -> None:
        every, in_turn = self.job.schedule.evaluate_every, self.job.schedule.collect == "in-turn"
        ending = self.reached >= self.job.goal and not in_turn  # the last one comes after the last updates
        due = every and self.reached - self._evaluated_at >= every and self.updates and not ending
        if self._evaluation is None and due:
            self._evaluation = self._start_evaluation()
        if in_turn:
            self._finish_evaluation()
        elif self._evaluation is not None:
            self._play_on(self._evaluation)

    def _finish_evaluation(self) -> None:
        while self._evaluation is not None:
            self._play_on(self._evaluation)
            self._show()
            self.handle_signal()

    def _play_on(self, evaluation: Evaluation) -> None:
        """One step of an evaluation."""
        try:
            next(evaluation)
        except StopIteration as end:
            self._keep_scores(end.value)

    def _start_evaluation(self) -> Evaluation:
        """An evaluation of all tasks with the agent as it is now, and a look into it."""
        self._preparing.join()
        self._evaluating_updates = self.updates
        self._look = look_inside(self.learner.agent, self.state, self.replay, self.job.info.frames, self.reached)
        if not self._plays:
            return play_nothing()
        key = jax.random.fold_in(jax.random.fold_in(self._key, EVALUATE), self.evaluations)
        return self._evaluate(acting_copy(self.state), key)

    def _evaluate(self, state: LearnerState, key: Any) -> Evaluation:
        """Plays one episode in every environment of the evaluation."""
        if self._evaluation_worlds is None:
            self._evaluation_worlds = self._make_evaluation_worlds()
        tasks, worlds, steps = self.job.tasks, self._evaluation_worlds, self.reached
        return evaluate_tasks(
            self.learner, state, worlds, tasks, range(len(tasks)), key, steps, pictures=True, episode=self.evaluations
        )

    @property
    def _plays(self) -> bool:
        """Whether an evaluation plays anything."""
        return bool(self.job.tasks and self.job.schedule.evaluate_episodes)

    def _make_evaluation_worlds(self) -> VectorEnv:
        job = self.job
        return make_for_tasks(job.world, job.tasks, job.schedule.evaluate_episodes, job.seed + EVALUATION_SEED)

    def _keep_scores(self, scores: list[Scores]) -> None:
        seconds = round(time.monotonic() - self._began, 1)
        more = {"evaluation": self.evaluations, "updates": self._evaluating_updates, "seconds": seconds}
        for each in scores:
            append_line(self.job.folder.evaluations_file, each.summary() | more)
            self.progress.scores[each.task] = each.mean
            show_episode(self.metrics, each, self.job.info.fps)
        show_look(self.metrics, self._look, self.job.info.fps)
        every, env_steps = self.job.schedule.evaluate_every, self._look.env_steps
        self._evaluated_at = env_steps // every * every if every else env_steps
        self._evaluated_updates = self._evaluating_updates
        self._evaluation = None
        self.evaluations += 1
        self.scores = scores
        if scores:
            self.metrics.write(env_steps, {f"score/{each.task}": each.mean for each in scores})
            own = " of the adaptation" if self.job.folder.kind == "adapt" else ""  # counted from 0
            self.progress.say(f"env step {env_steps:,}{own}: " + "; ".join(str(each) for each in scores))
            self.check_value_divergence()

    def check_value_divergence(self) -> None:
        """Says which critics expect more than rewards can add up to."""
        for name in ["explorer", *(task.name for task in self.job.tasks)]:
            value, limit = (self._logged.get(f"{name}/{what}", 0.0) for what in ("value", "value_limit"))
            if limit and abs(value) > DIVERGED * limit:
                self.progress.say(
                    f"The critic of {name} has diverged: it expects returns of {value:.2g}, and rewards allow {limit:.2g}. "
                    f"Scores of {name} mean little from here on; the world model is not affected, and plan2explore adapt "
                    "learns a task anew."
                )

    def _snapshot(self, env_steps: int) -> None:
        """Keeps the parameters as they are now, for adaptations to start from."""
        self._snapshot_at = env_steps
        self.snapshots.save(env_steps, pack_params(self.state.networks), self.meta())

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._saved > self.job.schedule.checkpoint_seconds:
            self._save()

    def _save(self) -> None:
        """A checkpoint: from here a killed run resumes."""
        if self.collector:
            self.collector.check_writes(wait=True)
        self._log(all_of_it=True)  # what is in the checkpoint is not logged again
        self.metrics.flush()
        self.checkpoints.save_soon(self.updates, pack(self.state), self.meta())
        self._saved = time.monotonic()

    def _show(self) -> None:
        job = self.job
        goal = max(job.goal, self.env_steps)
        self.progress.coverage = self.coverage.share if self.coverage else None
        self.progress.show(self.env_steps, goal, self.updates, job.due(goal))

    def _conclude(self) -> None:
        """The end: a last evaluation, a snapshot and a checkpoint."""
        self._finish_evaluation()
        self._log(all_of_it=True)
        if self._snapshot_at < self.reached or not self.snapshots.steps():
            self._snapshot(self.reached)
        self._save()
        if self._evaluated_updates != self.updates:
            self._evaluation = self._start_evaluation()
            self._finish_evaluation()
            self._save()
        self.checkpoints.wait()

    # ---- ends ----

    @contextlib.contextmanager
    def _told_to_stop(self) -> Iterator[None]:
        """Ctrl-C and a polite kill are obeyed between steps; a second one ends at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: Any) -> None:
            if self._stop is not None:  # nothing can interrupt the compiler, so nothing is waited for
                with contextlib.suppress(Exception):
                    self.progress.close()
                os._exit(128 + number)
            self._stop = number
            busy = ", once the compiler is done" if self._compiling.is_alive() else ""
            with contextlib.suppress(RuntimeError):  # the signal came in the middle of another line
                self.progress.say(f"Stopping: saving everything first{busy} (a second Ctrl-C stops at once) ...")

        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def handle_signal(self) -> None:
        """Saves everything and stops, if a signal asked for it."""
        stop = self._stop or (signal.SIGPIPE if self.progress.unheard else None)
        if stop is None:
            return
        self._log(all_of_it=True)
        self._save()
        if self.job.folder.kind == "explore" and self.updates:  # for whoever wants to adapt it as it is
            self.snapshots.save(self.reached, pack_params(self.state.networks), self.meta())
        self.checkpoints.wait()
        self.progress.say(f"Saved at env step {self.reached:,}: rerun the command to resume.")
        raise Stopped(stop)

    def _close(self) -> None:
        if self.collector:
            self.collector.close()
        if self._evaluation_worlds:
            self._evaluation_worlds.close()
