"""What a report says of a run is what its files say."""

from dataclasses import replace
from pathlib import Path

import pytest

from plan2explore.config import ExploreConfig, small
from plan2explore.report.facts import nearest_preset, wall_time, what_was_run
from plan2explore.report.html import text
from plan2explore.report.run import names_of, open_runs


def test_wall_time_leaves_out_pauses():
    starts = [{"time": "2026-01-01T00:00:00+00:00"}, {"time": "2026-01-02T00:00:00+00:00"}, {"time": "broken"}]
    first, second = 1767225600.0, 1767225600.0 + 86400
    lines = [{"time": first + 100}, {"time": first + 200}, {"time": second + 65}, {"time": None}]
    assert wall_time(lines, starts) == "4:25"
    assert wall_time(lines, []) == "not known" and wall_time([], starts) == "not known"


def test_the_nearest_preset_and_what_differs():
    config = ExploreConfig(agent=replace(small, clip=7.0), seed=3, probes=("walker_walk",))
    assert nearest_preset(config) == ("small", ["agent.clip: 7.0, not 100.0"])


def test_names_tell_runs_apart():
    assert names_of([Path("/a/x"), Path("/a/y")]) == ["x", "y"]
    assert names_of([Path("/a/x"), Path("/b/x")]) == ["a/x", "b/x"]


@pytest.mark.parametrize("number", [0, 1])
def test_facts_of_a_run(small_runs, number):
    explored = open_runs(small_runs)[0][number]
    said = what_was_run(explored)
    told = "cartpole, observes both, 25 env steps", "world.size: 32, not 64", "agent.batch: 2, not 50"
    for words in told:
        assert text(words) in said, words
    assert "<dt>Env steps</dt>\n<dd>3,000</dd>" in said
    assert explored.about.method in said and "plan2explore explore cartpole" in said and "cores" in said
