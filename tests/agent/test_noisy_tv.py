"""The paper's central claim: disagreement loses interest in noise, prediction error does not."""

import runpy
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "noisy_tv.py"
HALL, TELEVISION, CELLAR = range(3)


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def curves(script):
    """Measures in each room: at first, just before the cellar opens, and at the end."""
    curves = script["run"](updates=2000)
    moments = {"first": slice(0, 1), "before": slice(950, 1000), "last": slice(1950, 2000)}
    return {
        name: {moment: values[where].mean(0) for moment, where in moments.items()}
        for name, values in curves._asdict().items()
    }


def test_disagreement_falls_on_noise_as_it_does_on_what_can_be_learned(curves):
    disagreement = curves["disagreement"]
    for room in (HALL, TELEVISION):
        assert disagreement["before"][room] < disagreement["first"][room] / 10
    # The noise has variance 1: next to it, what is left is nothing.
    assert disagreement["before"][TELEVISION] < 0.003


def test_prediction_error_stays_high_on_noise(curves):
    error = curves["error"]
    assert error["first"][TELEVISION] > 0.9 and error["last"][TELEVISION] > 0.9
    assert error["last"][HALL] < error["first"][HALL] / 10
    assert error["last"][TELEVISION] > 20 * error["last"][HALL]


def test_unseen_states_are_where_the_members_disagree_until_they_are_seen(curves):
    before, last = curves["disagreement"]["before"], curves["disagreement"]["last"]
    assert before[CELLAR] > 10 * max(before[HALL], before[TELEVISION])
    assert last[CELLAR] < before[CELLAR] / 10


def test_the_curves_can_be_drawn(script, tmp_path):
    values = np.abs(np.random.default_rng(0).normal(size=(120, 3)))
    script["draw"](script["Curves"](values, values), str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").stat().st_size > 1000
