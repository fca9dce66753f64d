"""The journey of `plan2explore demo`, at sizes that learn nothing."""

import contextlib
import inspect
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sizes import NANO, quick

import plan2explore as p2e
from plan2explore import demo
from plan2explore.envs import maze
from plan2explore.phases.evaluate import Scores
from plan2explore.phases.policy import Policy
from plan2explore.runs.folder import RunError

ROOT = Path(demo.__file__).parents[1]


def nano_config(method, seed, real=demo.demo_config):
    """The demo's own configuration with episodes of ten actions and networks of a few units."""
    config = real(method, seed)
    agent = replace(NANO, intrinsic=replace(NANO.intrinsic, objective=method))
    schedule = replace(config.schedule, updates_per_episode=2, snapshot_every=4000)
    return replace(config, world=replace(config.world, size=8, action_repeat=100), schedule=schedule, agent=agent)


@pytest.mark.slow
def test_the_journey_leaves_a_table_a_picture_a_video_and_a_report(tmp_path, monkeypatch, capsys):
    for name, value in {"STEPS": 4000, "UPDATES": 2, "TASKS": demo.TASKS[:2], "demo_config": nano_config}.items():
        monkeypatch.setattr(demo, name, value)
    monkeypatch.setattr(demo, "beside", lambda *_: contextlib.nullcontext())  # a process would not know of these sizes
    with quick():
        assert demo.main(["--out", str(tmp_path), "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    for words in ("random actions", "Plan2Explore visited", "north_west", "of 2 tasks", str(tmp_path / "report.html")):
        assert words in " ".join(printed.split())
    found = json.loads((tmp_path / "demo.json").read_text())
    assert found["machine"]["commit"] and found["seconds"] > 0
    assert set(found["scores"]) == set(found["coverage"]) == set(demo.METHODS)
    assert all(0 < share <= 1 for share in found["coverage"].values())
    for scores in found["scores"].values():
        assert [len(each["episodes"]) for each in scores.values()] == [2, 2]
    assert (tmp_path / "demo.png").stat().st_size > 5000
    video = demo.read_video(tmp_path / "demo.mp4")
    assert video.shape[1:] == (1024, 1024, 3) and (video == 255).all(-1).any()  # two explorations, two tasks, marks
    page = (tmp_path / "report.html").read_text()
    assert "<html" in page[:500].lower() and page.count("data:video/mp4") >= 4  # both explorations, and the two tasks

    def refuse(*_, **__):
        raise AssertionError("done again")

    for owner, name in ((Policy, "evaluate"), (demo, "write_report"), (demo, "draw"), (demo, "write_video")):
        monkeypatch.setattr(owner, name, refuse)
    assert demo.main(["--out", str(tmp_path), "--episodes", "2"]) == 0
    again = json.loads((tmp_path / "demo.json").read_text())
    assert (again["scores"], again["seconds"]) == (found["scores"], found["seconds"])


def test_the_process_beside_the_demo_is_one_exploration_and_its_failure_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "METHODS", ("plan2explore",))
    with (
        pytest.raises(RunError, match=r"random actions failed: see .*random\.log"),
        demo.beside(demo.DemoCommand(tmp_path, seed=-1), "random"),
    ):
        pass
    assert "seed" in (tmp_path / "random.log").read_text()


def physics(place, velocity=(0.0, 0.0)):
    data = SimpleNamespace(qpos=np.array(place), qvel=np.array(velocity))
    return SimpleNamespace(data=data)


def test_places_lie_in_the_rooms_of_their_names_and_pay_1():
    rooms = {"north_west": (-1, 1), "north_east": (1, 1), "south_east": (1, -1)}
    for task in demo.TASKS[:3]:
        place = demo.PLACES[task.name]
        assert tuple(np.sign(place)) == rooms[task.name] and task.reward(physics(place)) == 1
        assert all(tuple(cell) in maze.free_cells(demo.WORLD) for cell in maze.cell_of(demo.WORLD, np.array([place])))


def test_patrolling_pays_for_going_round_clockwise_in_the_north_east_room_alone():
    east = (3.5, 2.0)  # of the middle of the room
    assert demo.patrol(physics(east, (0.0, -6.0))) > 0.5 > 0 == demo.patrol(physics(east, (0.0, 6.0)))
    assert demo.patrol(physics(east)) == demo.patrol(physics(east, (6.0, 0.0))) == 0
    assert abs(demo.patrol(physics((-2.5, -3.0), (6.0, 0.0)))) < 1e-3


def test_a_place_is_marked_where_the_camera_shows_it():
    env = p2e.make(demo.WORLD, size=128)
    place = demo.PLACES["north_west"]
    env.reset(seed=0)
    state = env.unwrapped.physics.get_state()
    state[:2] = place
    with env.unwrapped.physics.reset_context():
        env.unwrapped.physics.set_state(state)
    ball = (env.render().astype(int) @ (1, -1, -1)) > 60  # red
    env.close()
    ring = (demo.mark(np.zeros((1, 128, 128, 3), np.uint8), place)[0] == 255).all(-1)
    assert ball.any() and ring.any()
    middles = [np.argwhere(found).mean(0) for found in (ball, ring)]
    np.testing.assert_allclose(*middles, atol=1.5)


def test_visits_count_cells_and_know_walls():
    start = maze.centre_of(demo.WORLD, maze.start_cell(demo.WORLD))
    counts = demo.visits_of(np.array([start, start, [np.nan, np.nan]]))
    assert counts[maze.start_cell(demo.WORLD)] == 2 == np.nansum(counts)
    assert np.isnan(counts).sum() == sum(row.count("#") for row in maze.rows_of(demo.WORLD))


@pytest.mark.parametrize("episodes", [2, 3])
def test_a_cell_shows_the_mean_and_an_interval_of_three_episodes_or_more(episodes):
    scores = Scores("x", (9.0,) * (episodes - 1) + (12.0,))
    low, high = scores.interval
    table = demo.table_of({"random": {task.name: scores for task in demo.TASKS}})
    assert ("interval" in str(table.title)) == (episodes == 3)
    assert demo.cell(scores) == ("10" if episodes == 2 else f"10 ({low:.0f} to {high:.0f})")


def test_the_headline_says_what_happened():
    good, bad = (dict.fromkeys("abcd", Scores("x", (score,))) for score in (800.0, 10.0))
    shares = {"plan2explore": 0.97, "random": 0.41}
    assert demo.headline(shares, {"plan2explore": good, "random": bad}) == (
        "Plan2Explore visited 97% of the maze and solved 4 of 4 tasks; random actions 41% of the maze and solved 0."
    )


def test_the_readme_shows_the_demos_own_reward():
    body = inspect.getsource(demo.patrol).splitlines()[-2:]
    readme = (ROOT / "README.md").read_text()
    assert all(line.strip() in readme for line in body)
