"""Episodes come back from disk as they were, and nothing in a bad file does harm."""

import dataclasses
import io
import json
import logging
import os
import pickle
import re
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from episodes import record_random
from patience import PATIENCE

from plan2explore.replay import Episode
from plan2explore.replay.files import (
    FORMAT,
    LIMIT,
    BadEpisode,
    EpisodeFolder,
    load_episode,
    save_episode,
)

ARRAYS = ("image", "proprio", "action", "reward", "state", "drawn")


def make_episode(seed=0, steps=12):
    """An episode of noise, with one that ended in the middle of its repeated steps."""
    generator = np.random.default_rng(seed)
    action, reward = generator.uniform(-1, 1, (steps, 2)).astype(np.float32), generator.normal(size=steps)
    action[0], reward[0] = 0, 0
    state = generator.normal(size=(steps, 2, 5))
    state[0, 1:], state[-1, 1:] = np.nan, np.nan
    return Episode(
        world="walker_walk",
        image=generator.integers(0, 255, (steps, 8, 8, 3), np.uint8),
        proprio=generator.normal(size=(steps, 3)).astype(np.float32),
        action=action,
        reward=reward,
        state=state,
        drawn=generator.normal(size=4),
        meta={"renderer": "raycast", "seed": seed, "action_repeat": 2, "env_steps": 2 * steps - 3, "policy": "rändom"},
    )


def assert_same(one, other, images=True):
    assert (one.world, one.meta) == (other.world, other.meta)
    for name in ARRAYS[not images :]:
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), name


def write_archive(path, episode, **changes):
    """An archive as the format asks, but with some arrays replaced, or left out when None."""
    about = {"format": FORMAT, "world": episode.world, **episode.meta}
    arrays = {name: getattr(episode, name) for name in ARRAYS} | {"meta": np.array(json.dumps(about))} | changes
    with path.open("wb") as file:
        np.savez_compressed(file, **{name: array for name, array in arrays.items() if array is not None})


def meta_of(**changes):
    about = {"format": FORMAT, **make_episode().meta, "world": "walker_walk"} | changes
    return np.array(json.dumps({name: value for name, value in about.items() if value is not None}))


# --- Good files ---


def test_an_episode_comes_back_as_it_was(tmp_path):
    for number, episode in enumerate([make_episode(), record_random("cartpole_balance", size=16)]):
        path = tmp_path / f"{number}.npz"
        save_episode(path, episode)
        assert_same(load_episode(path), episode)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "0.npz", tmp_path / "1.npz"]


def test_numpy_alone_reads_it(tmp_path):
    episode, path = make_episode(), tmp_path / "episode.npz"
    save_episode(path, episode)
    with np.load(path) as file:
        assert sorted(file) == sorted([*ARRAYS, "meta"])
        for name in ARRAYS:
            np.testing.assert_array_equal(file[name], getattr(episode, name))
        about = json.loads(str(file["meta"]))
    assert about == {"format": FORMAT, "world": "walker_walk", **episode.meta}


def test_the_same_episode_is_the_same_bytes(tmp_path):
    for name in ("a.npz", "b.npz"):
        save_episode(tmp_path / name, make_episode())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_file_is_read_again_where_python_fails_once(tmp_path, monkeypatch):
    """CPython's `ast` can fail where two threads use it at once: that is no damage."""
    episode, path = make_episode(), tmp_path / "episode.npz"
    save_episode(path, episode)
    read, faults = np.lib.format.read_magic, iter([SystemError("AST constructor recursion depth mismatch")])

    def fails_once(file):
        for fault in faults:
            raise fault
        return read(file)

    monkeypatch.setattr(np.lib.format, "read_magic", fails_once)
    assert_same(load_episode(path), episode)


def test_images_can_stay_where_they_are(tmp_path):
    episode, path = make_episode(), tmp_path / "episode.npz"
    save_episode(path, episode)
    bare = load_episode(path, images=False)
    assert bare.image.shape == (12, 0, 0, 3) and bare.image.dtype == np.uint8
    assert_same(bare, episode, images=False)


