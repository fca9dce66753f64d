"""Runs that tests share. All tests of a process share its compiled programs too."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nano import digests, in_turn, nano_adapt, nano_explore, overlap, remembered
from sizes import quick

from plan2explore.config import ExploreConfig
from plan2explore.phases.policy import Policy
from plan2explore.phases.run import Run
from plan2explore.replay.buffer import Replay


@pytest.fixture
def processes():
    """Environments of this test are in processes, not in threads of its own."""


@pytest.fixture(autouse=True)
def quickly(request):
    with quick("processes" in request.fixturenames):
        yield


@dataclass
class Watched:
    """A run that ended well, and the steps of every stream of replay whenever batches were drawn."""

    run: Run
    drawn_from: list[list[int]] = field(default_factory=list)


def watched_run(path: Path, config: ExploreConfig, steps: int) -> Watched:
    drawn_from: list[list[int]] = []
    sample = Replay.sample

    def watch(replay: Replay, key: Any, count: int) -> Any:
        drawn_from.append(replay._counts.tolist())
        return sample(replay, key, count)

    with quick(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replay, "sample", watch)
        return Watched(nano_explore(path, config, steps), drawn_from)


@pytest.fixture(scope="session")
def taken_in_turn(tmp_path_factory) -> Watched:
    """5000 env steps, collecting and learning in turn. Read it only."""
    return watched_run(tmp_path_factory.mktemp("runs") / "in-turn", in_turn(), 5000)


@pytest.fixture(scope="session")
def overlapped(tmp_path_factory) -> Watched:
    """5000 env steps of two environments: two whole episodes in each, the third was still running. Read it only."""
    return watched_run(tmp_path_factory.mktemp("runs") / "overlap", overlap(), 5000)


@pytest.fixture
def copy_of(tmp_path):
    """Copies a run, to do with it what one likes."""

    def copy(run: Run, name: str = "copy") -> Run:
        return Run(shutil.copytree(run.path, tmp_path / name))

    return copy


@pytest.fixture(scope="session")
def adapted(overlapped) -> tuple[Policy, dict[str, str]]:
    """A zero-shot policy of `overlapped`, and the digests of the run's files before it was made. Read it only."""
    before = digests(overlapped.run.path)
    with quick():
        return nano_adapt(overlapped.run), before


@pytest.fixture(scope="session")
def few_shot(overlapped, adapted) -> tuple[Policy, list[dict[str, np.ndarray]]]:
    """A policy of two more episodes, and the whole episodes that replay began with. Read it only."""
    with quick(), remembered() as added:
        return nano_adapt(overlapped.run, shots=2), added
