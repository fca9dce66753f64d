"""Curves of learning: what came after a steep beginning can be seen, and what is outside the axes is told."""

import shutil

from plan2explore.report.explored import open_runs
from plan2explore.report.learning import learning
from plan2explore.runs.files import append_line


def test_a_beginning_that_is_outside_the_axes_is_told(small_runs, tmp_path):
    path = shutil.copytree(small_runs[0], tmp_path / "copy")
    assert "Outside the axes" not in learning(open_runs([path])[0])
    (path / "metrics.jsonl").unlink()
    for number in range(20):
        losses = {"model/loss": 1500.0 if number == 0 else 4.0 - 0.1 * number, "model/kl": 3.0 - 0.1 * number}
        append_line(path / "metrics.jsonl", {"env_steps": 1000 * number, "time": 1.0, **losses})
    shown = learning(open_runs([path])[0])
    assert "The world model&#x27;s loss. Outside the axes: 1 point (1.5k)</figcaption>" in shown
    assert shown.count("Outside the axes") == 1
