"""Every piece with every other: a nano update for combinations in which each pair of choices occurs, and the page that
tells them. `PLAN2EXPLORE_WRITE_DOCS=1` writes docs/combinations.md anew."""

import os
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from handmade import MODERN, PAPER, Arrays, change, random_state

from plan2explore.agent.intrinsic import OBJECTIVES
from plan2explore.agent.learner import Learner, check_finite
from plan2explore.agent.world_model import Observation
from plan2explore.config import Spaces, check_numbers

pytestmark = pytest.mark.xdist_group("combinations")

PAGE, NEXT = Path(__file__).parents[3] / "docs" / "combinations.md", "\n## The whole way\n"
ACTIONS = {"continuous": (), "discrete": (3,), "multi-discrete": (3, 2)}
PIECES = {"paper": PAPER, "modern": MODERN}
BATCH, LENGTH, IMAGE, VECTOR = 2, 4, 16, 3


class Combination(NamedTuple):
    """Choices of a user, and of their world."""

    objective: str
    actions: str
    observation: str
    terminates: str
    pieces: str
    actor_gradient: str
    precision: str


COMBINATIONS = [
    Combination(*row)
    for row in (
        ("plan2explore", "continuous", "image", "no", "paper", "reinforce", "float32"),
        ("plan2explore", "discrete", "both", "yes", "modern", "through", "bfloat16"),
        ("retrospective", "continuous", "image", "yes", "modern", "reinforce", "float32"),
        ("retrospective", "multi-discrete", "both", "no", "paper", "through", "bfloat16"),
        ("max", "continuous", "image", "yes", "modern", "through", "bfloat16"),
        ("max", "discrete", "vector", "no", "paper", "reinforce", "float32"),
        ("curiosity", "continuous", "both", "yes", "paper", "through", "bfloat16"),
        ("curiosity", "multi-discrete", "image", "no", "modern", "reinforce", "float32"),
        ("random", "continuous", "vector", "no", "paper", "through", "float32"),
        ("random", "discrete", "image", "yes", "modern", "reinforce", "bfloat16"),
        ("dreamer", "continuous", "both", "no", "paper", "reinforce", "float32"),
        ("dreamer", "multi-discrete", "vector", "yes", "modern", "through", "bfloat16"),
    )
]