def test_other_layouts_of_the_same_numbers_are_stored_and_read(tmp_path):
    episode, path = make_episode(), tmp_path / "episode.npz"
    upside = {"image": np.asfortranarray(episode.image), "reward": episode.reward.astype(np.float32)}
    save_episode(path, dataclasses.replace(episode, **upside, meta=episode.meta | {"seed": np.int64(7)}))
    expected = dataclasses.replace(
        episode, reward=episode.reward.astype(np.float32).astype(float), meta=episode.meta | {"seed": 7}
    )
    assert_same(load_episode(path), expected)
    write_archive(path, episode, state=np.asfortranarray(episode.state))
    assert_same(load_episode(path), episode)


@pytest.mark.parametrize(
    "changes",
    [
        {"reward": np.zeros(11)},
        {"reward": np.zeros(12, complex)},
        {"proprio": np.full((12, 3), np.nan, np.float32)},
        {"image": np.zeros((12, 8, 8, 3), np.float32)},
        {"meta": {"env_steps": 20}},
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, changes):
    with pytest.raises(ValueError):
        save_episode(tmp_path / "episode.npz", dataclasses.replace(make_episode(), **changes))
    assert not list(tmp_path.iterdir())


# --- Bad files ---


def assert_bad(path, reason=None):
    with pytest.raises(BadEpisode, match=reason) as caught:
        load_episode(path)
    assert str(path) in str(caught.value)


def test_a_truncated_file_is_bad_at_any_length(tmp_path):
    whole, path = tmp_path / "whole.npz", tmp_path / "cut.npz"
    save_episode(whole, make_episode())
    data = whole.read_bytes()
    for length in [0, 1, 4, 30, *range(100, len(data), 211), len(data) - 1]:
        path.write_bytes(data[:length])
        assert_bad(path)


def test_flipped_bits_are_noticed_or_harmless(tmp_path):
    """A bit that no reader looks at (a time stamp, say) may change; the episode may not."""
    whole, path, episode = tmp_path / "whole.npz", tmp_path / "flipped.npz", make_episode(steps=3)
    save_episode(whole, episode)
    data, noticed = whole.read_bytes(), 0
    positions = range(0, len(data), 3)
    for position in positions:
        path.write_bytes(data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :])
        try:
            loaded = load_episode(path)
        except BadEpisode:
            noticed += 1
        else:
            assert_same(loaded, episode)
    assert noticed > len(positions) / 2


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def test_nothing_in_a_file_is_run(tmp_path):
    mark, path, episode = tmp_path / "mark", tmp_path / "episode.npz", make_episode()
    array = np.array([Bomb(mark)] * 12, dtype=object)
    for name in (*ARRAYS, "meta"):
        write_archive(path, episode, **{name: array if name != "meta" else array[0:1].reshape(())})
        assert_bad(path, f"its {name} is object")
    path.write_bytes(pickle.dumps(Bomb(mark)))
    assert_bad(path)
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    path.write_bytes(buffer.getvalue())
    assert_bad(path)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()  # it would have gone off


def test_names_that_lead_elsewhere_are_refused(tmp_path):
    folder = tmp_path / "episodes"
    folder.mkdir()
    path = folder / "000000.npz"
    save_episode(path, make_episode())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../escaped.npy", b"")
    assert_bad(path, re.escape("'../../escaped.npy'"))
    assert sorted(tmp_path.rglob("*")) == [folder, path]


def test_the_same_name_twice_is_refused(tmp_path):
    path = tmp_path / "episode.npz"
    save_episode(path, make_episode())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("reward.npy", archive.read("reward.npy"))
    assert_bad(path, "it holds")


