"""Environments in threads of the test's own process: starting processes takes most of a small run's time."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any
from unittest import mock

from plan2explore.envs import vector, worker


class Thread(threading.Thread):
    """What a vector environment starts in place of a worker process."""

    def __init__(self, *_: Any, pass_fds: list[int], **__: Any) -> None:
        super().__init__(daemon=True)
        self.channel, self.memory = map(os.dup, pass_fds)  # the caller closes its own
        self.pid = os.getpid()
        self.start()

    def run(self) -> None:
        with Connection(self.channel) as channel:
            worker.work(channel, self.memory)
        os.close(self.memory)

    def wait(self, timeout: float | None = None) -> int:
        """As that of a process."""
        self.join(timeout)
        return 0


@contextlib.contextmanager
def in_threads() -> Iterator[None]:
    """Vector environments that are made meanwhile start no process."""
    names = SimpleNamespace(Popen=Thread, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
    with mock.patch.object(vector, "subprocess", names):
        yield
