"""Model files on the whole way, explored, adapted, evaluated and reported: from the command line alone, and from Python."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nano import _flags, nano_adapt
from sizes import NANO

import plan2explore as p2e
from plan2explore import cli, load
from plan2explore.config import ExploreConfig, Schedule, WorldConfig, paper

pytestmark = pytest.mark.xdist_group("models")  # the rover and the cart share their programs

MODELS = Path(__file__).parents[2] / "examples" / "models"
SCHEDULE = Schedule(seed_episodes=1, updates_per_episode=20, block=10, environments=1)
VECTOR = WorldConfig(obs="proprio", size=8, action_repeat=100)
BOTH = WorldConfig(obs="both", size=16, action_repeat=100)
"""Frames and three numbers of sensors: what the rover and the cart observe has one shape."""
VIEWS = {
    "arm": (replace(VECTOR, env_arg=("episode=1000", "reset=robots:scatter")), "touch"),
    "rover": (replace(BOTH, camera="eye", env_arg=("episode=1000", "sensors=gyro")), "wander"),
    "cart": (replace(BOTH, env_arg=("episode=1000", "sensors=left length,cart position,cart velocity")), "ring"),
}


def command(*words: object) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([str(word) for word in words])
    assert end.value.code == 0


def assert_explored(run: p2e.Run, view: WorldConfig) -> None:
    """Two episodes of the right length, with frames on which there is something."""
    assert [len(episode.action) for episode in run.episodes()] == [11, 11]
    if view.obs == "both":
        assert all(episode.image.std() > 5 and episode.proprio.shape == (11, 3) for episode in run.episodes())


@pytest.mark.parametrize("model", ["arm", "rover", "cart"])
def test_a_model_file_is_explored_adapted_evaluated_and_reported(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(MODELS.parent)  # the name of the world is the same in every folder
    monkeypatch.syspath_prepend(str(MODELS))
    view, task = VIEWS[model]
    out, flags = tmp_path / model, [f"--agent.{flag}" for flag in _flags(NANO, paper)]
    flags += [f"--{flag}" for flag in _flags(replace(view, env_arg=()), WorldConfig()) + _flags(SCHEDULE, Schedule())]
    arguments = [word for each in view.env_arg for word in ("--env-arg", each)]
    command("explore", f"mjcf:models/{model}.xml", *arguments, *flags, "--steps", 2000, "--out", out, "--import", "robots")
    monkeypatch.chdir(tmp_path)
    run = load(out)
    assert_explored(run, view)
    if model == "arm":
        assert len({tuple(episode.state[0, 0, 5:7]) for episode in run.episodes()}) == 2  # the block lay elsewhere
    reward = ["--reward", f"{MODELS / 'robots.py'}:{task}"]
    command("adapt", out, *reward, "--updates", 20, "--block", 10, "--evaluate-episodes", 1)
    command("evaluate", out / "adapt" / task, *reward, "--episodes", 1)
    command("report", out)
    assert f"{task}: " in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert {"arm": "shoulder", "cart": "left length", "rover": "gyro"}[model] in page and task in page


@pytest.mark.parametrize("model", ["arm", "rover", "cart"])
def test_so_it_is_from_python(model, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(MODELS))
    view, name = VIEWS[model]
    task = p2e.Task.from_file(f"{MODELS / 'robots.py'}:{name}")
    run = p2e.explore(f"mjcf:{MODELS}/{model}.xml", 2000, tmp_path / model, config=ExploreConfig(view, SCHEDULE, NANO))
    assert_explored(run, view)
    rewards = p2e.relabel(list(run.episodes()), task, workers=1)
    assert np.shape(rewards) == (2, 11) and (model != "rover" or np.ptp(rewards) > 0)  # others are paid for what is far
    policy = nano_adapt(run, task)
    assert len(policy.evaluate(1).episodes) == 1
    written = p2e.write_report(run.path).read_text()
    assert f"{model}.xml" in written and name in written
