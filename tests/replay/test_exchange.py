"""Data sets of other programs: what goes out comes in again, and foreign files are understood or refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from plan2explore import Episode, Task, relabel
from plan2explore.config import Spaces
from plan2explore.replay import exchange
from plan2explore.replay.buffer import TooLittleMemoryError
from plan2explore.replay.exchange import export_minari, export_npz, open_source
from plan2explore.replay.files import load_episode, save_episode

OBSERVED = {
    "vector": Spaces(2, None, 3, 0),
    "image": Spaces(2, 16, None, 0),
    "both": Spaces(2, 16, 3, 0),
    "discrete": Spaces(3, None, 3, 0, (3,), True),
    "several": Spaces(5, None, 3, 0, (2, 3), True),
}


def episodes_of(observed, lengths=(5, 1, 7)):
    """Episodes of random numbers, the second of which terminates."""
    generator = np.random.default_rng(0)
    for number, count in enumerate(lengths):
        action = generator.uniform(-1, 1, (count + 1, observed.action)).astype(np.float32)
        action[1, 0] = 1e-20  # lost if it were scaled
        if observed.discrete:
            chosen = [np.eye(n, dtype=np.float32)[generator.integers(n, size=count + 1)] for n in observed.discrete]
            action = np.concatenate(chosen, -1)
        action[0] = 0
        reward = generator.normal(size=count + 1)
        reward[0] = 0
        yield Episode(
            world="walker",
            image=generator.integers(0, 256, (count + 1, 16, 16, 3), np.uint8),
            proprio=generator.normal(size=(count + 1, 3)).astype(np.float32),
            action=action,
            reward=reward,
            state=generator.normal(size=(count + 1, 2, 4)),
            drawn=np.zeros(0),
            meta={"seed": number, "action_repeat": 2, "env_steps": 2 * count, "terminated": number == 1},
        )


@pytest.fixture
def minari_root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("form", ["npz", "minari"])
def test_episodes_that_were_exported_come_back(kind, form, tmp_path, minari_root):
    observed, before = OBSERVED[kind], list(episodes_of(OBSERVED[kind]))
    if form == "npz":
        export_npz(tmp_path / "mine.npz", before, observed)
        source = open_source(str(tmp_path / "mine.npz"))
    else:
        export_minari("test/mine-v0", before, observed, "of random numbers")
        source = open_source("minari:test/mine-v0")
        with pytest.raises(ValueError, match="Minari has a data set 'test/mine-v0' already"):
            export_minari("test/mine-v0", before, observed, "")
    assert source.actions.discrete == observed.discrete
    for _ in range(2):  # any number of times
        after = list(source.episodes(16))
        assert len(after) == 3
        for old, new in zip(before, after, strict=True):
            assert new.action.tobytes() == old.action.tobytes() and np.array_equal(new.reward, old.reward)
            assert new.meta["terminated"] is old.meta["terminated"] and new.meta["env_steps"] == len(old) - 1
            if observed.image:
                assert np.array_equal(new.image, old.image)
            if observed.proprio:
                assert new.proprio.tobytes() == old.proprio.tobytes()
    save_episode(tmp_path / "000000.npz", after[0])  # it is an episode as every other
    assert load_episode(tmp_path / "000000.npz").world == f"dataset:{source.name}"


def archive(path, **changes):
    """A data set as somebody else may write it: two episodes of 3 and 2 actions, the second still under way."""
    arrays = {
        "observations": np.arange(14.0).reshape(7, 2),
        "actions": np.linspace(-2, 2, 5)[:, None],
        "action_low": np.array(-2.0),
        "action_high": np.array(2.0),
        "terminations": np.array([0, 0, 1, 0, 0], bool),
    } | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return str(path)


def test_a_plain_archive_is_a_data_set(tmp_path):
    first, second = open_source(archive(tmp_path / "foreign.npz")).episodes(16)
    assert first.proprio.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]] and first.meta["terminated"]
    assert second.proprio.tolist() == [[8, 9], [10, 11], [12, 13]] and not second.meta["terminated"]
    assert first.action.ravel().tolist() == [0, -1, -0.5, 0] and second.action.ravel().tolist() == [0, 0.5, 1]
    assert not first.reward.any()


def test_rewards_are_functions_of_what_the_data_set_says(tmp_path):
    episodes = list(open_source(archive(tmp_path / "foreign.npz")).episodes(16))
    task = Task("sum", reward=lambda obs, action, after: 100 * after[0] + 10 * action[0] + obs[1])
    assert relabel(episodes[1], task).tolist() == [0, 1000 + 10 + 9, 1200 + 20 + 11]
    both = relabel(episodes, task, workers=2)
    assert both[1].tolist() == relabel(episodes[1], task).tolist()
    with pytest.raises(ValueError, match=r"must take \(observation, action, next_observation\): dataset:foreign has no"):
        relabel(episodes, Task("up", reward=lambda physics: 0.0))
    changes = {"observations": None, "observations/goal": np.ones((7, 1)), "observations/at": np.arange(7.0)[:, None]}
    changes |= {"actions": np.array([0, 1, 2, 0, 1])}
    first, _ = open_source(archive(tmp_path / "named.npz", **changes)).episodes(16)
    chosen = Task("chosen", reward=lambda obs, action, after: float(action) + after["at"][0] * after["goal"][0])
    assert relabel(first, chosen).tolist() == [0, 1, 3, 5]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"actions": None}, "has no array 'actions'"),
        ({"observations": None}, "has no array 'observations'"),
        ({"observations": np.zeros((5, 2))}, "observations has 5 rows, where 5 actions in 2 episodes need 7"),
        ({"rewards": np.zeros(7)}, "rewards has 7 rows, where 5 actions in 2 episodes need 5"),
        ({"action_low": None}, "has actions from -2 to 2: add their bounds, arrays action_low and action_high"),
        ({"spaces": np.array(json.dumps({"observation": {"kind": "Graph"}, "action": {}}))}, "does not describe a space"),
        ({"actions": np.array([None] * 5)}, "is no data set"),
    ],
)
def test_an_archive_that_is_no_data_set_is_refused_with_a_sentence(changes, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        open_source(archive(tmp_path / "bad.npz", **changes))


def test_what_is_no_archive_or_does_not_fit_is_refused(tmp_path, monkeypatch):
    whole = archive(tmp_path / "whole.npz")
    data = Path(whole).read_bytes()
    for damaged in (b"", data[:-100], data[:300] + bytes(100) + data[400:], b"\x80\x04N."):
        (tmp_path / "bad.npz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"bad\.npz is no data set"):
            open_source(str(tmp_path / "bad.npz"))
    monkeypatch.setattr(exchange, "host_room", lambda: 100)
    with pytest.raises(TooLittleMemoryError, match=r"whole\.npz needs 0\.0 MB, and host memory has 0\.0 MB free"):
        open_source(whole)


def test_names_of_no_data_set_are_refused(tmp_path, minari_root):
    with pytest.raises(ValueError, match=r"a file FILE.npz, or the folder of a run; got 'nothing', which is none"):
        open_source("nothing")
    with pytest.raises(ValueError, match="fetch it first: minari download test/none-v0"):
        open_source("minari:test/none-v0")


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Minari: no author, no link
def test_observations_that_minari_nests_are_flattened(minari_root):
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    seen = spaces.Dict({"where": spaces.Box(-1, 1, (2,)), "at": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,))])})
    numbers = np.arange(3, dtype=np.float32)
    observations = {"where": np.stack([numbers, -numbers], 1) / 4, "at": (np.array([0, 1, 2]), numbers[:, None] / 2)}
    ends = [False, True]
    buffer = EpisodeBuffer(observations=observations, actions=np.array([1, 0]), rewards=[1.0, 2.0], terminations=ends,
                           truncations=[False, False])  # fmt: skip
    minari.create_dataset_from_buffers("test/nested-v0", [buffer], observation_space=seen, action_space=spaces.Discrete(2))
    (episode,) = open_source("minari:test/nested-v0").episodes(16)
    assert episode.proprio.tolist() == [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0.5, 0.25, -0.25], [0, 0, 1, 1, 0.5, -0.5]]
    assert episode.action.tolist() == [[0, 0], [0, 1], [1, 0]] and episode.meta["terminated"]
    third = Task("third", reward=lambda obs, action, after: float(after["at"][0] == 2) + after["where"][0])
    assert relabel(episode, third).tolist() == [0, 0.25, 1.5]
