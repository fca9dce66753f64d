"""What happens beside training: metrics, evaluations, checkpoints and snapshots, and the stop that a signal asks for.

`on_updates` is called after a block of updates; `on_step_end` after a step of all environments, or a round of episodes,
and the updates that it made due. `Training` lists its callbacks in the order in which they act.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..agent.learner import check_finite
from ..envs import VectorEnv
from ..runs.checkpoint import Checkpoints, pack, pack_params
from ..runs.files import append_line
from .evaluate import Scores, acting_copy, evaluate_tasks
from .watch import Preview, preview_agent, show_episode, show_preview
from .world import make_for_tasks

if TYPE_CHECKING:
    from .training import Training

LOG_EVERY = 100  # updates between lines of metrics
DIVERGED = 10  # times what rewards allow
EVALUATE = 3  # a random stream, as COLLECT and SAMPLE in training.py
EVALUATION_SEED = 1_000_003  # evaluations never see the initial states of collected episodes


class Stopped(KeyboardInterrupt):
    """The run was asked to stop by a signal, or nobody reads what it says; everything was saved."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number
        """The exit status by which a shell knows the signal: 130 for Ctrl-C."""


class Callback:
    """Something that happens beside training. What it counts is kept in checkpoints."""

    counters: tuple[str, ...] = ()

    def __init__(self, training: "Training") -> None:
        self.training, self.job = training, training.job

    def on_updates(self) -> None:
        """After a block of updates."""

    def on_step_end(self) -> None:
        """After a step of all environments, or a round, and the updates that it made due."""
        self.on_updates()

    def close(self) -> None:
        """At the end, whatever that was."""


class Log(Callback):
    """Metrics of updates, a line for each hundred of them."""

    def __init__(self, training: "Training") -> None:
        super().__init__(training)
        self.unlogged: list[Any] = []
        """Metrics of blocks of updates, which the device may still be making."""
        self.last: dict[str, float] = {}
        self._ended: set[str] = set()
        """Tasks whose losses were not finite."""

    def on_updates(self) -> None:
        self.write()

    def write(self, all_of_it: bool = False) -> None:
        """Writes the metrics of updates that are over: asking for newer ones would leave the device idle."""
        training = self.training
        over = self.unlogged[: None if all_of_it else -len(training.flight) or None]
        if not over or (len(over) * self.job.block < LOG_EVERY and not all_of_it):
            return
        del self.unlogged[: len(over)]
        fetched = jax.device_get(over)
        together = {name: np.concatenate([each[name] for each in fetched]) for name in fetched[0]}
        for index in sorted(check_finite(together) - self._ended):
            self._ended.add(index)
            ended = f"Task {self._named(index)} has ended: its loss was not finite"
            training.progress.say(f"{ended}. Everything else learns on.")
        shown = {name: value for name, value in together.items() if not name.endswith("/finite")}
        values = {self._named(name): float(np.mean(value)) for name, value in shown.items()}
        values |= {"update": float(together["update"][-1]) + 1, "episodes": training.replay.episodes}
        values |= {"coverage": training.coverage.share} if training.coverage else {}
        training.metrics.write(training.reached, values)
        self.last = values

    def _named(self, metric: str) -> str:
        """`task 0/reward` under the task's own name."""
        head, _, rest = metric.partition("/")
        if head.startswith("task "):
            head = self.job.tasks[int(head.removeprefix("task "))].name
        return f"{head}/{rest}" if rest else head


