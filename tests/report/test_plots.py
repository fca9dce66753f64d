"""Figures draw the numbers that they are given, smoothed as in the paper."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from plan2explore.report.plots import cheetah_figure, curve, few_shot_figure, moving_mean, plot, zero_shot_figure
from plan2explore.runs.results import FEW_SHOT, OFFLINE, PROBE, SUPERVISED, Result, append_results

RUN = Result("cheetah_run", "plan2explore", PROBE, 0, 25_000, 100.0, 30.0, 10)


def seeds(task="cheetah_run", method="plan2explore", protocol=PROBE, count=3, start=0, until=100_000):
    """Scores of 100 a step, 10 more for each seed."""
    one = replace(RUN, task=task, method=method, protocol=protocol)
    return [
        replace(one, seed=seed, env_steps=start + steps, score=steps / 250 + 10 * seed)
        for seed in range(count)
        for steps in range(25_000, until + 1, 25_000)
    ]


def lines_of(axes, dashed=False):
    return [line for line in axes.get_lines() if len(line.get_xdata()) > 1 and (line.get_linestyle() == "-") != dashed]


def test_a_moving_mean_looks_back_over_20_episodes():
    results = [replace(RUN, env_steps=steps, score=score) for steps, score in ((1, 10.0), (2, 30.0), (3, 50.0))]
    steps, means = moving_mean(results[::-1])
    assert steps.tolist() == [1, 2, 3] and means.tolist() == [10.0, 20.0, 40.0]
    assert moving_mean(results, 5)[1].tolist() == [10.0, 30.0, 50.0]
    single = [replace(each, episodes=1) for each in results]
    assert moving_mean(single)[1].tolist() == [10.0, 20.0, 30.0]
    steps, means = moving_mean([RUN, replace(RUN, score=300.0)])  # two at one moment are one point
    assert steps.tolist() == [25_000] and means.tolist() == [200.0]


def test_a_curve_is_mean_and_spread_over_seeds_as_far_as_all_go():
    found = curve(seeds()[:-1], window=10)
    assert found.env_steps.tolist() == [25_000, 50_000, 75_000] and found.seeds == 3
    np.testing.assert_allclose(found.mean, [110.0, 210.0, 310.0])
    np.testing.assert_allclose(found.std, 10.0)
    shifted = [RUN, replace(RUN, env_steps=50_000, score=200.0), replace(RUN, seed=1, env_steps=37_500, score=170.0)]
    np.testing.assert_allclose(curve(shifted, window=10).mean, [160.0])
    assert curve([]) is None and curve([RUN, replace(RUN, seed=1, env_steps=99)]) is None


def test_the_zero_shot_figure_has_ours_and_the_published_curve():
    figure = zero_shot_figure(seeds() + seeds(method="dreamer", protocol=SUPERVISED) + seeds("walker_walk", count=1))
    cheetah, walker = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["Cheetah Run", "Walker Walk"]
    ours, dreamer = lines_of(cheetah)
    np.testing.assert_allclose(ours.get_ydata(), [110.0, 160.0, 260.0, 360.0])
    assert dreamer.get_color() != ours.get_color()
    published = next(line for line in lines_of(cheetah, dashed=True) if line.get_color() == ours.get_color())
    assert published.get_ydata()[:2].tolist() == [266.3, 490.7]
    bands = [each for each in cheetah.collections if type(each).__name__ == "FillBetweenPolyCollection"]
    assert len(bands) == 2  # of three seeds each; a single seed has no spread
    assert not [each for each in walker.collections if type(each).__name__ == "FillBetweenPolyCollection"]


def test_the_few_shot_figure_shades_one_adaptation_of_a_run():
    explored = seeds("hopper_hop", until=1_000_000)
    adapted = seeds("hopper_hop", protocol=FEW_SHOT, start=1_000_000, until=150_000)
    zero = [replace(RUN, task="hopper_hop", protocol=OFFLINE, env_steps=1_000_000)]
    figure = few_shot_figure(explored + adapted + zero)
    (axes,) = figure.axes
    (shade,) = axes.patches
    np.testing.assert_allclose([shade.get_x(), shade.get_x() + shade.get_width()], [1.0, 1.15])
    (few,) = (line for line in lines_of(axes) if line.get_label().startswith("Plan2Explore"))
    assert few.get_xdata()[0] == pytest.approx(1.025)
    assert few_shot_figure(explored) is None
    first, second = (seeds(protocol=FEW_SHOT, start=1_000_000, count=1) for _ in range(2))
    second = [replace(result, adaptation="second", score=7.0) for result in second]
    (axes,) = few_shot_figure(first + second).axes  # one adaptation of a run
    (few,) = (line for line in lines_of(axes) if line.get_label().startswith("Plan2Explore"))
    assert set(few.get_ydata()) == {7.0}


def test_a_mark_is_of_one_adaptation_of_each_seed():
    backward = replace(RUN, task="cheetah_run_backward", protocol=OFFLINE, env_steps=100_000, run="a", score=200.0)
    again, other = replace(backward, adaptation="again", score=800.0), replace(backward, seed=1, run="b", score=400.0)
    for results, mean, label in (([backward, again], 800.0, "1 seed"), ([backward, again, other], 600.0, "2 seeds")):
        axes = cheetah_figure([*seeds(), *results]).axes[1]
        (mark,) = (drawn for drawn in axes.containers if "named afterwards" in drawn.get_label())
        assert mark.lines[0].get_ydata().tolist() == [mean] and label in mark.get_label()


def test_the_cheetah_figure_marks_tasks_that_were_named_afterwards():
    backward = replace(RUN, task="cheetah_run_backward", protocol=OFFLINE, env_steps=100_000, score=375.9)
    figure = cheetah_figure([*seeds(), backward])
    assert [axes.get_title() for axes in figure.axes][0::3] == ["Cheetah Run", "Cheetah Flip Backward"]
    run, behind, *others = figure.axes
    assert lines_of(run)[0].get_ydata()[-1] == 410.0  # 5 episodes: no more than the last evaluation
    assert [line.get_ydata()[0] for line in behind.get_lines() if line.get_marker() == "D"] == [375.9]
    assert all(axes.texts[0].get_text() == "missing" for axes in others)
    assert cheetah_figure(seeds()) is None


def test_files_are_pictures_and_the_same_each_time(tmp_path, capsys):
    append_results(tmp_path / "mine.csv", [*seeds(), *seeds(protocol=FEW_SHOT, start=100_000)])
    for out in ("one", "two"):
        assert plot([str(tmp_path / "mine.csv"), "--out", str(tmp_path / out)]) == 0
        written = [tmp_path / out / name for name in ("zero_shot.png", "zero_shot.svg", "few_shot.png", "few_shot.svg")]
        assert capsys.readouterr().out.split() == list(map(str, written))
    for path in written:
        assert path.read_bytes() == (tmp_path / "one" / path.name).read_bytes()
    with Image.open(written[0]) as picture:
        assert picture.width > 600 and len(picture.convert("RGB").getcolors(1 << 20)) > 50


def test_nothing_to_draw_is_said(tmp_path):
    append_results(tmp_path / "mine.csv", [replace(RUN, protocol=OFFLINE)])
    with pytest.raises(ValueError, match="nothing to draw"):
        plot([str(tmp_path / "mine.csv"), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
