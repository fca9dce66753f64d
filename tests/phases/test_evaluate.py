"""Scores against values computed by hand, and each task in its own environments."""

import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from nano import TASKS, WORLD
from sizes import NANO, one_learner

import plan2explore as p2e
from plan2explore.envs.vector import VectorEnv
from plan2explore.envs.worker import episode_seed
from plan2explore.phases.evaluate import Scores, acting_copy, evaluate_tasks, finish
from plan2explore.phases.world import agent_spaces, inspect_world, make_collecting, make_for_tasks

pytestmark = pytest.mark.xdist_group("phases")


def test_scores_are_those_of_a_pocket_calculator():
    scores = Scores("a", (1.0, 2.0, 3.0, 4.0, 10.0), 7)
    assert scores.mean == 4.0
    assert scores.std == pytest.approx(12.5**0.5)
    assert scores.iqm == 3.0  # of 2, 3 and 4
    assert Scores("a", (0.0, 0.0, 1.0, 5.0, 6.0, 7.0, 100.0, 100.0)).iqm == pytest.approx((1 + 5 + 6 + 7) / 4)
    assert scores.summary()["episodes"] == [1.0, 2.0, 3.0, 4.0, 10.0]
    assert "a: 4.0 (std 3.5, interquartile mean 3.0, 95 % interval" in str(scores) and "5 episodes)" in str(scores)


def test_one_or_two_episodes_have_no_interval():
    assert str(Scores("a", (1.0,))) == "a: 1.0 (std 0.0, interquartile mean 1.0, 1 episode: too few for an interval)"
    two = str(Scores("a", (1.0, 3.0)))
    assert "95 %" not in two and two.endswith(", 2 episodes: too few for an interval)")
    assert "95 % interval 1.0 to 3.0, 3 episodes)" in str(Scores("a", (1.0, 2.0, 3.0)))


def test_the_interval_is_that_of_the_bootstrap():
    # A mean of four draws from (0, 0, 0, 1) is 0 with chance 0.32, at most 0.5 with 0.949, and at most 0.75 with 0.996.
    assert Scores("a", (0.0, 0.0, 0.0, 1.0)).interval == (0.0, 0.75)
    # Of two draws from (0, 1), both are 0 with chance 1/4, both 1 with 1/4.
    assert Scores("a", (0.0, 1.0)).interval == (0.0, 1.0)
    generator = np.random.default_rng(0)
    many = generator.normal(5, 2, 1000)
    low, high = Scores("a", tuple(many)).interval
    half = 1.96 * many.std() / 1000**0.5
    assert (low, high) == pytest.approx((many.mean() - half, many.mean() + half), abs=0.02)
    for equal in ((3.0,), (3.0, 3.0, 3.0)):
        scores = Scores("a", equal)
        assert (scores.mean, scores.std, scores.iqm, scores.interval) == (3.0, 0.0, 3.0, (3.0, 3.0))


def evaluation(vector, **options):
    learner = one_learner(NANO, agent_spaces(WORLD, inspect_world(WORLD), 2))
    state = acting_copy(learner.init(jax.random.key(0)))
    tasks = [p2e.Task.named(task) for task in TASKS]
    return evaluate_tasks(learner, state, vector, tasks, range(2), jax.random.key(1), **options)


@pytest.fixture
def taken(monkeypatch):
    """The actions of every step."""
    actions, step = [], VectorEnv.step

    def noted(vector, given):
        actions.append(given.copy())
        return step(vector, given)

    monkeypatch.setattr(VectorEnv, "step", noted)
    return actions


def played_by_hand(task, seed, actions):
    """The score and the frames of an episode in this process."""
    env = p2e.make(task, size=8, action_repeat=100)
    observation, _ = env.reset(seed=seed)
    frames, score = [observation["image"]], 0.0
    for action in actions:
        observation, reward, *_ = env.step(action)
        score += reward
        frames.append(observation["image"])
    return score, np.stack(frames)


def test_each_task_is_played_in_its_own_environments(taken):
    with make_for_tasks(WORLD, [p2e.Task.named(task) for task in TASKS], 2, seed=9) as vector:
        found = finish(evaluation(vector, episode=4, env_steps=70, frames=True))
    assert [scores.task for scores in found] == list(TASKS) and {scores.env_steps for scores in found} == {70}
    for row in range(4):
        scores, seed, actions = found[row // 2], episode_seed(9, row, 4), [each[row] for each in taken]
        score, frames = played_by_hand(scores.task, seed, actions)
        assert scores.episodes[row % 2] == pytest.approx(score, rel=1e-12)
        if row % 2 == 0:
            assert np.array_equal(scores.frames, frames[:-1])


def test_tasks_with_other_vectors_are_observed_as_the_runs_world():
    tasks = [p2e.Task.named("finger_spin"), p2e.Task.named("finger_turn_easy"), p2e.Task("own", reward=lambda physics: 0.0)]
    for world, numbers in (("finger", 12), ("finger_spin", 9)):
        config = replace(WORLD, world=world)
        assert inspect_world(config).proprio == numbers
        with make_for_tasks(config, tasks, 1, seed=0) as vector:
            assert vector.reset(0).proprio.shape == (3, numbers)


def test_without_pixels_only_videos_are_drawn():
    with make_for_tasks(WORLD, [p2e.Task.named(task) for task in TASKS], 2, seed=9) as vector:
        assert vector.reset(0).image.any((1, 2, 3)).tolist() == [True, False, True, False]
    with make_collecting(WORLD, 2, seed=0, workers=1) as vector:
        assert not vector.reset().image.any()
    with make_collecting(replace(WORLD, obs="pixels"), 2, seed=0, workers=1) as vector:
        assert vector.reset().image.any((1, 2, 3)).all()


class ShortAndLong:
    """Two environments for each of two tasks: the first one's episodes end sooner, and new ones begin at once."""

    count, ends = 4, np.array([3, 5, 2, 5])

    def reset(self, episode):
        self.time = 0
        return self.step(None)

    def step(self, actions):
        over, self.time = self.time == self.ends, self.time + 1
        return SimpleNamespace(
            image=np.full((4, 8, 8, 3), self.time, np.uint8), proprio=np.zeros((4, 5)), first=np.full(4, self.time == 1),
            reward=np.ones(4), terminated=over, truncated=np.zeros(4, bool), lost=np.zeros(4, bool),
        )  # fmt: skip


def test_a_video_ends_with_its_episode():
    found = finish(evaluation(ShortAndLong(), frames=True))
    assert [scores.episodes for scores in found] == [(3.0, 5.0), (2.0, 5.0)]
    assert [scores.frames[:, 0, 0, 0].tolist() for scores in found] == [[1, 2, 3], [1, 2]]


def test_an_episode_that_a_dead_process_took_along_does_not_count(taken, processes):
    with make_for_tasks(WORLD, [p2e.Task.named(task) for task in TASKS], 1, seed=9) as vector:
        playing = evaluation(vector)
        for _ in range(5):
            next(playing)
        os.kill(vector.processes[0], signal.SIGKILL)
        found = finish(playing)
    assert len(taken) == 5 + 10  # the fifth step started new episodes
    for row, scores in enumerate(found):
        score, _ = played_by_hand(scores.task, episode_seed(9, row, 1), [each[row] for each in taken[5:]])
        assert scores.episodes == (pytest.approx(score, rel=1e-12),)
