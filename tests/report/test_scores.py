"""Scores stand beside the paper's, with intervals, at the env steps that they belong to."""

import html
import json
import re
import shutil

import pytest
from small_run import TASK, score

from plan2explore.reference import paper_scores
from plan2explore.report.run import Missing, open_runs
from plan2explore.report.scores import find_scores, scores
from plan2explore.runs.folder import RunFolder


def test_dreamers_own_task_is_supervised_in_the_report_too(copied):
    text = (copied / "run.json").read_text()
    (copied / "run.json").write_text(text.replace('"objective": "plan2explore"', '"objective": "dreamer"'))
    shown = scores(open_runs([copied])[0])
    assert "supervised" in shown and "zero-shot probe" not in shown
    assert f"{paper_scores(TASK)['dreamer']:.0f} (dreamer, 3.5M)" in html.unescape(shown)


def test_probes_and_adaptations_stand_beside_the_papers_scores(small_runs, copied):
    probe, offline = find_scores(open_runs(small_runs[:1])[0][0])
    assert (probe.last.task, probe.last.protocol, len(probe.evaluations)) == (TASK, "zero-shot probe", 3)
    assert (offline.last.protocol, offline.last.env_steps, offline.last.score) == ("zero-shot offline", 3000, 127.0)
    shutil.copytree(copied / "adapt" / TASK, copied / "adapt" / "longer")
    shown = scores(open_runs([copied])[0])  # adaptations to one task are told apart
    assert shown.count(">copy (plan2explore)<") == 2 and ">copy (plan2explore), adapt/longer<" in shown
    shown = scores(open_runs(small_runs)[0])
    for method in ("plan2explore", "random"):
        assert f"{paper_scores(TASK)[method]:.0f} ({method}, 3.5M)" in shown
    assert ">36.0<" in shown and ">127.0<" in shown and "123.0 to 131.0" in shown
    assert "published plan2explore" not in shown and "Dotted" not in shown  # those curves begin later than these runs end


def test_one_or_two_episodes_have_no_interval(copied):
    score(RunFolder.open(copied), TASK, [30.0, 42.0], 4000)
    shown = scores(open_runs([copied])[0])
    assert "too few episodes" in shown and "30.0 to 42.0" not in shown and intervals(shown) == [None] * 4
    for steps in (5000, 6000):
        score(RunFolder.open(copied), TASK, [30.0, 42.0, 42.0], steps)
    shown = scores(open_runs([copied])[0])
    assert "too few episodes" not in shown and "30.0 to 42.0" in shown and intervals(shown) == [None] * 4 + [30.0] * 2


def intervals(shown: str) -> list[float | None]:
    """The lower ends in the first chart's line of the probe."""
    (told, *_) = re.findall(r'data-chart="([^"]+)"', shown)
    return json.loads(html.unescape(told))["lines"][1]["low"]


def test_bars_compare_methods_and_put_seeds_together(small_runs, copied):
    score(RunFolder.open(copied), TASK, [76.0] * 3, 4000)
    shown = html.unescape(scores(open_runs([*small_runs, copied])[0]))
    assert "<span>plan2explore, zero-shot probe, 2 runs</span>" in shown and "<span>56.0 (36 to 76)</span>" in shown
    assert "<span>second (random), zero-shot probe</span>" in shown
    mark, scale = paper_scores(TASK)["plan2explore"], paper_scores(TASK)["plan2explore"]
    assert f'<i class="mark" style="left:{100 * mark / scale:.2f}%">' in shown


def test_published_curves_are_drawn_where_a_run_comes_near_them(copied):
    score(RunFolder.open(copied), TASK, [500.0, 520.0], 400_000)
    shown = scores(open_runs([copied])[0])
    assert "published plan2explore" in shown and "published dreamer" in shown and "Dotted" in shown


def test_a_task_that_the_paper_does_not_have(copied):
    score(RunFolder.open(copied), "moonwalk", [5.0], 2000)
    shown = scores(open_runs([copied])[0])
    assert "not in the paper" in shown and "moonwalk" in shown and "longer upright line" in shown
    score(RunFolder.open(other := shutil.copytree(copied, copied.parent / "other")), "moonwalk", [5.0], 2000)
    for file in (other / "evaluations.jsonl", other / "adapt" / TASK / "evaluations.jsonl"):
        file.write_text(file.read_text().replace(TASK, "moonwalk"))
    assert "longer upright line" not in scores(open_runs([other])[0])


def test_points_alone_are_not_drawn(copied):
    assert scores(open_runs([copied])[0]).count("<figure") == 1
    lines = (copied / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (copied / "evaluations.jsonl").write_text(lines[-1])
    shown = scores(open_runs([copied])[0])
    assert "<figure" not in shown and "Dotted" not in shown and ">36.0<" in shown


def test_an_adaptation_without_an_evaluation_or_an_end_is_named(copied):
    shown = scores(open_runs([copied])[0])
    assert "without an evaluation" not in shown and "unfinished" not in shown
    (copied / "adapt" / TASK / "evaluations.jsonl").unlink()
    sentence = f"copy (plan2explore): without an evaluation, so without a score here: adapt/{TASK}."
    assert sentence in scores(open_runs([copied])[0])
    (copied / "evaluations.jsonl").unlink()  # nothing else was evaluated either
    assert sentence in scores(open_runs([copied])[0])
    (copied / "adapt" / TASK / "finished").unlink()
    assert f"the adaptation to {TASK} in adapt/{TASK} is unfinished" in scores(open_runs([copied])[0])
    shutil.rmtree(copied / "adapt")
    with pytest.raises(Missing, match="Nothing was evaluated"):
        scores(open_runs([copied])[0])
