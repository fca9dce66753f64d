"""A world of the user's own module, from the command line: each command is a process that knows the module by `--import`."""

import subprocess
import sys
from pathlib import Path

from nano import _flags
from sizes import NANO

from plan2explore.config import paper

WORLD = """
import gymnasium, numpy as np
class Line(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,))
    def reset(self, *, seed=None, options=None):
        self.place = np.zeros(1, np.float32)
        return self.place, {}
    def step(self, action):
        self.place = np.clip(self.place + action / 8, -1, 1, dtype=np.float32)
        return self.place, 0.0, False, False, {}
gymnasium.register("Line-v0", entry_point=Line, max_episode_steps=20)
"""
REWARD = "def right(observation, action, after):\n    return after[0]\n"


def test_every_command_takes_a_world_of_a_module_that_is_named_to_it(tmp_path: Path) -> None:
    (tmp_path / "line_worlds.py").write_text(WORLD)
    (tmp_path / "rewards.py").write_text(REWARD)
    known, reward, quick = ["--import", "line_worlds"], ["--reward", "rewards.py:right"], ["--block", "10"]

    def command(*words: str, status: int = 0) -> str:
        """What it prints; on failure, what it says."""
        program = [sys.executable, "-P", "-m", "plan2explore", *words]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done.stderr if status else done.stdout

    agent = [f"--agent.{flag}" for flag in _flags(NANO, paper)]
    schedule = [*quick, "--seed-episodes", "1", "--updates-per-episode", "10", "--environments", "1"]
    view = ["--obs", "proprio", "--size", "8", "--action-repeat", "2", "--steps", "40", "--out", "run"]
    command("explore", "gymnasium:Line-v0", *known, *view, *schedule, *agent)
    adapt = ["adapt", "run", *reward, *quick, "--updates", "10", "--evaluate-episodes", "1"]
    assert "add --import MODULE" in command(*adapt, status=2)
    command(*adapt, *known)
    assert "every episode: " in command("evaluate", "run/adapt/right", *reward, *known, "--episodes", "1")
    command("report", "run", *known)
    assert "right" in (tmp_path / "run" / "report.html").read_text()
