"""Learning from data sets: the same batches as from the run that they came from, and no simulator."""

from dataclasses import asdict, replace

import jax
import numpy as np
import pytest
from episodes import record_random
from nano import TASKS, assert_same_arrays, nano_adapt, parameters, progress_of
from sizes import NANO, quick

import plan2explore as p2e
from plan2explore.config import ExploreConfig, Spaces, WorldConfig
from plan2explore.phases import explore, world
from plan2explore.phases.training import SAMPLE, Training
from plan2explore.replay.buffer import Replay, TooLittleMemoryError, replay_rows
from plan2explore.replay.files import EpisodeFolder
from plan2explore.runs.folder import RunError, RunFolder

pytestmark = pytest.mark.xdist_group("phases")
CONFIG = ExploreConfig(agent=NANO)


def right(observation, action, following):
    return float(following[0] - observation[0])


RIGHT = p2e.Task("right", reward=right)


@pytest.fixture(scope="module")
def drawn():
    """The batches that each run was trained on."""
    return {}


@pytest.fixture(scope="module")
def learned(overlapped, tmp_path_factory, drawn):
    """The run `overlapped`, exported in two forms and learned from each, and the arrays of all batches. Read it only."""
    place, sample = tmp_path_factory.mktemp("data"), Replay.sample
    runs = {}
    with quick(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(place / "datasets"))
        sources = {
            "npz": overlapped.run.export("npz", place / "mine.npz"),
            "minari": overlapped.run.export("minari", "me/it-v0"),
        }
        patch.setattr(world, "make", None)  # would fail if called
        for name, source in sources.items():
            batches = drawn.setdefault(name, [])

            def watch(replay, key, count, batches=batches):
                batches.append(jax.device_get(sample(replay, key, count)))
                return sample(replay, key, count)

            patch.setattr(Replay, "sample", watch)
            runs[name] = p2e.learn(source, 20, place / name, probes=[RIGHT], config=CONFIG)
    return runs


def test_exported_imported_and_learned_episodes_give_the_same_batches(learned, overlapped, drawn):
    spaces = Spaces(1, None, 5, 1)
    episodes = list(overlapped.run.episodes())
    replay = Replay("host", sum(map(len, episodes)), 1, spaces, NANO.batch, NANO.length)
    for each in episodes:
        reward = np.diff(each.proprio[:, 0].astype(float), prepend=each.proprio[0, 0].astype(float))
        replay.add_episode(replay_rows(each, spaces, reward[:, None]))
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), SAMPLE), 0)
    expected = jax.device_get(replay.sample(key, 20))
    for name in ("npz", "minari"):
        (batches,) = drawn[name]
        assert_same_arrays(batches, expected)
    assert_same_arrays(parameters(learned["npz"]), parameters(learned["minari"]))


def test_a_model_learned_from_a_data_set_adapts_to_rewards_of_observations(learned, tmp_path):
    run = learned["npz"]
    assert run.snapshots == [sum(len(each) - 1 for each in run.episodes())] and progress_of(run)["updates"] == 20
    policy = nano_adapt(run, p2e.Task("left", reward=lambda before, action, after: -right(before, action, after)))
    observation = next(run.episodes()).proprio[0]
    assert policy.act(observation).shape == (1,)
    model = run.model()
    assert model.tasks == ("right",) and np.isfinite(model.reward(model.observe(observation), "right"))
    with pytest.raises(RunError, match="dataset:mine is a data set: there is no simulator to play in"):
        policy.evaluate(1)
    with pytest.raises(RunError, match="dataset:mine is a data set: there is no simulator to play in"):
        nano_adapt(run, RIGHT, shots=2)
    with pytest.raises(ValueError, match="Task 'cartpole_balance' belongs to cartpole; the world here is dataset:mine"):
        nano_adapt(run, "cartpole_balance")


def test_learning_resumes_continues_and_refuses_other_settings(learned, copy_of, tmp_path):
    run = copy_of(learned["npz"])
    source = str(learned["npz"].path.parent / "mine.npz")
    before = parameters(run)
    p2e.learn(source, 20, run.path, probes=[RIGHT], config=CONFIG)  # all is done
    assert_same_arrays(parameters(run), before)
    p2e.learn(source, 40, run.path, probes=[RIGHT], config=CONFIG)
    assert progress_of(run)["updates"] == 40 and run.folder.open(run.path).settings["updates"] == 40
    with pytest.raises(RunError, match=r"is a run with other settings .*seed: 0, not 1"):
        p2e.learn(source, 40, run.path, probes=[RIGHT], config=ExploreConfig(agent=NANO, seed=1))
    with pytest.raises(RunError, match=r"was learned from .*npz and does not explore"):
        p2e.explore(run.path)
    with pytest.raises(ValueError, match=r"mine.npz cannot be observed as 'pixels'; it has proprio"):
        p2e.learn(source, 20, tmp_path / "other", obs="pixels", config=CONFIG)


