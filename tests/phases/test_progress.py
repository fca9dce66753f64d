"""Progress in words: what is gone, what is left, and how fast it goes."""

import io

import numpy as np
import pytest
from rich.console import Console

from plan2explore.console import duration
from plan2explore.envs import maze
from plan2explore.phases import progress as module
from plan2explore.phases.progress import Progress


class Clock:
    """A clock that tests set."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def shown(file):
    return [line for line in file.getvalue().splitlines() if line]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (3600 * 25 + 61, "25:01:01")])
def test_durations_read_like_a_clock(seconds, text):
    assert duration(seconds) == text


def test_a_log_gets_a_line_now_and_then_with_all_that_matters(clock):
    file = io.StringIO()
    with Progress("plan2explore in walker", repeat=2, console=Console(file=file, width=200)) as progress:
        progress.scores = {"walker_walk": 123.4}
        for second in range(41):
            progress.show(1000 * second, 100_000, 100 * second, 10_000)
            clock.now += 1.0
    lines = shown(file)
    assert len(lines) == 2  # after 15 and after 30 seconds
    for piece in (
        "plan2explore in walker", "env steps 30,000 of 100,000", "500 frames/s", "updates 3,000 of 10,000",
        "100.0 updates/s", "0:30 gone, 1:10 left", "walker_walk 123",
    ):  # fmt: skip
        assert piece in lines[1]


def test_without_a_goal_in_the_world_there_are_no_frames_to_count(clock):
    progress = Progress("adapting", console=Console(file=io.StringIO()))
    for updates in (0, 10, 20, 30, 40, 50):
        clock.now += 4
        progress.show(0, 0, updates, 100)
    assert progress.line(clock.now, 0, 0, 50, 100) == [
        "adapting", "updates 50 of 100", "2.5 updates/s", "0:24 gone, 0:20 left"
    ]  # fmt: skip


def test_the_coverage_of_a_maze_is_in_the_line_and_drawn_below_it_on_a_terminal(clock):
    file = io.StringIO()
    progress = Progress("exploring", console=Console(file=file, force_terminal=True, width=200))
    progress.coverage = maze.Coverage("maze_u")
    progress.coverage.add(np.array([[0.0, *maze.centre_of("maze_u", maze.start_cell("maze_u")), 0.0, 0.0]]))
    clock.now += 1
    with progress:
        progress.show(10, 100, 5, 10)
    shown_now = file.getvalue()
    assert "coverage 6%" in shown_now  # 1 cell of 18
    assert "██··            " in shown_now and "█" * 20 in shown_now


def test_time_left_is_unknown_before_anything_was_learned(clock):
    progress = Progress("x", console=Console(file=io.StringIO()))
    progress.show(0, 10, 5, 10)
    clock.now += 30
    assert progress.left(clock.now, 5, 10) == "?"
    assert progress.left(clock.now, 10, 10) == "0:00"


def test_time_left_does_not_count_what_the_first_blocks_waited_for_compilers(clock):
    progress = Progress("x", console=Console(file=io.StringIO()))
    for updates, seconds in [(0, 100), (5, 60), (10, 1), (15, 1), (20, 1)]:
        progress.show(0, 10, updates, 100)
        clock.now += seconds
    assert progress.left(clock.now, 25, 100) == "0:15"


def test_at_the_end_the_start_is_told_apart_from_learning(clock):
    progress = Progress("adapting", console=Console(file=io.StringIO()))
    assert progress.spent(0) == "0:00"
    for updates, seconds in ((0, 30), (10, 20), (20, 1), (30, 1), (1030, 100)):
        clock.now += seconds
        progress.show(0, 0, updates, 2000)
    clock.now += 25  # an evaluation at the end belongs to it, too
    assert progress.spent(1030) == "2:57 (0:51 until the first updates, then 8.0 updates/s)"


def test_what_is_said_stays_as_it_is():
    file = io.StringIO()
    progress = Progress("x", console=Console(file=file, width=20, soft_wrap=True))
    progress.say("[bold]runs/walker[/bold] has " + "many " * 10 + "words")
    assert shown(file) == ["[bold]runs/walker[/bold] has " + "many " * 10 + "words"]


def test_a_terminal_gets_a_live_line(clock):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=150)
    with Progress("x", console=console) as progress:
        progress.show(0, 10, 0, 10)
        clock.now += 1
        progress.show(5, 10, 5, 10)
        progress.say("a line")
    assert "updates 5 of 10" in file.getvalue() and "a line" in file.getvalue()
