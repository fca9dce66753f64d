"""Checkpoints: exact, whole or not there at all, and harmless whoever made them."""

import errno
import hashlib
import json
import logging
import os
import pickle
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from older import write_format_1
from patience import PATIENCE
from sizes import NANO

from plan2explore.agent.actor_critic import Stats
from plan2explore.agent.learner import Learner
from plan2explore.agent.optimizer import init_train_state
from plan2explore.config import Spaces
from plan2explore.replay.buffer import TooLittleMemoryError
from plan2explore.runs import checkpoint
from plan2explore.runs.checkpoint import (
    BadCheckpoint,
    Checkpoints,
    NewerCheckpoint,
    load_arrays,
    pack,
    pack_params,
    read_arrays,
    save_arrays,
    unpack,
    unpack_params,
)

ARRAYS = {"model/params": np.arange(2000, dtype=np.float32).reshape(2, 1000), "update": np.array(7, np.int32)}
ENDINGS = ("json", "safetensors")
SPACES = Spaces(action=2, image=None, proprio=3, tasks=1)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def edit(file: Path, **fields) -> None:
    """Changes fields of a checkpoint's JSON."""
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def forge(path: Path, data: bytes) -> None:
    """An untrusted checkpoint: any bytes, described properly."""
    path.with_suffix(".json").unlink(missing_ok=True)
    save_arrays(path, ARRAYS, {})
    path.with_suffix(".safetensors").write_bytes(data)
    edit(path.with_suffix(".json"), size=len(data), sha256=hashlib.sha256(data).hexdigest())


# --- The learner's state ---


@pytest.fixture(scope="module")
def learner():
    return Learner(NANO, SPACES)


@pytest.fixture(scope="module")
def template(learner):
    return jax.eval_shape(learner.init, jax.random.key(0))


def test_training_resumes_bit_by_bit(learner, template, tmp_path):
    """Save, continue; load, continue: the same parameters, optimisers and key."""
    rng = np.random.default_rng(0)
    shape = (learner.agent.config.batch, learner.agent.config.length)
    sizes = {"proprio": 3, "action": 2, "reward": 1}
    batch = {name: jnp.asarray(rng.uniform(-1, 1, (*shape, size)), jnp.float32) for name, size in sizes.items()}
    batch |= {name: jnp.zeros(shape, bool) for name in ("is_first", "is_terminal")}
    state, _ = learner.update(learner.init(jax.random.key(5)), batch)

    packed = pack(state)
    before = {name: array.copy() for name, array in packed.items()}
    onwards, _ = learner.update(state, batch)
    for name, array in packed.items():
        np.testing.assert_array_equal(array, before[name], err_msg=f"{name} was overwritten by the next update")

    save_arrays(tmp_path / "one", packed, {"episodes": 3})
    arrays, meta = load_arrays(tmp_path / "one")
    again, _ = learner.update(unpack(template, arrays), batch)
    assert meta == {"episodes": 3}
    expected, found = pack(onwards), pack(again)
    assert list(expected) == list(found) and int(found["update"]) == 2
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name], err_msg=name)
        assert array.dtype == found[name].dtype
    assert any((expected[name] != before[name]).any() for name in expected if name.endswith("params"))


def test_names_can_be_read(template):
    packed = {name: leaf.shape for name, leaf in checkpoint._named_leaves(template).items()}
    assert set(packed) == {"update", "key", "slow_critic"} | {f"stats/{name}" for name in Stats._fields} | {
        f"{kind}/{name}"
        for kind in ("actor", "critic", "model", "intrinsic", "reward")
        for name in ("params", "opt_state/count", "opt_state/mu", "opt_state/nu")
    }
    assert packed["model/params"] == packed["model/opt_state/mu"]


def test_other_sizes_are_named(template, tmp_path):
    other = Learner(NANO, replace(SPACES, proprio=4))
    made = jax.eval_shape(lambda key: checkpoint._plain(other.init.__wrapped__(key)), jax.random.key(0))
    shapes = checkpoint._named_leaves(made)
    arrays = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}
    with pytest.raises(BadCheckpoint, match=r"another configuration: 'model/params' is float32\[1, \d+\] in it and float"):
        unpack(template, arrays)
    shapes = checkpoint._named_leaves(jax.eval_shape(checkpoint._plain, template))
    fitting = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}
    assert unpack(template, fitting).networks["model"].params.shape == template.networks["model"].params.shape
    with pytest.raises(BadCheckpoint, match="'critic/params' is missing in it"):
        unpack(template, {name: array for name, array in fitting.items() if name != "critic/params"})
    with pytest.raises(BadCheckpoint, match=r"'extra' is float64\[2\] in it and missing in this agent"):
        unpack(template, fitting | {"extra": np.zeros(2)})
    with pytest.raises(BadCheckpoint, match=r"'update' is int64\[\] in it and int32\[\]"):
        unpack(template, fitting | {"update": np.zeros((), np.int64)})


