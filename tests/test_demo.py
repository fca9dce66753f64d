"""The journey of `plan2explore demo`, at sizes that learn nothing."""

import inspect
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from sizes import NANO, quick

from plan2explore import demo
from plan2explore.phases.evaluate import Scores
from plan2explore.phases.policy import Policy

ROOT = Path(demo.__file__).parents[1]


def nano_config(method, seed, real=demo.demo_config):
    """The demo's own configuration with episodes of ten actions and networks of a few units."""
    config = real(method, seed)
    agent = replace(NANO, intrinsic=replace(NANO.intrinsic, objective=method, gradient=config.agent.intrinsic.gradient))
    schedule = replace(config.schedule, updates_per_episode=2, snapshot_every=6000)
    return replace(config, world=replace(config.world, size=8, action_repeat=100), schedule=schedule, agent=agent)


@pytest.mark.slow
def test_the_journey_leaves_a_table_a_picture_videos_and_a_report(tmp_path, monkeypatch, capsys):
    for name, value in {"STEPS": 6000, "UPDATES": 2, "TASKS": demo.TASKS[:2], "demo_config": nano_config}.items():
        monkeypatch.setattr(demo, name, value)
    with quick():
        assert demo.main(["--out", str(tmp_path), "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    for words in ("random policy", "after Plan2Explore", "spin", "turn_left", str(tmp_path / "report.html")):
        assert words in " ".join(printed.split())
    found = json.loads((tmp_path / "demo.json").read_text())
    assert found["machine"]["commit"] and found["seconds"] > 0
    for task in ("spin", "turn_left"):
        assert set(found["scores"][task]) == set(demo.ROWS)
        assert all(len(each["episodes"]) == 2 for each in found["scores"][task].values())
        assert (tmp_path / f"{task}.mp4").stat().st_size > 500
    assert (tmp_path / "scores.png").stat().st_size > 5000
    page = (tmp_path / "report.html").read_text()
    assert "<html" in page[:500].lower()
    for scores in found["scores"].values():
        for row in demo.ROWS[1:]:
            assert f"{scores[row]['mean']:.1f}</strong>" in page
    assert page.count("data:video/mp4") >= 4  # what both explorations did, and the two tasks

    def refuse(*_, **__):
        raise AssertionError("played again")

    monkeypatch.setattr(Policy, "evaluate", refuse)
    monkeypatch.setattr(demo, "write_report", lambda runs, out: out)
    assert demo.main(["--out", str(tmp_path), "--episodes", "2"]) == 0
    again = json.loads((tmp_path / "demo.json").read_text())
    assert (again["scores"], again["seconds"]) == (found["scores"], found["seconds"])


def test_random_scores_are_those_of_random_actions():
    task = demo.TASKS[0]
    scores = demo.random_scores(task, demo.DemoCommand(episodes=2, seed=3))
    again = demo.random_scores(task, demo.DemoCommand(episodes=2, seed=3))
    assert scores == again and len(scores.episodes) == 2
    assert all(0 < score < 500 for score in scores.episodes)  # 1000 would be full speed at every env step


def test_a_cell_shows_the_mean_and_its_interval():
    assert demo.cell(Scores("x", (10.0, 10.0, 10.0))) == "10 (10 to 10)"
    low, high = Scores("x", (0.0, 10.0, 20.0)).interval
    assert demo.cell(Scores("x", (0.0, 10.0, 20.0))) == f"10 ({low:.0f} to {high:.0f})"
    assert math.isfinite(low) and low < 10 < high


@pytest.mark.parametrize("episodes", [2, 3])
def test_an_interval_needs_three_episodes(episodes):
    scores = Scores("x", (9.0,) * (episodes - 1) + (12.0,))
    table = demo.table_of({"x": dict.fromkeys(demo.ROWS, scores)})
    assert ("interval" in str(table.title)) == (episodes == 3) == (" to " in demo.cell(scores))
    assert demo.cell(scores).startswith("10")


def test_the_readme_shows_the_demos_own_reward():
    body = inspect.getsource(demo.top).splitlines()[-1].strip()
    assert body in (ROOT / "README.md").read_text()
