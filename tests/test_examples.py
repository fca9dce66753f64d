"""The examples run, at sizes at which nothing is learned."""

import os
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from patience import PATIENCE

import plan2explore as p2e

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = pytest.mark.slow


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program as a user would, without the tests' XLA flags."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_the_script_with_a_reward_of_its_own(tmp_path):
    command = [sys.executable, str(EXAMPLES / "custom_reward.py"), "--quick", "--out", str(tmp_path / "run")]
    result = run(command)
    assert result.returncode == 0, result.stderr
    assert "folded:" in result.stdout and "2 episodes" in result.stdout
    assert (tmp_path / "run" / "folded.mp4").stat().st_size > 0


def test_the_planner(tmp_path):
    command = [sys.executable, str(EXAMPLES / "plan.py"), "--quick", "--episodes", "1", "--out", str(tmp_path / "run")]
    result = run(command)
    assert result.returncode == 0, result.stderr
    assert "pendulum_swingup, 1 episodes: planned" in result.stdout


def test_pytorch_learns_from_a_run(tmp_path):
    pytest.importorskip("torch")
    sizes = {"obs": "proprio", "size": 16, "updates_per_episode": 1, "action_repeat": 50, "environments": 1}
    p2e.explore("pendulum", 6000, tmp_path / "run", preset="tiny", **sizes)
    command = [sys.executable, str(EXAMPLES / "dataloader.py"), str(tmp_path / "run"), "--steps", "20"]
    result = run(command)
    assert result.returncode == 0 and "squared error of the next step after" in result.stdout, result.stderr


def test_the_notebook(tmp_path, monkeypatch):
    notebook = nbformat.read(EXAMPLES / "journey.ipynb", 4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells), "strip the outputs"
    monkeypatch.setenv("QUICK", "1")
    nbclient.NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    assert "folded: " in printed and "reacher_easy: " in printed and "of 200 env steps folded" in printed