def test_a_snapshot_has_parameters_alone(tmp_path):
    params = {"model": jnp.ones((1, 5)), "actor": jnp.full((2, 3), 2.0), "intrinsic": jnp.zeros((1, 0))}
    networks = {name: init_train_state(values) for name, values in params.items()}
    save_arrays(tmp_path / "one", pack_params(networks), {})
    arrays, _ = load_arrays(tmp_path / "one")
    assert set(arrays) == {"model/params", "actor/params", "intrinsic/params"}
    found = unpack_params(arrays | {"model/opt_state/mu": np.zeros(1), "update": np.zeros(())})
    assert {name: array.shape for name, array in found.items()} == {"model": (1, 5), "actor": (2, 3), "intrinsic": (1, 0)}
    np.testing.assert_array_equal(found["actor"], networks["actor"].params)


def test_a_checkpoint_of_format_1_is_a_state_of_today(template, tmp_path):
    leaves = checkpoint._named_leaves(jax.eval_shape(checkpoint._plain, template))
    rng = np.random.default_rng(0)
    arrays = {name: np.asarray(rng.integers(0, 9, leaf.shape), leaf.dtype) for name, leaf in leaves.items()}
    write_format_1(tmp_path / "one", arrays, {"episodes": 3})
    found, meta = load_arrays(tmp_path / "one")
    assert meta == {"episodes": 3}
    state = unpack(template, found)
    np.testing.assert_array_equal(state.networks["intrinsic"].params, arrays["intrinsic/params"])
    np.testing.assert_array_equal(found["actor/opt_state/mu"], arrays["actor/opt_state/mu"])
    assert not any(np.any(each) for each in state.stats) and state.stats.reward_low.shape == (2,)
    snapshot = {name: array for name, array in arrays.items() if name.endswith("/params")}
    write_format_1(tmp_path / "two", snapshot, {})
    assert set(load_arrays(tmp_path / "two")[0]) == set(snapshot)


# --- One checkpoint ---


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint32, np.bool_])
def test_every_kind_of_number_comes_back(kind, tmp_path):
    arrays = {
        "flat": np.array([0, 1, 1, 0], kind),
        "turned": np.arange(6).reshape(2, 3).astype(kind).T,
        "single": np.array(1, kind),
        "empty": np.zeros((0, 3), kind),
    }
    save_arrays(tmp_path / "one", arrays, {})
    found, _ = load_arrays(tmp_path / "one")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)


def test_anyone_can_read_the_arrays(tmp_path):
    save_arrays(tmp_path / "one", ARRAYS, {})
    found = safetensors.numpy.load_file(tmp_path / "one.safetensors")
    np.testing.assert_array_equal(found["model/params"], ARRAYS["model/params"])


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


DAMAGE = {
    "safetensors is damaged: it has .* bytes instead of": lambda data, text: data.write_bytes(data.read_bytes()[:-100]),
    "safetensors is damaged: its checksum": lambda data, text: flip_a_bit(data),
    "safetensors is missing": lambda data, text: data.unlink(),
    "json is missing": lambda data, text: text.unlink(),
    "json is damaged: it is not": lambda data, text: text.write_bytes(text.read_bytes()[:50]),
    "json is damaged: no proper 'size'": lambda data, text: edit(text, size="many"),
    "json is damaged: no proper 'data'": lambda data, text: edit(text, data="../../etc/passwd"),
}


@pytest.mark.parametrize("fault", DAMAGE)
def test_damage_is_named(fault, tmp_path):
    save_arrays(tmp_path / "one", ARRAYS, {})
    DAMAGE[fault](tmp_path / "one.safetensors", tmp_path / "one.json")
    with pytest.raises(BadCheckpoint, match=rf"one\.{fault}"):
        load_arrays(tmp_path / "one")


