"""Collecting: labels of a running episode, provenance that stays true, and what replay gets."""

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from episodes import record_random

import plan2explore as p2e
from plan2explore.config import Spaces, WorldConfig
from plan2explore.envs import VectorEnv
from plan2explore.phases.collect import Collector, label_steps
from plan2explore.replay.buffer import Replay, replay_rows
from plan2explore.replay.episode import Episode
from plan2explore.replay.files import EpisodeFolder

pytestmark = pytest.mark.xdist_group("phases")
SPACES = Spaces(action=1, image=None, proprio=3, tasks=0)


def part_of(episode, start, stop):
    """Some steps of an episode."""
    columns = (episode.image, episode.proprio, episode.action, episode.reward, episode.state)
    return Episode(episode.world, *(column[start:stop] for column in columns), episode.drawn)


def labelled_piece_by_piece(episode, tasks, piece):
    """As while it ran: from each piece and the step before it."""
    labels = []
    for start in range(0, len(episode), piece):
        left_out = max(start - 1, 0)
        labels.append(label_steps(part_of(episode, left_out, start + piece), tasks, start - left_out, left_out))
    return np.concatenate(labels)


def test_an_error_in_a_reward_names_the_step_of_the_whole_episode():
    episode = record_random("reacher", seed=3, size=8, action_repeat=50)
    wrong = p2e.Task("wrong", reward=lambda physics: float("nan"))
    with pytest.raises(Exception, match=r"\b7\b"):
        label_steps(part_of(episode, 6, 9), [wrong], 1, left_out=6)


@pytest.mark.parametrize("piece", [1, 7, 600])
def test_labels_of_pieces_are_those_of_the_whole_in_the_suite(piece):
    episode = record_random("reacher", seed=3, size=8, action_repeat=50)
    still = p2e.Task("still", reward=lambda physics: -float(np.square(physics.velocity()).sum()))
    tasks = [p2e.Task.named("reacher_easy"), p2e.Task.named("reacher_hard"), still]
    whole = np.stack([p2e.relabel(episode, task) for task in tasks], -1)
    assert episode.drawn.size and whole[:, 2].any()
    assert np.array_equal(labelled_piece_by_piece(episode, tasks, piece), whole)


def test_the_target_that_was_drawn_decides_the_label():
    episode = record_random("reacher", seed=3, size=8, action_repeat=50)
    finger = p2e.Task("near", reward=lambda physics: -float(physics.finger_to_target_dist()))
    moved = Episode(**{**vars(episode), "drawn": episode.drawn + 0.1})
    assert (label_steps(episode, [finger], 0)[1:] != label_steps(moved, [finger], 0)[1:]).all()


@pytest.mark.parametrize("piece", [1, 3, 101])
def test_labels_of_pieces_are_those_of_the_whole_in_gymnasium(piece):
    def swing(observation, action, following):
        return float(following[2] - observation[2] + 10 * action[0])

    episode = record_random("gymnasium:Pendulum-v1", seed=1, size=8, action_repeat=2)
    assert len(episode) == 101
    tasks = [p2e.Task("swing", reward=swing)]
    whole = p2e.relabel(episode, tasks[0])
    assert np.array_equal(labelled_piece_by_piece(episode, tasks, piece)[:, 0], whole)
    speed, action = episode.state[:, :, 2], episode.state[:, :, 3]
    steps = np.concatenate([speed[0, :1], speed[1:].ravel()])
    by_hand = np.diff(steps) + 10 * action[1:].ravel()
    assert whole[1:] == pytest.approx(by_hand.reshape(100, 2).sum(-1), rel=1e-5, abs=1e-5)


def test_replay_gets_what_the_agent_observes_and_where_episodes_begin_and_end():
    episode = record_random("pendulum", size=8, action_repeat=100)
    rewards, flags = np.ones((11, 2)), {"is_first", "is_terminal"}
    rows = replay_rows(episode, SPACES, rewards)
    assert set(rows) == {"action", "proprio"} | flags
    assert rows["is_first"].nonzero()[0].tolist() == [0] and not rows["is_terminal"].any()
    ended = Episode(**{**vars(episode), "meta": {"terminated": True}})
    rows = replay_rows(ended, Spaces(action=1, image=8, tasks=2), rewards, start=4)
    assert set(rows) == {"action", "image", "reward"} | flags and rows["reward"].dtype == np.float32
    assert np.array_equal(rows["image"], episode.image[4:])
    assert not rows["is_first"].any() and rows["is_terminal"].nonzero()[0].tolist() == [6]
    old = Episode(**{**vars(episode), "meta": {}})  # as written before episodes said it
    assert not replay_rows(old, SPACES, rewards)["is_terminal"].any()


def collector(vector, tmp_path, capacity=110, piece=None):
    replay = Replay("host", capacity, vector.count, SPACES, batch=2, length=5)
    info = SimpleNamespace(action=1, renderer="raycast")
    world = WorldConfig("pendulum", obs="proprio", size=8, action_repeat=100)
    return Collector(vector, replay, EpisodeFolder(tmp_path / "episodes"), [], world, info, SPACES, 5, piece)


def play(collecting, steps, seed=0):
    generator = np.random.default_rng(seed)
    for _ in range(steps):
        collecting.send(generator.uniform(-1, 1, (collecting.count, 1)))
        collecting.receive()


