"""Every objective on the whole way: exploration with a probe, continued later, then a task zero-shot and few-shot.
`PLAN2EXPLORE_WRITE_DOCS=1` writes the table in docs/combinations.md anew."""

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from nano import TASKS, assert_same_arrays, evaluations, in_turn, nano_adapt, nano_explore, parameters
from sizes import NANO, quick

import plan2explore as p2e
from plan2explore.agent.intrinsic import OBJECTIVES

pytestmark = pytest.mark.xdist_group("methods")

PAGE, BEGIN, END = Path(__file__).parents[2] / "docs" / "combinations.md", "<!-- whole way -->\n", "<!-- end -->\n"
ROWS = [(objective, ("imagination", "replay")[i % 2]) for i, objective in enumerate(OBJECTIVES)]
ROWS += [("plan2explore", "replay")]


@pytest.fixture(scope="module")
def whole_way(tmp_path_factory):
    """What each row did."""

    @cache
    def go(objective: str, source: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp(objective)
        agent = replace(NANO, adapt_from=source, intrinsic=replace(NANO.intrinsic, objective=objective))
        config = replace(in_turn(), agent=agent)
        with quick():
            run = nano_explore(folder / "run", config, 3000)
            nano_explore(folder / "parts", config, 2000)
            assert_same_arrays(parameters(run), parameters(nano_explore(folder / "parts", config, 3000)))
            scores = [line for line in evaluations(run) if line["task"] == TASKS[0]]
            labels = [p2e.relabel(episode, p2e.Task.named(TASKS[0])) for episode in run.episodes()]
            assert len(scores) == 2 and len(labels) == 3 and all(np.any(rewards) for rewards in labels)
            policies = [nano_adapt(run, shots=shots) for shots in (0, 2)]
            collected = [len(list((policy.path / "episodes").glob("*.npz"))) for policy in policies]
            assert all(evaluations(policy.path) for policy in policies)
        return {
            "probe": f"{len(scores)} evaluations",
            "continued": "same bits",
            "relabelled": f"{len(labels)} episodes",
            "zero-shot": f"learned from {source}, {collected[0]} episodes collected",
            "few-shot": f"{collected[1]} episodes collected",
        }

    return go


@pytest.mark.parametrize(("objective", "source"), ROWS)
def test_an_objective_goes_the_whole_way(whole_way, objective, source):
    assert whole_way(objective, source)["few-shot"] == "2 episodes collected"


def test_the_page_tells_the_whole_way(whole_way):
    found = {row: whole_way(*row) for row in ROWS}
    titles = ["objective", *next(iter(found.values()))]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join([f"`{objective}`", *told.values()]) + " |" for (objective, _), told in found.items()]
    table = "\n".join(lines) + "\n"
    before, _, rest = PAGE.read_text().partition(BEGIN)
    if os.environ.get("PLAN2EXPLORE_WRITE_DOCS"):
        PAGE.write_text(before + BEGIN + table + END + rest.partition(END)[2])
    assert table in PAGE.read_text(), "set PLAN2EXPLORE_WRITE_DOCS=1 to write docs/combinations.md anew"
