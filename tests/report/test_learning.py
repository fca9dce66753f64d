"""Curves of learning: a line for each run that has the metric."""

import re

import numpy as np
import pytest
from episodes import record_random

from plan2explore.report.frames import frames_of
from plan2explore.report.learning import imagined_states, learning, metric_lines
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


def test_an_imagined_vector_is_drawn_where_it_is_the_whole_state():
    episode = record_random("maze_u", size=16, action_repeat=25)
    part = slice(10, 20)
    states = imagined_states(episode, part, episode.proprio[part])
    np.testing.assert_allclose(states, episode.last_states()[part], atol=1e-6)
    true = frames_of(episode, part)
    np.testing.assert_array_equal(frames_of(episode, part, episode.last_states()[part]), true)
    elsewhere = frames_of(episode, part, imagined_states(episode, part, np.zeros_like(episode.proprio[part])))
    assert (elsewhere != true).any((1, 2, 3)).all()
    assert imagined_states(record_random("cartpole", size=16, action_repeat=100), slice(0, 3), np.zeros((3, 5))) is None
