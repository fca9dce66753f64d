"""Drawings take the page's colours, and hold what they were given."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from plan2explore.report.figures import SERIES, Line, curves, density, far_apart


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


def test_the_last_point_of_a_long_curve_is_drawn():
    y = np.random.default_rng(0).uniform(0, 1, 5001)
    y[-1] = 5.0
    drawing = curves([Line("", np.arange(5001), y)], "x", "y")
    (path,) = re.findall(r'<path d="([^"]+)"[^>]*stroke: var\(--s1\)', drawing)
    heights = [float(each) for each in re.findall(r"[ML] \S+ (\S+)", path)]
    assert 300 < len(heights) <= 602 and heights[-1] == min(heights)


def test_logarithms_are_for_numbers_far_apart():
    assert far_apart([Line("", [0, 1], [1, 20]), Line("", [0], [40])])
    assert not far_apart([Line("", [0, 1], [1, 20])])
    assert not far_apart([Line("", [0, 1], [0, 2000])])
    assert not far_apart([])
    assert "mathdefault" not in curves([Line("", [0, 1], [1, 2000])], "x", "y", logarithmic=True)


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
