"""The grid on which planes are lit."""

import numba
import numpy as np
import pytest

from mjraycast import planes as module


@numba.njit
def grid(half, spacing, endless=0.0):
    return module.grid(half, spacing, endless)


@numba.njit
def grid_line(index, half, cells, outer, inner):
    return module.grid_line(index, half, cells, outer, inner)


@numba.njit
def grid_cell(x, half, cells, outer, inner):
    return module.grid_cell(x, half, cells, outer, inner)


@pytest.mark.parametrize("half", [0.02, 0.3, 0.8, 4.0, 100.0])
@pytest.mark.parametrize("spacing", [0.02, 0.1, 0.5, 10.0])
def test_the_grid_spans_the_plane_and_every_point_has_its_cell(half, spacing):
    cells, outer, inner = grid(half, spacing)
    assert 2 <= cells <= module.MOST_CELLS
    lines = np.array([grid_line(index, half, cells, outer, inner) for index in range(cells + 1)])
    assert lines[0] == -half
    assert lines[-1] == half
    assert np.all(np.diff(lines) >= -1e-9)
    np.testing.assert_allclose(lines, -lines[::-1], atol=1e-9)
    for x in np.random.default_rng(0).uniform(-half, half, 50):
        index, place = grid_cell(x, half, cells, outer, inner)
        assert -1e-6 <= place <= 1 + 1e-6
        assert lines[index] + place * (lines[index + 1] - lines[index]) == pytest.approx(x, abs=1e-6 * half)


def test_cells_are_as_wide_as_the_plane_asks_unless_there_would_be_too_many():
    assert grid(4.0, 0.5) == (10, 0.0, 1.0)
    assert grid(0.8, 0.5) == (2, 0.8, 1.0)
    cells, _, inner = grid(100.0, 0.001)
    assert cells == module.MOST_CELLS
    assert inner == pytest.approx(200 / 198)
    assert grid(50.0, 0.1, 1.0) == (module.MOST_CELLS, 0.5, 0.5), "an infinite plane has equal cells"