class Evaluations(Callback):
    """Episodes of all tasks with the agent as it is, a step at a time beside training; and a preview of what it predicts."""

    counters = ("evaluations", "evaluated_at", "evaluated_updates")

    def __init__(self, training: "Training") -> None:
        super().__init__(training)
        self.evaluations = self.evaluated_at = 0
        self.evaluated_updates = -1
        self._playing: Generator[None, None, list[Scores]] | None = None
        self._updates = 0
        self._preview = Preview(0)
        self._envs: VectorEnv | None = None
        self._began = time.monotonic()

    def on_updates(self) -> None:
        pass  # only environments that step leave the device time for an evaluation

    def on_step_end(self) -> None:
        every, reached, in_turn = self.job.schedule.evaluate_every, self.training.reached, self.training.in_turn
        ending = reached >= self.job.goal and not in_turn  # the last one comes after the last updates
        if every and self._playing is None and reached - self.evaluated_at >= every and self.training.updates and not ending:
            self.start()
        if in_turn:
            self.finish()
        else:
            self._play()

    def start(self) -> None:
        """Begins an evaluation of the agent as it is now."""
        training, self._updates = self.training, self.training.updates
        self._preview = preview_agent(
            training.learner.agent, training.state, training.replay, self.job.info.frames, training.reached
        )
        self._playing = self._episodes()

    def finish(self) -> None:
        """Plays on to the end, if one is under way."""
        while self._playing is not None:
            self._play()
            self.training.show()
            self.training.signals.on_updates()

    def _episodes(self) -> Generator[None, None, list[Scores]]:
        tasks, training, count = self.job.tasks, self.training, self.job.schedule.evaluate_episodes
        if not tasks or not count:
            yield  # once, while the device makes the preview
            return []
        key = jax.random.fold_in(jax.random.fold_in(training.key, EVALUATE), self.evaluations)
        state, env_steps = acting_copy(training.state), training.reached
        if self._envs is None:
            self._envs = make_for_tasks(self.job.world, tasks, count, self.job.seed + EVALUATION_SEED)
        return (
            yield from evaluate_tasks(
                training.learner, state, self._envs, tasks, range(len(tasks)), key, env_steps, frames=True,
                episode=self.evaluations,
            )
        )  # fmt: skip

    def _play(self) -> None:
        """One step of the evaluation that is under way."""
        if self._playing is not None:
            try:
                next(self._playing)
            except StopIteration as end:
                self.keep(end.value)

    def keep(self, scores: list[Scores]) -> None:
        """Writes what came of an evaluation."""
        training, env_steps, fps = self.training, self._preview.env_steps, self.job.info.fps
        seconds = round(time.monotonic() - self._began, 1)
        more = {"evaluation": self.evaluations, "updates": self._updates, "seconds": seconds}
        for each in scores:
            append_line(self.job.folder.evaluations_file, each.summary() | more)
            training.progress.scores[each.task] = each.mean
            show_episode(training.metrics, each, fps)
        show_preview(training.metrics, self._preview, fps)
        every = self.job.schedule.evaluate_every
        self.evaluated_at = env_steps // every * every if every else env_steps
        self.evaluated_updates, self._playing = self._updates, None
        self.evaluations += 1
        if scores:
            training.metrics.write(env_steps, {f"score/{each.task}": each.mean for each in scores})
            own = " of the adaptation" if self.job.folder.kind == "adapt" else ""  # counted from 0
            training.progress.say(f"env step {env_steps:,}{own}: " + "; ".join(str(each) for each in scores))
            self.check_value_divergence()

    def check_value_divergence(self) -> None:
        """Says which critics expect more than rewards can add up to."""
        for name in ["explorer", *(task.name for task in self.job.tasks)]:
            value, limit = (self.training.log.last.get(f"{name}/{what}", 0.0) for what in ("value", "value_limit"))
            if limit > 1e-6 and abs(value) > DIVERGED * limit:  # a smaller one: nothing was paid yet
                self.training.progress.say(
                    f"The critic of {name} has diverged: it expects returns of {value:.2g}, and rewards allow {limit:.2g}. "
                    f"Scores of {name} mean little from here on; the world model is not affected, and plan2explore adapt "
                    "learns a task anew."
                )

    def close(self) -> None:
        if self._envs:
            self._envs.close()


class Saver(Callback):
    """Checkpoints every minute or so, from which a killed run resumes; snapshots by env steps, to adapt from."""

    counters = ("snapshot_at",)

    def __init__(self, training: "Training") -> None:
        super().__init__(training)
        self.snapshot_at = 0
        self.checkpoints = Checkpoints(self.job.folder.checkpoints)
        self.snapshots = Checkpoints(self.job.folder.snapshots, keep=None)
        self._saved = time.monotonic()

    def on_updates(self) -> None:
        if time.monotonic() - self._saved > self.job.schedule.checkpoint_seconds:
            self.save()

    def on_step_end(self) -> None:
        every, reached = self.job.schedule.snapshot_every, self.training.reached
        if reached - self.snapshot_at >= every and self.training.updates:
            self.snapshot(reached // every * every)
        self.on_updates()

    def save(self) -> None:
        """A checkpoint, with all that belongs to it on disk: episodes, and metrics of its updates."""
        if self.training.collector:
            self.training.collector.check_writes(wait=True)
        self.training.log.write(all_of_it=True)
        self.training.metrics.flush()
        self.checkpoints.save_soon(self.training.updates, pack(self.training.state), self.training.meta())
        self._saved = time.monotonic()

    def snapshot(self, env_steps: int) -> None:
        """Keeps the parameters as they are now."""
        self.snapshot_at = env_steps
        self.snapshots.save(env_steps, pack_params(self.training.state.networks), self.training.meta())

    def close(self) -> None:
        self.checkpoints.wait()


class Signals(Callback):
    """Ctrl-C and a polite kill are obeyed between steps; a second one ends at once."""

    def __init__(self, training: "Training") -> None:
        super().__init__(training)
        self.stop: int | None = None
        """The signal that asked for it."""

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Signals are noted meanwhile, if this is the thread that gets them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: Any) -> None:
            if self.stop is not None:  # nothing can interrupt the compiler, so nothing is waited for
                with contextlib.suppress(Exception):
                    self.training.progress.close()
                os._exit(128 + number)
            self.stop = number
            busy = ", once the compiler is done" if self.training.compiling.is_alive() else ""
            with contextlib.suppress(RuntimeError):  # the signal came in the middle of another line
                self.training.progress.say(f"Stopping: saving everything first{busy} (a second Ctrl-C stops at once) ...")

        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def on_updates(self) -> None:
        """Saves everything and stops, if a signal asked for it."""
        training, stop = self.training, self.stop or (signal.SIGPIPE if self.training.progress.unheard else None)
        if stop is None:
            return
        training.saver.save()
        if self.job.folder.kind == "explore" and training.updates:  # for whoever wants to adapt it as it is
            training.saver.snapshot(training.reached)
        training.saver.close()
        training.progress.say(f"Saved at env step {training.reached:,}: rerun the command to resume.")
        raise Stopped(stop)
