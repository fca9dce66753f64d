"""Charts hold the numbers that they were given, and names stay text."""

import html
import json
import re

import numpy as np

from plan2explore.report.charts import MOST_POINTS, Bar, Line, bars, chart, scatter


def told(shown: str) -> dict:
    (content,) = re.findall(r'data-chart="([^"]+)"', shown)
    return json.loads(html.unescape(content))


def test_a_chart_holds_its_lines():
    line = Line("a", [0, 1], [1.23456789, np.nan], [0, np.inf], [2, 3], colour=4, group="g")
    found = told(chart([line, Line("b", [5], [7], quiet=True)], "env steps", "score", "caption"))
    assert (found["x"], found["y"]) == ("env steps", "score")
    assert found["lines"][0] == {
        "x": [0, 1], "y": [1.2346, None], "low": [0, None], "high": [2, 3],
        "label": "a", "colour": 4, "quiet": False, "points": False, "group": "g",
    }  # fmt: skip
    assert found["lines"][1]["quiet"] and "low" not in found["lines"][1]


def test_the_last_point_of_a_long_curve_is_kept():
    (line,) = told(chart([Line("", np.arange(5001), np.arange(5001.0))], "x", "y", ""))["lines"]
    assert MOST_POINTS / 2 < len(line["x"]) <= MOST_POINTS + 1 and (line["x"][0], line["x"][-1]) == (0, 5000)


def test_names_are_text_whatever_they_are():
    evil = "</script><b>\"'&"
    shown = chart([Line(evil, [0], [1])], evil, "y", evil)
    assert "<b>" not in shown and "</script>" not in shown and told(shown)["lines"][0]["label"] == evil


def test_a_scatter_plot_has_a_value_and_a_word_for_each_point():
    found = told(scatter(np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([0.0, 1.0]), ["one", "two"], "x", "y", ""))
    assert found["values"] == [0, 1] and found["about"] == ["one", "two"] and found["lines"][0]["y"] == [1, 3]


def test_bars_share_a_scale():
    shown = bars("task", [Bar("a", 50, 25, 75), Bar("b", 100, mark=150, colour=7), Bar("c", -50)], least=150)
    assert re.findall(r'<i style="left:([\d.]+)%;width:([\d.]+)%;background:var\(--s(\d)\)', shown) == [
        ("25.00", "25.00", "1"), ("25.00", "50.00", "2"), ("0.00", "25.00", "1"),
    ]  # fmt: skip
    assert 'class="range" style="left:37.50%;width:25.00%"' in shown and 'class="mark" style="left:100.00%"' in shown
    assert "50.0 (25 to 75)" in shown
    for value in (0.0, -3.0):
        assert "nan" not in bars("task", [Bar("a", value)])