def test_a_newer_format_says_so(tmp_path):
    save_arrays(tmp_path / "one", ARRAYS, {})
    edit(tmp_path / "one.json", format=checkpoint.FORMAT + 1, version="9.1")
    with pytest.raises(NewerCheckpoint, match=r"one\.json was made by a newer version .*\(9\.1.*: update plan2explore"):
        load_arrays(tmp_path / "one")


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_untrusted_files_are_errors_and_execute_nothing(tmp_path):
    target = tmp_path / "executed"

    def with_header(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
        return struct.pack("<Q", len(header) if length is None else length) + header + data

    def entry(**fields) -> bytes:
        return json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} | fields}).encode()

    hostile = {
        "a pickle": pickle.dumps(Bomb(target)),
        "a long pickle": pickle.dumps([Bomb(target), "x" * 10_000]),
        "nothing": b"",
        "a huge header": with_header(b"{}", length=2**63),
        "a header beyond the end": with_header(b"{}", length=10**7),
        "an overflowing shape": with_header(entry(shape=[2**62, 4]), bytes(16)),
        "offsets beyond the end": with_header(entry(data_offsets=[0, 10**9]), bytes(16)),
        "objects": with_header(entry(dtype="O"), bytes(16)),
        "an unknown format": with_header(entry(dtype="F8_E4M3", shape=[16]), bytes(16)),
        "nesting": with_header(b"[" * 100_000),
    }
    for what, data in hostile.items():
        forge(tmp_path / "one", data)
        with pytest.raises(BadCheckpoint, match=r"one\.safetensors (is no safetensors file|has numbers of an unknown)"):
            load_arrays(tmp_path / "one")
        assert not target.exists(), what
    (tmp_path / "one.json").write_bytes(pickle.dumps(Bomb(target)))
    with pytest.raises(BadCheckpoint, match="is damaged"):
        load_arrays(tmp_path / "one")
    assert not target.exists()
    pickle.loads(hostile["a pickle"])
    assert target.exists(), "the bomb itself is no good, so this test shows nothing"


def test_numbers_that_are_not_finite_are_damage(tmp_path):
    save_arrays(tmp_path / "one", ARRAYS | {"stats/reward_low": np.array([0, np.nan], np.float32)}, {})
    with pytest.raises(BadCheckpoint, match=r"one\.safetensors is damaged: 'stats/reward_low' is not finite"):
        load_arrays(tmp_path / "one")


def test_arrays_without_a_description_are_checked_too(tmp_path):
    save_arrays(tmp_path / "one", ARRAYS, {})
    file = tmp_path / "one.safetensors"
    assert read_arrays(file, expected=ARRAYS).keys() == ARRAYS.keys()
    for wrong in (ARRAYS["model/params"][:1], ARRAYS["model/params"].astype(np.float64)):
        fault = r"one\.safetensors is of another configuration: 'model/params' is float32\[2, 1000\] in it"
        with pytest.raises(BadCheckpoint, match=fault):
            read_arrays(file, expected=ARRAYS | {"model/params": wrong})
    forge(tmp_path / "one", pickle.dumps(3))
    with pytest.raises(BadCheckpoint, match="is no safetensors file"):
        read_arrays(file)


def test_a_file_for_which_there_is_no_memory_is_not_read(tmp_path, monkeypatch):
    saved = Checkpoints(tmp_path)
    saved.save(1, ARRAYS, {})
    with (tmp_path / "0000000001.safetensors").open("ab") as file:
        file.truncate(200 * 10**9)  # takes no room on the disk
    edit(tmp_path / "0000000001.json", size=200 * 10**9)
    monkeypatch.setattr(checkpoint, "host_room", lambda: 10**10)
    with pytest.raises(TooLittleMemoryError, match=r"0000000001\.safetensors has 200 GB, and host memory has 10"):
        saved.load_latest()
    assert saved.steps() == [1]  # it may be a good one


def test_a_pipe_does_not_keep_us_waiting(tmp_path):
    save_arrays(tmp_path / "one", ARRAYS, {})
    (tmp_path / "one.json").unlink()
    os.mkfifo(tmp_path / "one.json")
    with pytest.raises(BadCheckpoint, match="is missing"):
        load_arrays(tmp_path / "one")


# --- All checkpoints of a run ---


def test_the_newest_stay(tmp_path):
    saved = Checkpoints(tmp_path / "some", keep=2)
    assert saved.steps() == [] and saved.load_latest() is None
    for steps in (0, 500, 1000, np.int64(12_000)):
        saved.save(steps, ARRAYS, {"steps": int(steps)})
    assert saved.steps() == [1000, 12_000]
    assert names(tmp_path / "some") == [f"{steps:010d}.{end}" for steps in (1000, 12_000) for end in ENDINGS]
    arrays, meta = saved.load_latest()
    assert meta == {"steps": 12_000}
    np.testing.assert_array_equal(arrays["model/params"], ARRAYS["model/params"])
    every = Checkpoints(tmp_path / "all", keep=None)
    for steps in range(4):
        every.save(steps, ARRAYS, {})
    assert every.steps() == [0, 1, 2, 3]


