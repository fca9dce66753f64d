"""Many environments at once: worker processes that step batches of them through one block of shared memory.

The workers' side, the memory and the messages are in `worker.py`. Workers are plain subprocesses instead of
`multiprocessing` ones, and the memory is a file without a name: docs/decisions.md says why.
"""

import contextlib
import itertools
import logging
import os
import pickle
import signal
import subprocess
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, Self

import cloudpickle
import numpy as np

from .base import EnvError
from .registered import registered
from .worker import (
    GRACE,
    LEFT_TO_PARENT,
    RESET,
    STEP,
    Batch,
    EnvGroup,
    Failure,
    HungUp,
    Make,
    Spec,
    map_arrays,
    python_command,
    receive,
)

log = logging.getLogger("plan2explore.envs")

DEATHS_IN_A_ROW = 3  # a worker that dies this often without finishing one step would do so for ever
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")}
BOOT = "from plan2explore.envs.worker import serve; serve(*map(int, sys.argv[1:]))"


class WorkerError(RuntimeError):
    """An environment raised an exception in its worker, or a worker cannot be kept alive."""


class Worker:
    """The parent's end of one worker process, which starts at once."""

    process: subprocess.Popen[bytes]
    channel: Connection

    def __init__(self, number: int, group: EnvGroup, memory: int) -> None:
        self.number, self.group, self.memory = number, group, memory
        self.deaths = 0  # since it last finished a step
        self.start()

    def start(self) -> None:
        """Starts the process and tells it what to do."""
        self.channel, theirs = Pipe()
        # The child inherits the mask: no Ctrl-C can hit it between its start and its own call to ignore it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_PARENT)
        try:
            self.process = subprocess.Popen(
                python_command(BOOT, theirs.fileno(), self.memory, os.getpid()),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), self.memory],
                env={**os.environ, **ONE_THREAD},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()
        self.send(cloudpickle.dumps(self.group))

    def send(self, message: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # `receive` will find out
            self.channel.send_bytes(message)

    def receive(self) -> Any:
        """Waits for an answer, at first the Specs; HungUp if the worker has died, an error if an environment failed."""
        message = receive(self.channel)
        answer = pickle.loads(message) if message else None
        if isinstance(answer, Failure):
            index, text = answer.environment, answer.traceback
            who = f"Worker {self.number}" if index is None else f"Environment {index} (worker {self.number})"
            if answer.own is not None:
                raise EnvError(f"{answer.own} ({who.lower()})")
            raise WorkerError(f"{who} failed: {text.strip().splitlines()[-1]}\nIn the worker:\n{text}")
        return answer

    def end(self) -> int:
        """Closes the channel, the sign to end, and waits for the process, not patiently; its return code."""
        self.channel.close()
        try:
            return self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __str__(self) -> str:
        rows = self.group.indices
        return f"Worker {self.number} (process {self.process.pid}, environments {rows[0]} to {rows[-1]})"


def end_all(workers: list[Worker], memory: int) -> None:
    """Ends every worker; hangs up on all before it waits for the first."""
    for worker in workers:
        worker.channel.close()
    for worker in workers:
        worker.end()
    os.close(memory)


class VectorEnv:
    """`count` environments in `workers` processes, stepped together.

    `name_or_make` is a name for `plan2explore.make`, or any function that returns such an environment
    (functions of the running script, lambdas and closures too), or a list with one of these for each
    environment; `make_options` are passed on to it.

    - The step after an episode's end ignores the action and returns the first observation of the next
      episode, marked `first` (Gymnasium's next-step mode): a batch always has a row per environment, and no
      observation is left out.
    - Environment i's k-th episode, counted from `first_episode`, is reset with `episode_seed(seed, i, k)`: the
      same seed and actions give the same episodes, bit by bit, whatever the number of workers.
    - A batch's arrays are read-only views of the shared memory: copy what must outlive the next `send`.
    - `step` is `send` and `receive`; what is done between the two runs while the environments step.
    - A worker that dies is started again with fresh episodes, marked `lost`; the others do not notice. An
      exception in an environment, or Ctrl-C while waiting, closes everything and is raised here.
    """

    def __init__(
        self,
        name_or_make: Make | Sequence[Make],
        count: int,
        workers: int | None = None,
        seed: int = 0,
        first_episode: int = 0,
        **make_options: Any,
    ) -> None:
        if workers is None:
            workers = min(count, len(os.sched_getaffinity(0)))
        if not 1 <= workers <= count:
            raise ValueError(f"{workers} workers for {count} environments: each needs at least one.")
        makes = [name_or_make] * count if isinstance(name_or_make, str) or callable(name_or_make) else list(name_or_make)
        if len(makes) != count:
            raise ValueError(f"A list of {len(makes)} environments to make was given for {count} environments.")
        self.count = count
        self._in_flight = self._started = False
        memory = os.memfd_create("plan2explore")  # the system frees it with the last process that holds it
        bounds = [count * number // workers for number in range(workers + 1)]
        self._workers: list[Worker] = []
        self._close = weakref.finalize(self, end_all, self._workers, memory)  # also at the interpreter's exit
        known = registered()
        with self._closed_on_error():
            for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
                group = EnvGroup(makes[start:stop], make_options, range(start, stop), count, seed, known)
                self._workers.append(Worker(number, group, memory))
            spec, *others = [spec for worker in self._workers for spec in self._greet(worker)]
            for other in others:
                if other != spec:
                    raise ValueError(f"Environments must have the same spaces and sizes; got {spec} and {other}.")
            self._arrays = map_arrays(memory, spec, count)
            self._arrays["episodes"][:] = first_episode
        self.observation_space = spec.observation_space
        """Space of one environment's observations."""
        self.action_space = spec.action_space
        """Space of one environment's actions."""
        views = {name: array.view() for name, array in self._arrays.items() if name != "action"}
        for view in views.values():
            view.flags.writeable = False
        self._batch = Batch(**views)

    @property
    def processes(self) -> list[int]:
        """Process numbers of the workers."""
        return [worker.process.pid for worker in self._workers]

    def reset(self, episode: int | None = None) -> Batch:
        """Starts a new episode in every environment: the next one, or the one of this number."""
        self._check(in_flight=False)
        if episode is not None:
            self._arrays["episodes"][:] = episode
        self._command(RESET)
        return self.receive()

    def step(self, actions: Any) -> Batch:
        """Steps every environment with its row of `actions`, (count, A)."""
        self.send(actions)
        return self.receive()

    def send(self, actions: Any) -> None:
        """Starts a step; the last batch is overwritten from now on."""
        actions, expected = np.asarray(actions, np.float32), self._arrays["action"].shape
        if actions.shape != expected:
            raise ValueError(f"Actions of shape {actions.shape} were given; expected {expected}.")
        if not self._started:
            raise RuntimeError("Call reset() once before the first step.")
        self._check(in_flight=False)
        self._arrays["action"][:] = actions
        self._command(STEP)

    def receive(self) -> Batch:
        """Waits for the step that `send` started."""
        self._check(in_flight=True)
        with self._closed_on_error():
            for worker in self._workers:
                try:
                    worker.receive()
                    worker.deaths = 0
                except HungUp:
                    self._revive(worker)
        self._in_flight = False
        return self._batch

    def close(self) -> None:
        """Ends the workers. Batches that were handed out stay readable."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, in_flight: bool) -> None:
        if not self._close.alive:
            raise RuntimeError("This VectorEnv is closed: make a new one.")
        if self._in_flight and not in_flight:
            raise RuntimeError("A step is under way: call receive() before the next send() or reset().")
        if in_flight and not self._in_flight:
            raise RuntimeError("There is nothing to receive: call send(actions) first.")

    def _command(self, command: bytes) -> None:
        self._in_flight = self._started = True
        # Episodes that this command does not end or begin: lost, should their worker die.
        self._running = (command == STEP) & ~(self._batch.terminated | self._batch.truncated)
        with self._closed_on_error():
            for worker in self._workers:
                worker.send(command)

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # Ctrl-C too: answers may have been half read
            self.close()
            raise

    def _greet(self, worker: Worker) -> list[Spec]:
        """Waits until a worker has built its environments, however often it must be started for that."""
        while True:
            try:
                return worker.receive()
            except HungUp:
                self._restart(worker)

    def _restart(self, worker: Worker) -> None:
        """Starts a dead worker again, unless that has become pointless."""
        dead, code = str(worker), worker.end()
        how = f"was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with exit code {code}"
        worker.deaths += 1
        if worker.deaths == DEATHS_IN_A_ROW:
            hint = "Step one such environment by itself, without VectorEnv, to see why."
            if code == -signal.SIGKILL:
                hint = f"A system without memory ends processes so: {self.count:,} environments may be too many for it."
            others = f"after {worker.deaths - 1} others in its place that did not finish a step either"
            raise WorkerError(f"{dead} {how}, {others}. {hint}")
        fate = "it is started again, the episodes of its environments are dropped, the rest continue"
        log.warning("%s %s: %s.", dead, how, fate)
        worker.start()

    def _revive(self, worker: Worker) -> None:
        """Replaces a worker that died, with fresh episodes in its rows of the batch."""
        while True:
            self._restart(worker)
            with contextlib.suppress(HungUp):
                worker.receive()
                worker.send(RESET)
                worker.receive()
                break
        rows = worker.group.indices
        self._arrays["lost"][rows] = self._running[rows]