WRONG = {
    "missing": ({"state": None}, "expected are .*state"),
    "unknown": ({"extra": np.zeros(3)}, "it holds .*extra"),
    "type": ({"reward": np.zeros(12, np.float32)}, "its reward is float32; float64"),
    "byte order": ({"reward": np.zeros(12, ">f8")}, "its reward is >f8; float64"),
    "structured": ({"reward": np.zeros(12, [("a", "f8")])}, "its reward is"),
    "axes": ({"reward": np.zeros((12, 1))}, "1 axes"),
    "steps": ({"action": np.zeros((11, 2), np.float32)}, "same number of steps"),
    "empty": (
        {name: getattr(make_episode(), name)[:0] for name in ARRAYS if name != "drawn"},
        "same number of steps, or none",
    ),
    "not square": ({"image": np.zeros((12, 8, 9, 3), np.uint8)}, "size, size, 3"),
    "grey": ({"image": np.zeros((12, 8, 8, 1), np.uint8)}, "size, size, 3"),
    "not finite": ({"proprio": np.full((12, 3), np.inf, np.float32)}, "its proprio is not finite"),
    "begins late": ({"action": np.ones((12, 2), np.float32)}, "first action"),
    "no state": ({"state": np.full((12, 2, 5), np.nan)}, "lacks a step"),
    "repeat": ({"state": np.zeros((12, 3, 5))}, "action_repeat is 2"),
    "no meta": ({"meta": None}, "no item named 'meta.npy'"),
    "meta is no text": ({"meta": np.zeros(())}, "its meta is float64; text"),
    "meta is no JSON": ({"meta": np.array("{")}, "its meta is damaged: it is not a JSON object"),
    "meta has axes": ({"meta": np.array(["{}"])}, "not a JSON object"),
    "newer": ({"meta": meta_of(format=FORMAT + 1), "reward": None}, "newer version of plan2explore .unknown, format 2;"),
    "world is no text": ({"meta": meta_of(world=["walker"])}, "no proper 'world'"),
    "too many env steps": ({"meta": meta_of(env_steps=23)}, "its env_steps is 23, but it has 21 states"),
    "endless": ({"meta": meta_of(env_steps=10**16)}, "its env_steps is 10000000000000000; a whole number from 0"),
    "negative": ({"meta": meta_of(episode=-1)}, "its episode is -1"),
    "no counter": ({"meta": meta_of(updates="7")}, "its updates is '7'"),
    "terminated is text": ({"meta": meta_of(terminated="no")}, "its terminated is 'no'; true or false"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_contents_are_named(tmp_path, case):
    changes, reason = WRONG[case]
    path = tmp_path / "episode.npz"
    write_archive(path, make_episode(), **changes)
    assert_bad(path, reason)


def replace_members(path, members, sizes=None, **options):
    """The same archive with other bytes under some names, and untrue sizes in its table of contents."""
    with zipfile.ZipFile(path) as archive:
        contents = {each: archive.read(each) for each in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in (contents | members).items():
            archive.writestr(each, data, **(options if each in members else {}))
        for each, size in (sizes or {}).items():
            archive.getinfo(each).file_size = size


def header(shape, descr="|u1"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@pytest.mark.parametrize("shape", [(10**6, 10**4, 10**4, 3), (2**62, 4, 1, 3), (-1, 8, 8, 3), (12, 64, 64, 3)])
def test_a_promise_of_more_than_there_is_is_refused(tmp_path, shape):
    path = tmp_path / "episode.npz"
    save_episode(path, make_episode())
    replace_members(path, {"image.npy": header(shape) + bytes(100)})
    assert_bad(path, "its image claims to be")


@pytest.mark.parametrize("part", [1.1, 0.7])
def test_arrays_beyond_the_limit_are_refused_before_there_is_room_for_them(tmp_path, part):
    """The archive's own table agrees with the headers, as it does in a bomb: only the limit is left to tell."""
    path, steps = tmp_path / "episode.npz", int(part * LIMIT) // 192
    save_episode(path, make_episode())
    headers = {"image.npy": header((steps, 8, 8, 3)), "proprio.npy": header((steps, 48), "<f4")}
    replace_members(path, headers, {name: len(data) + 192 * steps for name, data in headers.items()})
    tracemalloc.start()
    try:
        assert_bad(path, "its arrays have .* bytes, more")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_other_methods_of_compression_are_refused(tmp_path):
    path = tmp_path / "episode.npz"
    save_episode(path, make_episode())
    with zipfile.ZipFile(path) as archive:
        data = archive.read("reward.npy")
    replace_members(path, {"reward.npy": data}, compress_type=zipfile.ZIP_LZMA)
    assert_bad(path, "method that is not in use")


def test_what_is_no_plain_file_is_bad_and_what_is_not_there_is_missing(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    assert_bad(tmp_path / "pipe.npz", "not a plain file")
    with pytest.raises(FileNotFoundError):
        load_episode(tmp_path / "none.npz")


# --- Folders ---


def fill(path, count=4):
    folder = EpisodeFolder(path)
    for seed in range(count):
        folder.save(seed, make_episode(seed))
    return folder


def damage(folder, number):
    path = folder.path_of(number)
    path.write_bytes(path.read_bytes()[:500])


def contents(path):
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_a_folder_gives_its_episodes_in_order(tmp_path):
    folder = fill(tmp_path / "run" / "episodes", 12)
    assert folder.numbers() == list(range(12))
    assert folder.path_of(3).name == "000003.npz"
    loaded = list(EpisodeFolder(folder.path).load_all())
    assert [number for number, _ in loaded] == list(range(12))
    for number, episode in loaded:
        assert_same(episode, make_episode(number))
    assert [number for number, _ in folder.load_all(up_to=5)] == [0, 1, 2, 3, 4]
    assert [number for number, _ in folder.load_all(up_to=5, first=3)] == [3, 4]
    assert all(not episode.image.size for _, episode in folder.load_all(images=False))
    assert_same(folder.load(7), make_episode(7))


def test_an_episode_is_saved_again_under_its_number(tmp_path):
    folder = fill(tmp_path)
    folder.save(1, make_episode(9))
    folder.save(1_000_000, make_episode(8))
    assert_same(folder.load(1), make_episode(9))
    assert folder.numbers() == [0, 1, 2, 3, 1_000_000]


def test_bad_episodes_are_set_aside_and_the_others_go_on(tmp_path, caplog):
    folder = fill(tmp_path)
    damage(folder, 1), damage(folder, 3)
    broken = folder.path_of(1).read_bytes()
    with caplog.at_level(logging.WARNING, "plan2explore.replay"):
        assert [number for number, _ in folder.load_all()] == [0, 2]
    assert str(folder.path_of(1)) in caplog.text and "set aside" in caplog.text
    assert (tmp_path / "set-aside" / "000001.npz").read_bytes() == broken
    assert folder.numbers() == [0, 2]
    folder.save(1, make_episode())
    damage(folder, 1)
    assert [number for number, _ in folder.load_all()] == [0, 2]
    assert sorted(each.name for each in (tmp_path / "set-aside").iterdir()) == [
        "000001-1.npz", "000001.npz", "000003.npz",
    ]  # fmt: skip


def test_a_folder_that_is_only_read_stays_as_it_is(tmp_path, caplog):
    folder = fill(tmp_path)
    damage(folder, 2)
    (tmp_path / ".000004.npz.part").write_bytes(b"half")
    before = contents(tmp_path)
    reader = EpisodeFolder(tmp_path, read_only=True)
    assert [number for number, _ in reader.load_all()] == [0, 1, 3]
    assert "000002.npz" in caplog.text
    assert contents(tmp_path) == before
    assert EpisodeFolder(tmp_path / "none", read_only=True).numbers() == [] and not (tmp_path / "none").exists()


def test_half_written_files_are_cleared_away_and_other_files_are_not(tmp_path):
    fill(tmp_path, 1)
    for name in (".000001.npz.part", ".000001.npz.77.part", "notes.txt", ".hidden", "copy of 000000.npz", "7.npz"):
        (tmp_path / name).write_bytes(b"x")
    assert EpisodeFolder(tmp_path).numbers() == [0]
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        ".hidden", "000000.npz", "7.npz", "copy of 000000.npz", "notes.txt",
    ]  # fmt: skip


# --- Trouble while writing ---


def test_a_full_disk_costs_the_new_episode_only(tmp_path, monkeypatch):
    folder = fill(tmp_path, 1)
    before = contents(tmp_path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.save(1, make_episode())
    assert contents(tmp_path) == before


KILLS_SAVERS = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_files import EpisodeFolder, make_episode
folder, episode = EpisodeFolder(Path(sys.argv[1])), make_episode(steps=300)
for kill in range(4):
    ready, tell = os.pipe()
    if not (child := os.fork()):
        for number in range(len(folder.numbers()), 10**6):
            folder.save(number, episode)
            os.write(tell, b"x")
    os.read(ready, 1)
    time.sleep(0.05 + 0.013 * kill)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_killed_processes_leave_whole_episodes_only(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", KILLS_SAVERS, tmp_path, Path(__file__).parent]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    folder, expected = EpisodeFolder(tmp_path), make_episode(steps=300)
    numbers = folder.numbers()
    assert numbers == list(range(len(numbers))) and len(numbers) > 3
    assert [number for number, episode in folder.load_all() if not assert_same(episode, expected)] == numbers
    assert sorted(each.name for each in tmp_path.iterdir()) == [folder.path_of(number).name for number in numbers]
