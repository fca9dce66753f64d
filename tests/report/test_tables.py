"""Tables have the paper's layout, our numbers and the paper's, and say what is missing."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from plan2explore.reference import METHODS, TASK_AVERAGE, paper_table
from plan2explore.report.plots import curve
from plan2explore.report.tables import (
    compare,
    last_episodes,
    published_at,
    results_markdown,
    steps_text,
    summarise,
    table,
    table_cells,
    table_markdown,
    write_tables,
)
from plan2explore.runs.results import FEW_SHOT, OFFLINE, PROBE, SUPERVISED, Result, append_results

RUN = Result("cheetah_run", "plan2explore", PROBE, 0, 500_010, 500.0, 30.0, 10)


def test_a_file_cannot_steer_the_terminal(tmp_path, capsys):
    append_results(tmp_path / "evil.csv", [replace(RUN, task="\x1b[2Jgone", run="\x1b]0;title\x07"), replace(RUN, run="b")])
    append_results(tmp_path / "evil.csv", [replace(RUN, task="\x1b[2Jgone", run="newer")])
    assert table([str(tmp_path / "evil.csv")]) == 0
    printed = capsys.readouterr()
    assert "\\x1b[2Jgone" in printed.out and "\\x1b]0;title\\x07" in printed.out
    assert "\x1b" not in printed.out + printed.err


def test_a_score_is_the_mean_of_the_last_20_episodes():
    results = [replace(RUN, env_steps=steps, score=score) for steps, score in ((3, 30.0), (1, 1000.0), (2, 10.0))]
    assert last_episodes(results) == (20.0, 20)
    assert last_episodes([replace(RUN, episodes=5, score=40.0, env_steps=4), *results[:1]]) == pytest.approx((100 / 3, 15))
    assert last_episodes([replace(RUN, episodes=50, score=7.0)]) == (7.0, 20)


def test_seeds_are_averaged_where_all_of_them_were():
    cell = summarise([RUN, replace(RUN, seed=1, score=600.0), replace(RUN, seed=2, score=700.0, env_steps=400_000)])
    assert (cell.seeds, cell.mean, cell.std, cell.env_steps, cell.episodes) == (3, 600.0, 100.0, 400_000, 10)
    assert str(cell) == "600.0 ± 100.0 (3 seeds, 400K)"
    assert str(summarise([RUN])) == "500.0 (1 seed, 500K)"
    further = [replace(RUN, env_steps=steps, score=score) for steps, score in ((250_000, 100.0), (500_000, 500.0))]
    behind = replace(RUN, seed=1, env_steps=250_020, score=200.0)
    cell = summarise([*further, behind])
    assert (cell.mean, cell.env_steps, cell.episodes) == (150.0, 250_020, 10)
    assert summarise([further[1], behind]).mean == 350.0  # it was not evaluated earlier
    late = replace(RUN, env_steps=3_700_000, score=999.0)  # after the paper's env steps
    assert table_cells([RUN, late], 1)["cheetah_run", "plan2explore"].mean == 500.0
    assert summarise([late], 3_500_000) is None


def test_adaptations_of_one_run_are_never_averaged():
    """The one that saw most env steps counts, and of equals the last."""
    few = replace(RUN, protocol=FEW_SHOT, run="r", adaptation="old", env_steps=1_000_000, score=0.0)
    old = [few, replace(few, env_steps=1_150_000, score=100.0)]
    new = [replace(few, adaptation="new", score=200.0), replace(old[1], adaptation="new", score=300.0)]
    short = [replace(few, adaptation="short", env_steps=1_010_000, score=900.0)]
    cell = table_cells([*old, *new, *short], 2)["cheetah_run", "plan2explore"]
    assert (cell.mean, cell.episodes, cell.env_steps) == (250.0, 20, 1_150_000)
    other_run = [replace(each, run="s", seed=1, adaptation="theirs") for each in old]
    assert summarise([*new, *other_run]).mean == 150.0  # one of each run
    early, late = (replace(RUN, protocol=OFFLINE, env_steps=steps, score=steps / 1000) for steps in (100_000, 500_000))
    assert summarise([late, early]).mean == 500.0  # so in a file that does not tell them apart
    assert summarise([late, early], 100_000).mean == 100.0
    assert summarise([late, replace(late, score=436.1)]).mean == 436.1
    assert summarise([replace(early, protocol=PROBE), replace(late, protocol=PROBE)]).mean == 300.0


def test_runs_of_one_seed_are_never_averaged():
    """A file of each gives one of them, the last, and says so: they differ in more than chance."""
    through, stopped = (replace(RUN, run=run, score=score) for run, score in (("a", 581.0), ("b", 476.0)))
    assert summarise([through, stopped]).mean == 476.0
    assert summarise([stopped, through]).mean == 581.0
    assert summarise([through, replace(stopped, seed=1)]).seeds == 2
    assert "Left out: 1 of plan2explore on cheetah_run (zero-shot probe: a)" in results_markdown([through, stopped])
    assert set(curve([through, stopped]).mean) == {476.0}


def test_adaptations_that_do_not_count_are_said():
    first = replace(RUN, protocol=OFFLINE, run="r", adaptation="old")
    results = [RUN, first, replace(first, adaptation="new"), replace(first, adaptation="newer", score=7.0)]
    text = results_markdown(results)
    assert "Left out: 2 of plan2explore on cheetah_run (zero-shot offline: new, old). Give one's folder or file" in text
    assert re.search(r"\| zero-shot offline +\| 500K +\| 7.0 +\| 1 +\| 10 ", text)
    assert "Left out" not in results_markdown([RUN, first])


def test_each_protocol_goes_to_its_table():
    few = replace(RUN, protocol=FEW_SHOT, env_steps=1_150_000, score=650.0)
    dreamer = replace(RUN, method="dreamer", protocol=SUPERVISED, score=800.0)
    stranger = replace(dreamer, protocol=PROBE, task="walker_walk")  # Dreamer with another task's data
    offline = replace(RUN, task="hopper_hop", protocol=OFFLINE)
    results = [RUN, few, dreamer, stranger, offline]
    first, second = table_cells(results, 1), table_cells(results, 2)
    assert {place: cell.mean for place, cell in first.items()} == {
        ("cheetah_run", "plan2explore"): 500.0,
        ("cheetah_run", "dreamer"): 800.0,
        ("hopper_hop", "plan2explore"): 500.0,
    }
    assert str(first["hopper_hop", "plan2explore"]) == "500.0 (1 seed, 500K, offline)"
    assert {place: cell.mean for place, cell in second.items()} == {
        ("cheetah_run", "plan2explore"): 650.0,
        ("cheetah_run", "dreamer"): 800.0,
    }


@pytest.mark.parametrize("number", [1, 2])
def test_the_layout_is_the_papers(number):
    lines = [line.strip("| ").split("|") for line in table_markdown([RUN], number).splitlines() if line.startswith("|")]
    rows = [[word.strip() for word in line] for line in lines]
    assert rows[0][1:] == ["Plan2Explore", "Curiosity", "Random", "MAX", "Retrospective", "Dreamer"]
    assert [row[0] for row in rows[2:4]] == ["Task-agnostic experience (paper)", "Task-specific experience (paper)"]
    assert [row[0] for row in rows[4:]] == [task.replace("_", " ").title() for task in paper_table(number)]
    cheetah = next(row for row in rows if row[0] == "Cheetah Run")
    assert cheetah[1] == ("500.0 (1 seed, 500K) / 784.45" if number == 1 else "missing / 697.8")
    assert cheetah[4] == "missing / 0.76"
    if number == 1:  # what the paper lacks is a dash
        cup = next(row for row in rows if row[0] == "Cup Catch")
        assert cup.count("missing / –") == 2 and sum(word.startswith("missing") for word in cup) == 6


def test_an_average_needs_every_task():
    tasks = [task for task in paper_table(2) if task != TASK_AVERAGE]
    results = [replace(RUN, task=task, protocol=FEW_SHOT, score=100.0 * index) for index, task in enumerate(tasks)]
    assert table_cells(results, 2)[TASK_AVERAGE, "plan2explore"].mean == 350.0
    assert (TASK_AVERAGE, "plan2explore") not in table_cells(results[1:], 2)
    assert "| 350.0 / 643.73" in table_markdown(results, 2)


def test_a_published_point_is_one_at_as_many_env_steps():
    assert published_at("cheetah_run", "plan2explore", PROBE, 500_010).mean == 490.7
    assert published_at("cheetah_run", "plan2explore", PROBE, 600_000) is None
    assert published_at("cheetah_run", "plan2explore", FEW_SHOT, 500_000) is None
    assert published_at("cheetah_run", "dreamer", SUPERVISED, 500_000).mean == 630.0
    assert published_at("cheetah_run", "dreamer", PROBE, 500_000) is None
    assert [steps_text(steps) for steps in (12, 13_500, 25_020, 325_020, 999_990, 1_150_000)] == [
        "12", "13.5K", "25K", "325K", "1M", "1.15M"
    ]  # fmt: skip


def test_files_say_what_is_printed(tmp_path, capsys):
    results = [RUN, replace(RUN, seed=1, score=600.0), replace(RUN, task="cheetah_run_backward")]
    append_results(tmp_path / "mine.csv", results)
    assert table([str(tmp_path / "mine.csv"), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "out" / "tables.md").read_text() == write_tables(results)
    assert "## Table 1" in printed and "## Table 2" not in printed  # nothing of ours is in that one
    assert not (tmp_path / "out" / "table_2.csv").exists()
    assert "| cheetah_run_backward | plan2explore | zero-shot probe | 500K " in printed
    assert re.search(r"\| cheetah_run +\|.*\| 491 ± 45 +\| 655 +\|", printed)
    assert re.search(r"\| cheetah_run_backward +\|.*\| missing +\| missing +\|", printed)
    assert "## Every result: mean of the last 20 evaluation episodes\n" in printed and "| Mean of last 20 |" in printed
    rows = list(csv.DictReader((tmp_path / "out" / "table_1.csv").read_text().splitlines()))
    assert len(rows) == 21 * len(METHODS)
    cheetah = next(row for row in rows if (row["task"], row["method"]) == ("cheetah_run", "plan2explore"))
    assert (cheetah["score"], cheetah["seeds"], cheetah["paper"]) == ("550.000", "2", "784.45")
    missing = next(row for row in rows if (row["task"], row["method"]) == ("cup_catch", "max"))
    assert missing["score"] == missing["paper"] == ""


def test_methods_are_compared_over_the_tasks_that_were_published():
    """Each task at its own env steps; what has no published score there does not count."""
    hopper = replace(RUN, task="hopper_stand", env_steps=250_020, score=300.0)  # published: 262.3
    others = [replace(RUN, task="cheetah_run_backward"), replace(RUN, method="random"), replace(RUN, env_steps=9, seed=5)]
    assert compare([RUN, hopper, *others[:2]]) == [("plan2explore", PROBE, 2, 400.0, pytest.approx(376.5))]
    assert compare(others) == []
    apart = compare([RUN, replace(hopper, protocol=OFFLINE), replace(RUN, method="dreamer", protocol=SUPERVISED)])
    assert [(each.method, each.protocol, each.tasks) for each in apart] == [
        ("dreamer", SUPERVISED, 1), ("plan2explore", PROBE, 1), ("plan2explore", OFFLINE, 1)
    ]  # fmt: skip
    told = results_markdown([RUN, hopper]).splitlines()[-1]
    assert told.startswith("Plan2Explore (zero-shot probe), 2 tasks with a published score at as many env steps: ")
    assert told.endswith(": mean 400.0 here, 376.5 published.")


def test_the_gate_is_the_published_mean(tmp_path, capsys):
    def gate(*results):
        file = tmp_path / "gate.csv"
        file.unlink(missing_ok=True)
        append_results(file, results)
        return table([str(file), "--gate", "2"]), table([str(file)]), capsys.readouterr().err

    hopper = replace(RUN, task="hopper_stand")
    assert gate(RUN, replace(hopper, score=560.0)) == (0, 0, "")
    status, without, said = gate(RUN, hopper)
    assert (status, without) == (1, 0)
    assert "below the published scores: Plan2Explore (zero-shot probe), 2 tasks" in said and "mean 500.0 here, 523.0" in said
    status, without, said = gate(replace(RUN, env_steps=300_000))
    assert (status, without) == (1, 0) and "gate: 0 tasks with a published score" in said
    status, without, said = gate(RUN)  # good, but the hopper is not there
    assert (status, without) == (1, 0) and "gate: 1 task with a published score" in said and ", not 2" in said


def test_the_stored_results_pass_the_gate():
    assert table([str(Path(__file__).parents[2] / "results" / "zero_shot.csv"), "--gate", "6"]) == 0


def test_the_command_wants_something_to_read():
    with pytest.raises(ValueError, match="plan2explore table RUN_OR_CSV"):
        table([])