def test_seeds_stay_true_when_processes_die_in_a_reset(tmp_path, processes):
    mark = tmp_path / "died"

    def fragile(**options):
        env = p2e.make("pendulum", size=8, action_repeat=100)
        reset, count = env.reset, []

        def deadly_reset(**given):
            count.append(None)
            if len(count) == 2 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return reset(**given)

        env.reset = deadly_reset
        return env

    with VectorEnv(fragile, 1, seed=5) as vector:
        collecting = collector(vector, tmp_path)
        collecting.reset()
        play(collecting, 22)  # two episodes and their resets
        collecting.check_writes(wait=True)
    assert mark.exists()
    episodes = [episode for _, episode in collecting.folder.load_all()]
    assert [episode.meta["episode"] for episode in episodes] == [0, 2]
    env = p2e.make("pendulum", size=8, action_repeat=100)
    for episode in episodes:
        _, info = env.reset(seed=episode.meta["seed"])
        assert info["state"][0].tobytes() == episode.state[0, 0].tobytes()


def test_an_episode_that_never_ends_leaves_replay(tmp_path, processes):
    with VectorEnv("pendulum", 2, 2, seed=5, size=8, action_repeat=100) as vector:
        collecting = collector(vector, tmp_path, piece=5)
        collecting.reset()
        play(collecting, 5)
        assert collecting.replay._counts.tolist() == [5, 5] and collecting.env_steps == 1000
        os.kill(vector.processes[0], signal.SIGKILL)
        play(collecting, 1)
        assert collecting.worker_restarted and collecting.env_steps == 600
        assert collecting.replay._counts.tolist() == [0, 5] and collecting.replay.episodes == 1
        play(collecting, 4)
        assert not collecting.worker_restarted
        collecting.check_writes(wait=True)
    (episode,) = [episode for _, episode in collecting.folder.load_all()]
    assert episode.meta["environment"] == 1 and len(episode) == 11


def test_who_acted_is_kept_with_the_episode(tmp_path):
    with VectorEnv("pendulum", 1, seed=5, size=8, action_repeat=100) as vector:
        collecting = collector(vector, tmp_path)
        collecting.reset()
        for policies in (["random"] * 10, ["random", *["explorer"] * 3, *["task"] * 7], ["task"] * 11):
            for policy in policies:
                collecting.policy = policy
                play(collecting, 1)
        collecting.check_writes(wait=True)
    found = [episode.meta["policy"] for _, episode in collecting.folder.load_all()]
    assert found == ["random", "explorer, task", "task"]


def test_full_replay_forgets_the_oldest_steps(tmp_path):
    with VectorEnv("pendulum", 1, seed=5, size=8, action_repeat=100) as vector:
        collecting = collector(vector, tmp_path, capacity=22, piece=5)
        collecting.reset()
        play(collecting, 11 * 3 + 4)
        assert (collecting.replay.steps, collecting.replay.episodes) == (22, 4)
        collecting.check_writes(wait=True)
    assert len(collecting.folder.numbers()) == 3  # on disk all of them stay


class Leaving:
    """A world of one number that terminates after 3 to 7 steps, by its seed."""

    def __init__(self):
        self.inner = p2e.make("pendulum", size=8, action_repeat=100)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def reset(self, *, seed=None, options=None):
        self.left = 3 + seed % 5
        return self.inner.reset(seed=seed)

    def step(self, action):
        observation, reward, _, truncated, info = self.inner.step(action)
        self.left -= 1
        return observation, reward, self.left == 0, truncated, info


@pytest.mark.parametrize("piece", [None, 3])
def test_ends_are_kept_with_the_episode_and_in_replay(tmp_path, piece):
    with VectorEnv(Leaving, 2, 1, seed=5) as vector:
        collecting = collector(vector, tmp_path, piece=piece)
        collecting.reset()
        play(collecting, 20)
        collecting.check_writes(wait=True)
        running = [each.flushed if each else 0 for each in collecting._running]
    episodes = dict(collecting.folder.load_all())
    lengths = [[len(episode) for number, episode in episodes.items() if number % 2 == stream] for stream in (0, 1)]
    assert all(episode.meta["terminated"] is True for episode in episodes.values()) and len(set(lengths[0])) > 1
    replay = collecting.replay
    assert replay._counts.tolist() == [sum(each) + more for each, more in zip(lengths, running, strict=True)]
    stored = {name: array[: replay.ring, 0] for name, array in replay._store._stored.items()}
    ends = np.cumsum(lengths[0])
    assert stored["is_terminal"][: ends[-1]].nonzero()[0].tolist() == [end - 1 for end in ends]
    assert stored["is_first"][: ends[-1]].nonzero()[0].tolist() == [0, *ends[:-1]]


def test_a_round_is_one_episode_of_each_environment_however_long(tmp_path, processes):
    with VectorEnv(Leaving, 3, 3, seed=5) as vector:
        collecting = collector(vector, tmp_path)
        collecting.reset(4)
        play(collecting, 3)
        os.kill(vector.processes[0], signal.SIGKILL)
        play(collecting, 1)
        assert collecting.worker_restarted and not collecting.replay.steps
        collecting.reset(4)
        while not collecting.finished_episodes:
            assert not collecting.replay.steps
            play(collecting, 1)
        collecting.check_writes(wait=True)
    episodes = dict(collecting.folder.load_all())
    lengths = [len(episode) for episode in episodes.values()]
    assert list(episodes) == [12, 13, 14] and collecting.finished_episodes == 3
    assert lengths == [4 + episode.meta["seed"] % 5 for episode in episodes.values()] and len(set(lengths)) > 1
    assert collecting.replay._counts.tolist() == lengths
