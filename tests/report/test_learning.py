"""Curves of learning: a line for each run that has the metric."""

import re

import pytest

from plan2explore.report.learning import learning, metric_lines
from plan2explore.report.run import Missing, open_runs


def test_a_metric_of_several_runs_is_one_chart(small_runs):
    every, _ = open_runs(small_runs)
    first, second = metric_lines(every, "model/loss")
    assert (list(first.x), list(first.y)) == ([750, 1500, 2250, 3000], [9.0, 4.5, 3.0, 2.25])
    assert (first.group, second.group, first.colour, second.colour) == ("plan2explore", "random", 0, 1)
    shown = learning(every)
    assert shown.count("data-chart") == 5 and "Loss of the world model (model/loss)" in shown


def test_metrics_of_version_0_1_are_read_under_their_names_of_today(small_runs, copied):
    run = copied
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text().replace('"intrinsic/', '"novelty/'))
    older, today = (metric_lines(open_runs([each])[0], "intrinsic/loss") for each in (run, small_runs[0]))
    assert list(older[0].y) == list(today[0].y) == [3.0, 1.5, 1.0, 0.75]


def test_curves_of_a_run_that_made_no_env_step_are_over_updates(copied):
    run = copied
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text(
        "".join(re.sub(r'"env_steps": \d+', '"env_steps": 3000', line) + "\n" for line in lines)
    )
    shown = learning(open_runs([run])[0])
    assert "&quot;updates&quot;" in shown and "env steps" not in shown and "[10.0,20.0,30.0,40.0]" in shown
    (run / "metrics.jsonl").write_text(lines[0] + "\n")
    with pytest.raises(Missing):  # a point alone is no curve
        learning(open_runs([run])[0])
    (run / "metrics.jsonl").unlink()
    with pytest.raises(Missing):
        learning(open_runs([run])[0])