def test_a_runs_own_episodes_can_be_learned_from_again(overlapped, tmp_path):
    """With the world that they came from: rewards of physics and evaluations are possible."""
    run = p2e.learn(overlapped.run.path, 20, tmp_path / "again", probes=TASKS, config=CONFIG)
    ours, theirs = list(run.episodes()), list(overlapped.run.episodes())
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one.state, other.state, equal_nan=True)
    assert run.probe(TASKS[0]).evaluate(1).episodes
    with pytest.raises(RunError, match="is a run that was not learned from a data set"):
        p2e.learn(overlapped.run.path, 20, overlapped.run.path, config=CONFIG)


def test_a_run_gives_its_steps_as_windows(overlapped):
    dataset = overlapped.run.dataset(5, [p2e.Task.named("cartpole_balance")])
    assert dataset[0]["proprio"].shape == (5, 5) and dataset[0]["reward"].shape == (5, 1) and "image" not in dataset[0]


@pytest.fixture
def of_pixels(tmp_path):
    """A run of two episodes whose agent observes images alone."""
    view = WorldConfig("cartpole", obs="pixels", size=16, action_repeat=100)
    folder = RunFolder.create(tmp_path / "pixels", "explore", {"config": asdict(replace(CONFIG, world=view))})
    for number in range(2):
        episode = record_random("cartpole", number, obs="pixels", size=16, action_repeat=100)
        EpisodeFolder(folder.episodes).save(number, episode)
    return p2e.Run(folder.path)


@pytest.mark.parametrize("form", ["npz", "minari"])
def test_an_agent_of_pixels_learns_rewards_of_the_vector_from_an_export_of_both(form, of_pixels, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    monkeypatch.setattr(Training, "_compile_early", lambda training: None)
    sample, drawn = Replay.sample, []

    class EnoughError(Exception):
        pass

    def once(replay, key, count):
        drawn.append(jax.device_get(sample(replay, key, count)))
        raise EnoughError

    source = of_pixels.export(form, tmp_path / "both.npz" if form == "npz" else "me/both-v0", obs="both")
    task = p2e.Task("right", reward=lambda before, action, after: right(before["proprio"], action, after["proprio"]))
    monkeypatch.setattr(Replay, "sample", once)
    with pytest.raises(EnoughError):
        p2e.learn(source, 20, tmp_path / "learned", probes=[task], obs="pixels", size=16, config=CONFIG)
    monkeypatch.undo()
    spaces = Spaces(1, 16, None, 1)
    replay = Replay("host", 22, 1, spaces, NANO.batch, NANO.length)
    for each in of_pixels.episodes():
        assert each.image.any() and each.proprio.any()
        reward = np.diff(each.proprio[:, 0].astype(float), prepend=each.proprio[0, 0].astype(float))
        replay.add_episode(replay_rows(each, spaces, reward[:, None]))
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), SAMPLE), 0)
    assert_same_arrays(drawn[0], jax.device_get(replay.sample(key, 20)))
    assert drawn[0]["reward"].any()


def test_what_episodes_do_not_hold_is_not_exported(overlapped, of_pixels, tmp_path):
    with pytest.raises(ValueError, match="has no images: its agent observes proprio"):
        overlapped.run.export(out=tmp_path / "none.npz", obs="both")
    with np.load(of_pixels.export(out=tmp_path / "vector.npz", obs="proprio")) as file:
        vectors = np.concatenate([each.proprio for each in of_pixels.episodes()])
        np.testing.assert_array_equal(file["observations"], vectors)


def test_what_cannot_be_learned_leaves_nothing_behind(of_pixels, tmp_path, monkeypatch):
    source, out = of_pixels.export(out=tmp_path / "images.npz"), tmp_path / "learned"
    for updates, said in ((0, "updates must be at least 1; got 0"), (10**400, "updates must be from 1 to 1000000000000000")):
        with pytest.raises(ValueError, match=said):
            p2e.learn(source, updates, out, config=CONFIG)
    monkeypatch.setattr(explore, "device_room", lambda reserve: 10**4)
    with pytest.raises(TooLittleMemoryError, match="A batch of 2 sequences of 5 steps needs more than"):
        p2e.learn(source, 20, out, size=16, config=CONFIG)
    assert not out.exists()
