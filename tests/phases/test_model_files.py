"""Model files on the whole way, explored, adapted, evaluated and reported: from the command line alone, and from Python."""

from pathlib import Path

import pytest
from nano import _flags, nano_adapt
from sizes import NANO

import plan2explore as p2e
from plan2explore import cli, load
from plan2explore.config import ExploreConfig, Schedule, WorldConfig, paper

MODELS = Path(__file__).parents[2] / "examples" / "models"
SCHEDULE = Schedule(seed_episodes=1, updates_per_episode=20, block=10, environments=1)


def command(*words: object) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([str(word) for word in words])
    assert end.value.code == 0


def test_a_model_file_is_explored_adapted_evaluated_and_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(MODELS.parent)  # the name of the world is the same in every folder
    out, agent = tmp_path / "arm", [f"--agent.{flag}" for flag in _flags(NANO, paper)]
    world = ["mjcf:models/arm.xml", "--env-arg", "episode=1000", "--env-arg", "reset=robots:scatter"]
    view = ["--obs", "proprio", "--size", "8", "--action-repeat", "100"]
    schedule = ["--seed-episodes", "1", "--updates-per-episode", "20", "--block", "10", "--environments", "1"]
    monkeypatch.syspath_prepend(str(MODELS))
    command("explore", *world, *view, *schedule, *agent, "--steps", "2000", "--out", out, "--import", "robots")
    monkeypatch.chdir(tmp_path)
    run = load(out)
    assert len(list(run.episodes())) == 2
    assert len({tuple(episode.state[0, 0, 5:7]) for episode in run.episodes()}) == 2  # the block lay elsewhere
    reward = ["--reward", f"{MODELS / 'robots.py'}:touch"]
    command("adapt", out, *reward, "--updates", "20", "--block", "10", "--evaluate-episodes", "1")
    command("evaluate", out / "adapt" / "touch", *reward, "--episodes", "1")
    command("report", out)
    assert "touch: " in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert "shoulder" in page and "touch" in page


def test_so_it_is_from_python(tmp_path):
    task = p2e.Task.from_file(f"{MODELS / 'robots.py'}:wander")
    view = WorldConfig(obs="pixels", size=16, camera="eye", env_arg=("episode=1000",), action_repeat=100)
    run = p2e.explore(f"mjcf:{MODELS}/rover.xml", 2000, tmp_path / "rover", config=ExploreConfig(view, SCHEDULE, NANO))
    assert [episode.image.std() > 5 for episode in run.episodes()] == [True, True]
    policy = nano_adapt(run, task)
    assert len(policy.evaluate(1).episodes) == 1
    written = p2e.write_report(run.path).read_text()
    assert "rover.xml" in written and "wander" in written
