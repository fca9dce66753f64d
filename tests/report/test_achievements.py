"""Crafter's metric on numbers worked out by hand, and what is read out of episodes."""

import pytest

from plan2explore.reference import crafter_scoreboard
from plan2explore.report.achievements import crafter_markdown, crafter_score
from plan2explore.runs.results import ACHIEVEMENTS, Result


def test_the_score_is_the_geometric_mean_of_one_plus_the_rates_less_one():
    assert crafter_score([0, 0]) == 0 and crafter_score([100] * 22) == pytest.approx(100)
    assert crafter_score([3, 0]) == pytest.approx(1)  # sqrt(4 x 1) - 1
    assert crafter_score([1, 7, 7, 1]) == pytest.approx(3)  # (2 x 8 x 8 x 2) ** (1/4) - 1
    assert crafter_score([100] + [0] * 21) == pytest.approx(101 ** (1 / 22) - 1)


def test_the_table_has_the_mean_over_seeds_of_the_longest_runs_beside_the_scoreboard():
    def result(method, seed, steps, score, run):
        return Result("crafter", method, ACHIEVEMENTS, seed, steps, score, 0.0, 10, run=run)

    results = [
        result("random", 0, 500, 9.0, "a"), result("random", 0, 1000, 1.0, "a"), result("random", 1, 1010, 2.0, "b"),
        result("plan2explore", 0, 1000, 3.0, "c"), Result("walker_walk", "random", "zero-shot probe", 0, 9, 9.0, 0.0, 1),
    ]  # fmt: skip
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in crafter_markdown(results).splitlines()]
    assert rows[2] == ["plan2explore, here", "1,000", "1", "10", "3.00"]
    assert rows[3] == ["random, here", "1,000", "2", "20", "1.50 ± 0.50"]
    assert rows[4] == ["plan2explore (DreamerV2), scoreboard", "1,000,000", "", "", "2.1 ± 0.1"] and len(rows) == 7


def test_the_scoreboard_has_the_agents_without_reward():
    assert crafter_scoreboard() == {"plan2explore (DreamerV2)": (2.1, 0.1), "rnd": (2.0, 0.1), "random": (1.6, 0.0)}