def test_what_is_not_there_is_said(tmp_path):
    saved = Checkpoints(tmp_path, keep=None)
    with pytest.raises(BadCheckpoint, match="has no checkpoint"):
        saved.nearest(5)
    for steps in (0, 500, 1000):
        saved.save(steps, {"a": np.array(steps)}, {})
    assert saved.nearest(500) == 500 and saved.load(500)[0]["a"] == 500
    with pytest.raises(BadCheckpoint, match=r"nothing at 600 environment steps, but at 0, 500, 1000\. The nearest is 500\."):
        saved.load(600)


def test_a_bad_one_is_set_aside_and_the_one_before_is_used(tmp_path, caplog):
    saved = Checkpoints(tmp_path)
    for steps in (1, 2):
        saved.save(steps, ARRAYS, {"steps": steps})
    (tmp_path / "0000000002.safetensors").write_bytes(b"short")
    with caplog.at_level(logging.WARNING):
        assert saved.load_latest()[1] == {"steps": 1}
    assert "0000000002.safetensors is damaged" in caplog.text and "set-aside/0000000002.json. An older" in caplog.text
    assert names(tmp_path / "set-aside") == ["0000000002.json", "0000000002.safetensors"]
    assert saved.steps() == [1]
    saved.save(2, ARRAYS, {"steps": 2})
    assert saved.load_latest()[1] == {"steps": 2}
    (tmp_path / "0000000002.json").write_text("{")
    assert saved.load_latest()[1] == {"steps": 1}
    assert names(tmp_path / "set-aside")[:2] == ["0000000002-1.json", "0000000002-1.safetensors"]


def test_one_that_its_reader_refuses_is_set_aside(tmp_path, caplog):
    saved = Checkpoints(tmp_path)
    for steps in (1, 2):
        saved.save(steps, ARRAYS, {"steps": steps})

    def check(arrays, meta):
        if meta["steps"] == 2:
            raise ValueError("its steps are 2")

    assert saved.load_latest(check)[1] == {"steps": 1}
    assert "0000000002.json is damaged: its steps are 2. It was moved to" in caplog.text and saved.steps() == [1]


def test_if_all_are_bad_that_is_said_and_nothing_is_moved(tmp_path, caplog):
    saved = Checkpoints(tmp_path)
    for steps in (1, 2):
        saved.save(steps, ARRAYS, {})
    (tmp_path / "0000000001.json").write_text("{")
    (tmp_path / "0000000002.safetensors").write_bytes(b"short")
    before = names(tmp_path)
    for _ in range(2):
        with pytest.raises(BadCheckpoint, match=r"2\.safetensors is damaged.*1\.json is damaged.*Put back a copy"):
            saved.load_latest()
        assert names(tmp_path) == before
    assert not caplog.text


def test_arrays_whose_json_files_are_gone_are_lost_checkpoints(tmp_path):
    """One of them may be what a process left that was killed at its first checkpoint."""
    saved = Checkpoints(tmp_path)
    for steps in (1, 2):
        saved.save(steps, ARRAYS, {})
    for file in tmp_path.glob("*.json"):
        file.unlink()
    before = names(tmp_path)
    with pytest.raises(BadCheckpoint, match=r"01\.json is missing\. 0000000002\.json is missing\. No checkpoint, episode"):
        saved.load_latest()
    assert names(tmp_path) == before
    next(tmp_path.glob("0000000002.*")).unlink()
    assert saved.load_latest() is None


def test_a_newer_versions_checkpoint_is_left_alone(tmp_path):
    saved = Checkpoints(tmp_path)
    for steps in (1, 2):
        saved.save(steps, ARRAYS, {})
    edit(tmp_path / "0000000002.json", format=99)
    with pytest.raises(NewerCheckpoint, match="update plan2explore"):
        saved.load_latest()
    assert saved.steps() == [1, 2]


