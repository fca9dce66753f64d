"""Peaks of disagreement are moments apart."""

import numpy as np

from plan2explore.report.curiosity import peaks


def test_peaks_are_the_highest_moments_and_not_neighbours():
    along = np.zeros(100)
    along[[10, 11, 12, 50, 90]] = [5, 9, 6, 3, 4]
    assert peaks(along, 3).tolist() == [11, 50, 90]


def test_peaks_of_little_or_nothing():
    assert peaks(np.array([1.0]), 6).tolist() == [0]
    assert peaks(np.zeros(0), 6).tolist() == []
    assert peaks(np.array([np.nan, 2.0, np.nan]), 6).tolist() == [1]
