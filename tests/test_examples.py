"""The examples run, at sizes at which nothing is learned; the first two are compiled as a user's programs are."""

import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from patience import PATIENCE

import plan2explore as p2e

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = pytest.mark.xdist_group("examples")  # the notebook runs the programs that the first script compiled


def run(script: str, *arguments: object) -> str:
    """What a script prints."""
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_script_with_a_reward_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")
    printed = run("custom_reward.py", "--quick", "--out", tmp_path / "run")
    assert "folded:" in printed and "2 episodes" in printed
    assert (tmp_path / "run" / "folded.mp4").stat().st_size > 0


@pytest.mark.slow
def test_the_notebook(tmp_path, monkeypatch):
    notebook = nbformat.read(EXAMPLES / "journey.ipynb", 4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells), "strip the outputs"
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setenv("QUICK", "1")
    nbclient.NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    assert "folded: " in printed and "reacher_easy: " in printed and "of 200 env steps folded" in printed


@pytest.mark.slow
def test_the_planner(tmp_path):
    assert "pendulum_swingup, 1 episodes: planned" in run("plan.py", "--quick", "--episodes", 1, "--out", tmp_path / "run")


@pytest.mark.slow
def test_pytorch_learns_from_a_run(tmp_path):
    pytest.importorskip("torch")
    sizes = {"obs": "proprio", "size": 16, "updates_per_episode": 1, "action_repeat": 50, "environments": 1}
    p2e.explore("pendulum", 6000, tmp_path / "run", preset="tiny", **sizes)
    assert "squared error of the next step after" in run("dataloader.py", tmp_path / "run", "--steps", 20)