@pytest.mark.parametrize("stopped_at", ["arrays", "JSON", "removal"])
def test_replacing_one_of_the_same_steps_is_safe_at_every_moment(stopped_at, tmp_path, monkeypatch):
    saved = Checkpoints(tmp_path)
    saved.save(1, {"a": np.array(1)}, {})

    class Killed(BaseException):
        pass

    def dies(*args, **kwargs):
        raise Killed

    # Nobody who is killed cleans up: so nothing is removed after that moment.
    monkeypatch.setattr(Path, "unlink", dies if stopped_at == "removal" else lambda *args, **kwargs: None)
    if stopped_at == "arrays":
        monkeypatch.setattr(checkpoint, "write_file", dies)
    elif stopped_at == "JSON":
        monkeypatch.setattr(checkpoint, "write_json", dies)
    with pytest.raises(Killed):
        saved.save(1, {"a": np.array(2)}, {})
    monkeypatch.undo()
    assert saved.load_latest()[0]["a"] == (2 if stopped_at == "removal" else 1)
    for value in (3, 4):
        saved.save(1, {"a": np.array(value)}, {})
        assert saved.load_latest()[0]["a"] == value
        assert len(names(tmp_path)) == 2, "left-over arrays were removed"


def test_left_overs_are_removed_but_nothing_of_others(tmp_path):
    saved = Checkpoints(tmp_path)
    saved.save(1, ARRAYS, {})
    sides = [".0000000002.safetensors.123.part", ".0000000002.json.123.part"]
    theirs = ["mine.safetensors", "notes.txt"]
    for name in (*sides, "0000000002.safetensors", "0000000001.new.safetensors", *theirs):
        (tmp_path / name).write_bytes(b"x")
    saved.save(3, ARRAYS, {})
    assert names(tmp_path) == [f"000000000{i}.{end}" for i in (1, 3) for end in ENDINGS] + theirs


def test_saving_in_the_background(tmp_path, monkeypatch):
    saved, gate = Checkpoints(tmp_path), threading.Event()
    real = checkpoint.save_arrays

    def slow(*args):
        assert gate.wait(300)
        real(*args)

    monkeypatch.setattr(checkpoint, "save_arrays", slow)
    saved.save_soon(1, ARRAYS, {})
    assert saved.steps() == []
    gate.set()
    saved.save_soon(2, ARRAYS, {})
    assert 1 in saved.steps(), "the second waited for the first"
    saved.wait()
    assert saved.steps() == [1, 2]

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_arrays", full)
    saved.save_soon(3, ARRAYS, {})
    with pytest.raises(OSError, match="No space left"):
        saved.wait()
    saved.wait()  # said once


# --- Processes that end ---

KILLS_SAVERS = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from plan2explore.runs.checkpoint import Checkpoints

folders, i = [Checkpoints(Path(sys.argv[1]) / name) for name in ("same", "new")], 0
for kill in range(24):
    saved = folders[kill % 2]
    ready, tell = os.pipe()
    if not (child := os.fork()):
        while True:
            i += 1
            saved.save(i if kill % 2 else 5, {"a": np.full(300_000, i, np.float32)}, {"i": i})
            os.write(tell, b"%9d" % i)
    os.close(tell)
    os.read(ready, 9)
    time.sleep(0.001 * kill)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    told = os.read(ready, 10**6)
    os.close(ready)
    arrays, meta = saved.load_latest()
    assert not told or meta["i"] - int(told[-9:]) in (0, 1), (meta, told[-9:])
    assert meta["i"] > i and (arrays["a"] == meta["i"]).all()
    i = meta["i"]
"""


def test_kill_9_leaves_a_good_checkpoint(tmp_path):
    """Savers killed at 24 moments: each time the last one reported as saved is there, or the one after it."""
    done = subprocess.run([sys.executable, "-c", KILLS_SAVERS, tmp_path], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("set-aside")), "none was bad, so none was set aside"


@pytest.mark.parametrize("rename", [1, 2])
def test_no_space_for_either_file_leaves_the_former_checkpoint(rename, tmp_path, monkeypatch):
    saved = Checkpoints(tmp_path)
    saved.save(1, ARRAYS, {"i": 1})
    calls, real = [], os.fsync

    def full(file):
        calls.append(file)
        if len(calls) >= 2 * rename - 1:  # each file is synchronised, then its folder
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*000000000[12]\."):
        saved.save(2, ARRAYS, {"i": 2})
    monkeypatch.undo()
    assert saved.steps() == [1] and saved.load_latest()[1] == {"i": 1}
    saved.save(3, ARRAYS, {"i": 3})
    assert names(tmp_path) == [f"000000000{i}.{end}" for i in (1, 3) for end in ENDINGS]
