"""Peaks of disagreement are moments apart; what a model imagines is drawn where it can be."""

import numpy as np
from episodes import record_random

from plan2explore.report.frames import frames_of
from plan2explore.report.inspection import imagined_states, peaks


def test_peaks_are_the_highest_moments_and_not_neighbours():
    along = np.zeros(100)
    along[[10, 11, 12, 50, 90]] = [5, 9, 6, 3, 4]
    assert peaks(along, 3).tolist() == [11, 50, 90]
    assert peaks(np.array([1.0]), 6).tolist() == [0]
    assert peaks(np.zeros(0), 6).tolist() == []
    assert peaks(np.array([np.nan, 2.0, np.nan]), 6).tolist() == [1]


def test_an_imagined_vector_is_drawn_where_it_is_the_whole_state():
    episode = record_random("maze_u", size=16, action_repeat=25)
    part = slice(10, 20)
    states = imagined_states(episode, part, episode.proprio[part])
    np.testing.assert_allclose(states, episode.last_states()[part], atol=1e-6)
    true = frames_of(episode, part)
    np.testing.assert_array_equal(frames_of(episode, part, episode.last_states()[part]), true)
    elsewhere = frames_of(episode, part, imagined_states(episode, part, np.zeros_like(episode.proprio[part])))
    assert (elsewhere != true).any((1, 2, 3)).all()
    assert imagined_states(record_random("cartpole", size=16, action_repeat=100), slice(0, 3), np.zeros((3, 5))) is None
