"""The quick reward shape is dm_control's, number for number."""

import numpy as np
import pytest

from plan2explore.envs.tolerance import _original, tolerance

BOUNDS = [(0.0, 0.0), (1.0, 2.0), (-0.5, np.inf), (-np.inf, 0.3)]


@pytest.mark.parametrize("sigmoid", ["gaussian", "linear", "quadratic", "long_tail", "cosine", "tanh_squared"])
@pytest.mark.parametrize("margin", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_same_value_as_dm_control(sigmoid, margin, bounds):
    for x in np.random.default_rng(0).normal(0, 3, 40):
        for value in (0.1, 0.5):
            expected = _original(x, bounds, margin, sigmoid, value)
            assert tolerance(x, bounds, margin, sigmoid, value) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 2), (40,)])
def test_arrays_keep_their_shape(shape):
    x = np.random.default_rng(1).normal(0, 2, shape)
    result = tolerance(x, (0.2, 0.4), 1.0, "quadratic", 0.0)
    assert result.shape == shape
    np.testing.assert_allclose(result, _original(x, (0.2, 0.4), 1.0, "quadratic", 0.0), atol=1e-14)


def test_not_a_number_and_wrong_arguments_go_to_dm_control():
    assert np.isnan(tolerance(np.nan, (0, 1), 1.0)) == np.isnan(_original(np.nan, (0, 1), 1.0))
    for arguments in [dict(bounds=(1, 0)), dict(margin=-1.0), dict(margin=1.0, sigmoid="bell")]:
        with pytest.raises(ValueError):
            tolerance(0.5, **arguments)
