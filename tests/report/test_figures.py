"""Drawings take the page's colours, and hold what they were given."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from plan2explore.report.figures import SERIES, Line, curves, density, far_apart, outside, upright_axis


def test_curves_have_the_pages_colours():
    drawing = curves([Line("a", [0, 1], [1, 2], [0, 1], [2, 3]), Line("b", [0, 1], [2, 1], colour=1)], "x", "y")
    assert "currentColor" in drawing and "var(--s1)" in drawing and "var(--s2)" in drawing
    assert not any(colour in drawing for colour in SERIES)
    assert not re.search("(stroke|fill): #(000000|ffffff)", drawing)


def test_names_are_text_whatever_they_are():
    drawing = curves([Line("<b>$\\frac$--></svg>", [0, 1], [1, 2]), Line("b", [0], [1])], "<x>", "$y")
    words = "".join(ET.fromstring(drawing).itertext())
    assert "<b>$\\frac$--></svg>" in words and "<x>" in words and "$y" in words


def test_two_drawings_share_no_names():
    one, other = (curves([Line("a", [0, 1], [1, y])], "x", "y") for y in (2, 3))
    names = [set(re.findall(r'\bid="([^"]+)"', drawing)) for drawing in (one, other)]
    assert names[0] and not names[0] & names[1]
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', one))
    assert used and used <= names[0]


def heights(drawing):
    """Of the points of the first curve, from above."""
    (path,) = re.findall(r'<path d="([^"]+)"[^>]*stroke: var\(--s1\)', drawing)
    return [float(each) for each in re.findall(r"[ML] \S+ (\S+)", path)]


def test_the_last_point_of_a_long_curve_is_drawn():
    y = np.random.default_rng(0).uniform(0, 1, 5001)
    y[-1] = 5.0
    drawing = curves([Line("", np.arange(5001), y)], "x", "y")
    drawn = heights(drawing)
    assert 300 < len(drawn) <= 602 and drawn[-1] == min(drawn)


def test_logarithms_are_for_numbers_far_apart():
    assert far_apart([Line("", [0, 1], [1, 20]), Line("", [0], [40])])
    assert not far_apart([Line("", [0, 1], [1, 20])])
    assert not far_apart([Line("", [0, 1], [0, 2000])])
    assert not far_apart([])
    assert "mathdefault" not in curves([Line("", [0, 1], [1, 2000])], "x", "y", logarithmic=True)


FALLING = [12.0, 5.3, 4.3, 3.9, 3.8, 3.8, 3.6, 3.7, 4.1, 3.9, 4.6, 4.0, 3.8, 3.7, 3.9, 3.7, 3.8, 3.7, 3.8, 3.6]


def test_a_steep_beginning_leaves_the_axes():
    line = Line("", np.arange(20), FALLING)
    logarithmic, limits = upright_axis([line])
    assert not logarithmic and 3.3 < limits[0] < 3.6 and 4.6 < limits[1] < 5
    assert outside([line], limits) == ". Outside the axes: 2 points (5.3 to 12)"
    before, after = (heights(curves([line], "x", "y", limits=each)) for each in (None, limits))
    assert np.ptp(after[2:]) > 4 * np.ptp(before[2:])


def test_points_at_the_first_env_step_are_the_beginning():
    x = [5000] * 5 + list(range(6000, 21_000, 1000))
    line = Line("", x, [12.0, 9.0, 8.0, 8.0, 7.0, *FALLING[5:]])
    assert upright_axis([line])[1] is not None
    assert upright_axis([Line("", np.arange(20), line.y)])[1] is None


def test_few_points_are_all_shown():
    x = [5000] * 6 + [5500, 6000]
    line = Line("", x, [0.6, 2.9, 13.0, 62.0, 111.0, 95.0, 37.0, 18.0])
    assert upright_axis([line])[1] is None


def test_a_far_beginning_needs_no_logarithms_when_it_is_outside():
    line = Line("", np.arange(20), [3000.0, *FALLING[1:]])
    logarithmic, limits = upright_axis([line])
    assert not logarithmic and limits[1] < 10 and "(5.3 to 3k)" in outside([line], limits)


@pytest.mark.parametrize(
    "y", [np.linspace(5, 1, 50), 1 / np.arange(1, 200), np.full(9, 2.0), [1.0, 50.0], [7.0], [0.0] * 50 + [1.0]]
)
def test_axes_that_show_enough_are_not_cut(y):
    line = Line("", np.arange(len(y)), y)
    assert upright_axis([line])[1] is None and outside([line], None) == ""


def test_the_end_of_every_curve_is_inside():
    noise = np.append(0.0, np.random.default_rng(0).uniform(0, 1, 299))
    rising, steady = noise.copy(), Line("", np.arange(300), noise + 30)
    rising[-1], rising[100], rising[1] = 9.0, 500.0, 900.0
    _, limits = upright_axis([Line("", np.arange(300), rising), steady])
    assert limits[0] < 0.1 and 31 < limits[1] < 40
    _, limits = upright_axis([Line("", np.arange(300), rising)])
    assert 9 < limits[1] < 11 and "2 points (500 to 900)" in outside([Line("", np.arange(300), rising)], limits)


@pytest.mark.parametrize("count", [1, 1000])
def test_cells_never_visited_are_left_open(count):
    from base64 import b64decode
    from io import BytesIO

    from PIL import Image

    counts = np.zeros((4, 3), int)
    counts[3, 0] = count
    drawing = density(counts, ("across", -1.0, 1.0), ("up", 0.0, 2.0))
    (data,) = re.findall(r"data:image/png;base64,\s*([^\"]+)", drawing)
    picture = np.asarray(Image.open(BytesIO(b64decode(data))).convert("RGBA"))
    assert picture.shape[:2] == (3, 4)
    seen = picture[..., 3] > 0
    assert seen.sum() == 1 and seen[:, 3].any() and seen[[0, 2]].any()