def pairs(rows: list[Combination], names: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Pairs of choices that occur."""
    return {
        (one, getattr(row, one), other, getattr(row, other)) for row in rows for one, other in combinations(names, 2)
    }  # fmt: skip


def test_each_pair_of_choices_occurs():
    others = Combination._fields[1:]
    choices = {name: {getattr(row, name) for row in COMBINATIONS} for name in Combination._fields}
    assert choices["objective"] == set(OBJECTIVES) and choices["actions"] == set(ACTIONS)
    expected = {
        (one, a, other, b) for one, other in combinations(others, 2) for a in choices[one] for b in choices[other]
    }  # fmt: skip
    assert pairs(COMBINATIONS, others) == expected
    for name in ("terminates", "pieces", "actor_gradient", "precision"):
        found = pairs(COMBINATIONS, ("objective", name))
        assert len(found) == len(OBJECTIVES) * len(choices[name])


def spaces_of(row: Combination) -> Spaces:
    discrete = ACTIONS[row.actions]
    return Spaces(
        action=sum(discrete) or 2,
        image=None if row.observation == "vector" else IMAGE,
        proprio=None if row.observation == "image" else VECTOR,
        tasks=2,
        discrete=discrete,
        terminates=row.terminates == "yes",
    )


def random_actions(rng: np.random.Generator, spaces: Spaces, *shape: int) -> np.ndarray:
    if not spaces.discrete:
        return rng.uniform(-1, 1, (*shape, spaces.action)).astype(np.float32)
    return np.concatenate([np.eye(n, dtype=np.float32)[rng.integers(n, size=shape)] for n in spaces.discrete], -1)


def random_batch(spaces: Spaces, seed: int) -> Arrays:
    rng, shape = np.random.default_rng(seed), (BATCH, LENGTH)
    ends = np.zeros(shape, bool)
    ends[0, 1] = spaces.terminates
    return {
        "image": rng.integers(0, 256, (*shape, IMAGE, IMAGE, 3), dtype=np.uint8),
        "proprio": rng.normal(size=(*shape, VECTOR)).astype(np.float32),
        "action": random_actions(rng, spaces, *shape),
        "reward": rng.normal(size=(*shape, 2)).astype(np.float32),
        "is_first": np.roll(ends, 1, 1),
        "is_terminal": ends,
    }


class Outcome(NamedTuple):
    """What two updates did."""

    metrics: dict[str, float]
    learned: list[str]
    """Networks that changed, in each of their arrays."""
    actions: np.ndarray


@cache
def outcome(row: Combination) -> Outcome:
    spaces = spaces_of(row)
    config = change(
        PIECES[row.pieces],
        intrinsic=dict(objective=row.objective),
        actor_critic=dict(actor_gradient=row.actor_gradient),
        precision=row.precision,
        batch=BATCH,
        length=LENGTH,
    )
    check_numbers(config)
    learner = Learner(config, spaces)
    state = random_state(learner, seed=4, scale=0.2)
    before = {name: np.asarray(params) for name, params in state.params.items()}
    for seed in range(2):
        state, metrics = learner.update(state, random_batch(spaces, seed))
        assert check_finite(metrics) == set()
    learned = []
    for name, layout in learner.agent.layouts.items():
        changed = before[name] != np.asarray(state.params[name])
        arrays = [part for part in np.split(changed, np.cumsum(layout.sizes)[:-1], -1) if part.size]
        rows = np.all([part.any(-1) for part in arrays], 0) if arrays else []
        learned += [label for label, moved in zip(learner.agent.labels(name), rows, strict=False) if moved]
    rng = np.random.default_rng(3)
    seen = Observation(
        None if spaces.image is None else rng.integers(0, 256, (5, IMAGE, IMAGE, 3), dtype=np.uint8),
        None if spaces.proprio is None else rng.normal(size=(5, VECTOR)).astype(np.float32),
    )
    actions, _ = learner.act(state, learner.carry(5), seen, np.ones(5, bool), jax.random.key(1), task=1)
    return Outcome({name: float(value) for name, value in metrics.items()}, learned, np.asarray(actions, np.float32))


def explores(row: Combination) -> bool:
    return OBJECTIVES[row.objective].reward is not None


def should_learn(row: Combination) -> list[str]:
    behaviors = ["explorer"] * explores(row) + ["task 0", "task 1"]
    predictor = ["intrinsic"] * (OBJECTIVES[row.objective].loss is not None)
    heads = [f"{behavior}/{kind}" for kind in ("actor", "critic") for behavior in behaviors]
    return ["model", *predictor, "task 0/reward", "task 1/reward", *heads]


@pytest.mark.parametrize("row", COMBINATIONS, ids=lambda row: f"{row.objective}, {row.pieces}")
def test_a_combination_learns_with_finite_metrics_and_acts_within_its_space(row):
    metrics, learned, actions = outcome(row)
    assert learned == should_learn(row)
    assert not [name for name, value in metrics.items() if not np.isfinite(value)]
    assert ("model/continue" in metrics) == (row.terminates == "yes")
    assert ("model/image" in metrics) == (row.observation != "vector")
    assert ("model/proprio" in metrics) == (row.observation != "image")
    assert ("explorer/std" in metrics) == explores(row) and "task 1/entropy" in metrics
    if ACTIONS[row.actions]:
        groups = np.split(actions, np.cumsum(ACTIONS[row.actions])[:-1], -1)
        assert set(np.unique(actions)) <= {0.0, 1.0} and all(np.all(group.sum(-1) == 1) for group in groups)
    else:
        assert actions.shape == (5, 2) and np.abs(actions).max() <= 1


INTRODUCTION = """# Combinations

Objectives, actions, observations, termination, pieces (the paper's or the modern ones), the actor's gradient and precision
can be combined freely. Tested are pairs: any two choices in the columns from *actions* to *precision* occur together, and
each objective with both choices of the last four. Each row is a tiny agent with two tasks after two updates, whose networks
all learned, with finite metrics. `tests/agent/known/test_combinations.py` makes the updates and compares this page.

"""


def page() -> str:
    """What the tests found."""
    titles = ["objective", *(name.replace("_", " ") for name in Combination._fields[1:]), "networks that learned"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in COMBINATIONS:
        learned = outcome(row).learned
        kinds = [label.split("/")[-1] for label in learned]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        lines.append("| " + " | ".join([f"`{row.objective}`", *row[1:], counted]) + " |")
    return INTRODUCTION + "\n".join(lines) + "\n"


def test_the_page_of_combinations_tells_what_was_found():
    if os.environ.get("PLAN2EXPLORE_WRITE_DOCS"):
        PAGE.write_text(page() + "".join(PAGE.read_text().partition(NEXT)[1:]))
    assert PAGE.read_text().partition(NEXT)[0] == page(), "set PLAN2EXPLORE_WRITE_DOCS=1 to write docs/combinations.md anew"
