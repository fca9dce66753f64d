"""Adapting and evaluating by the command line, with a task of the suite and with a reward of one's own."""

import json

import pytest
from nano import TASKS

from plan2explore.cli import main

pytestmark = pytest.mark.xdist_group("phases")
REWARDS = """
def left(physics):
    return -physics.cart_position()

def broken(physics):
    return physics.number_of_wheels()
"""


def run(capsys, *arguments):
    """(status, standard output, standard error) of a command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    streams = capsys.readouterr()
    assert "Traceback" not in streams.err
    return ended.value.code or 0, streams.out, streams.err


def test_a_reward_of_ones_own_from_the_command_line(overlapped, tmp_path, capsys):
    file, out = tmp_path / "rewards.py", tmp_path / "left"
    file.write_text(REWARDS)
    adapting = ("adapt", overlapped.run.path, "--out", out, "--updates", "10", "--block", "10", "--evaluate-episodes", "0")
    status, _, said = run(capsys, *adapting, "--reward", f"{file}:broken")
    assert status == 2 and "Reward 'broken' raised AttributeError" in said and not out.exists()
    assert f"at rewards.py:{len(REWARDS.splitlines())} (step 1, episode 0)" in said
    assert run(capsys, *adapting, "--reward", f"{file}:left")[0] == 0
    status, _, said = run(capsys, "evaluate", out)
    assert status == 2 and "'left', which is your own code and not in the folder: give it again, as file.py:left" in said
    status, _, said = run(capsys, "evaluate", out, "--reward", f"{file}:left", "--episodes", "1", "--at", "2e3")
    assert status == 2 and f"{out} is an adaptation, whose policy is the one at its end: leave out --at" in said
    status, printed, _ = run(
        capsys, "evaluate", out, "--reward", f"{file}:left", "--episodes", "1", "--json", tmp_path / "scores.json", "--video"
    )
    assert status == 0 and printed.startswith("left: ") and "1 episode: too few for" in printed and "snapshot" not in printed
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["task"] == "left" and f"every episode: {scores['episodes'][0]:.1f}" in printed
    assert (out / "videos" / "left-0.mp4").stat().st_size > 0


def test_a_probe_is_evaluated_by_its_name(overlapped, capsys):
    path = overlapped.run.path
    status, printed, _ = run(capsys, "evaluate", path, "--task", TASKS[1], "--episodes", "1", "--at", "2e3")
    assert status == 0 and printed.startswith(f"{TASKS[1]}: ")
    assert f"snapshot: env step 2,000 of {path}\n" in printed
    status, _, said = run(capsys, "evaluate", path)
    assert status == 2 and "is an exploration: name one of its probes with --task" in said
    status, _, said = run(capsys, "evaluate", path, "--task", TASKS[1], "--at", "3000")
    assert status == 2 and "but at 2000, 4000, 5000" in said


def test_settings_beside_the_folder_of_a_run_are_refused(overlapped, capsys):
    for setting in (("--seed-episodes", "3"), ("--seed", "0"), ("--agent.intrinsic.gradient=through",)):  # or the default
        status, _, said = run(capsys, "explore", overlapped.run.path, "--steps", "6000", *setting)
        assert status == 2 and "has its settings already: beside it give --steps, --wandb, and --probe for" in said
    status, _, said = run(capsys, "explore", overlapped.run.path, "--steps", "4000")
    assert status == 2 and "was to have 5,000 env steps; 4,000 would be fewer" in said
