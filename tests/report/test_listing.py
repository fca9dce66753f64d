"""`plan2explore runs`."""

import shutil

import pytest
from small_run import TASK

from plan2explore.report.listing import print_runs, row_of
from plan2explore.runs.folder import RunError, RunFolder


def test_a_row_says_state_steps_and_last_scores(small_runs, tmp_path):
    run = RunFolder.open(shutil.copytree(small_runs[1], tmp_path / "mine"))
    path, env, method, seed, state, steps, scores = row_of(run)
    assert (path, env, method, seed) == (str(tmp_path / "mine"), "cartpole", "random", "0")
    assert state in ("finished", "stopped") and steps == "3,000"
    assert f"{TASK} " in scores and "(zero-shot probe)" in scores and "(zero-shot offline)" in scores
    (run.evaluations_file).unlink()
    assert row_of(run)[6] == f"{TASK} 127"
    run.change_settings(run.settings | {"goal": 9000})
    assert row_of(run)[5] == "3,000 of 9,000"
    with run.lock():
        assert row_of(run)[4] == "running"
    assert row_of(run)[4] == "stopped"
    learned = {name: value for name, value in run.settings.items() if name != "goal"} | {"updates": 40}
    run.change_settings(learned)  # as of a run that learns from a data set, without env steps of its own
    assert row_of(run)[4:6] == ("finished", "3,000")
    run.change_settings(learned | {"updates": 41})
    assert row_of(run)[4] == "stopped"


def test_runs_are_found_three_folders_down_and_damaged_ones_are_named(small_runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    shutil.copytree(small_runs[0], tmp_path / "sweep" / "runs" / "a")
    shutil.copytree(small_runs[0], tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "run.json").write_text("{")
    print_runs(tmp_path)
    printed = capsys.readouterr().out
    assert str(tmp_path / "sweep" / "runs" / "a") in printed and str(tmp_path / "b") in printed
    assert f"{tmp_path / 'c' / 'run.json'} " in printed


def test_a_folder_without_runs_is_said(tmp_path):
    with pytest.raises(RunError, match="There is no run in"):
        print_runs(tmp_path)
