"""Batches are what was stored, drawn fairly, and the same wherever frames are kept."""

import threading
from collections import Counter
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from plan2explore.config import Spaces
from plan2explore.replay import buffer as module
from plan2explore.replay.buffer import Replay, TooLittleMemoryError, plan_replay

BATCH, LENGTH = 50, 4
COUNT = 4  # batches drawn at once; another number would be another program to compile
SPACES = Spaces(action=2, image=4, proprio=3, tasks=2)
PLACES = ("device", "host")
BYTES = 4 * 4 * 3 + 4 * (3 + 2 + 2) + 2  # of a step


def make(place, capacity=72, streams=1, spaces=SPACES, batch=BATCH, length=LENGTH):
    return Replay(place, capacity, streams, spaces, batch, length)


def rows_of(episode, start, stop, terminated=False):
    """Steps of an episode in which every number tells the episode and the step."""
    mark = 20 * episode + np.arange(start, stop)
    return {
        "image": np.broadcast_to(mark[:, None, None, None], (len(mark), 4, 4, 3)).astype(np.uint8),
        "proprio": mark[:, None] + np.array([0.0, 0.1, 0.2], np.float32),
        "action": mark[:, None] + np.array([0.3, 0.4]),  # float64: stored shorter
        "reward": mark[:, None] + np.array([0.5, 0.6]),
        "is_first": mark % 20 == 0,
        "is_terminal": (mark == mark[-1:]) & terminated,
    }


def marks(batches):
    """The marks of each step, once it is certain that all that was stored with it came with it."""
    batches = {name: np.asarray(array) for name, array in batches.items()}
    mark = batches["image"][..., 0, 0, 0].astype(int)
    np.testing.assert_array_equal(batches["image"], np.broadcast_to(mark[..., None, None, None], (*mark.shape, 4, 4, 3)))
    for name, shifts in {"proprio": [0.0, 0.1, 0.2], "action": [0.3, 0.4], "reward": [0.5, 0.6]}.items():
        np.testing.assert_allclose(batches[name], mark[..., None] + np.array(shifts), rtol=1e-6)
    assert batches["is_first"][mark % 20 == 0].all()
    return mark


def windows(replay, key=0):
    """The distinct windows of many draws, each a tuple of marks."""
    keys = jax.random.split(jax.random.key(key), 5)
    return {tuple(window) for each in keys for window in marks(replay.sample(each, COUNT)).reshape(-1, LENGTH).tolist()}


def all_windows(sequence):
    """What can be drawn where the streams together hold this circular sequence."""
    return {tuple(np.take(sequence, start + np.arange(LENGTH), mode="wrap")) for start in range(len(sequence))}


@pytest.mark.parametrize("place", PLACES)
def test_batches_have_the_form_that_the_learner_takes(place):
    replay = make(place)
    replay.add_episode(rows_of(0, 0, 9))
    batches = replay.sample(jax.random.key(0), COUNT)
    assert {name: (array.shape, str(array.dtype)) for name, array in batches.items()} == {
        "action": ((COUNT, BATCH, LENGTH, 2), "float32"),
        "image": ((COUNT, BATCH, LENGTH, 4, 4, 3), "uint8"),
        "is_first": ((COUNT, BATCH, LENGTH), "bool"),
        "is_terminal": ((COUNT, BATCH, LENGTH), "bool"),
        "proprio": ((COUNT, BATCH, LENGTH, 3), "float32"),
        "reward": ((COUNT, BATCH, LENGTH, 2), "float32"),
    }
    # Tied to no device: what learns from them would be compiled for a state that is not, and again for its result, which is.
    assert not any(array.committed for array in batches.values())
    forms = {name: (form.shape, form.dtype) for name, form in replay.batches(COUNT).items()}
    assert forms == {name: (array.shape, array.dtype) for name, array in batches.items()}


@pytest.mark.parametrize(
    ("spaces", "names"),
    [
        (Spaces(2, image=None, proprio=3, tasks=0), {"action", "proprio"}),
        (Spaces(2, image=4, tasks=2), {"action", "image", "reward"}),
    ],
)
def test_only_what_the_agent_learns_from_is_kept(spaces, names):
    replay = make("host", spaces=spaces)
    replay.add_episode(rows_of(0, 0, 9))
    assert set(replay.sample(jax.random.key(0), COUNT)) == names | {"is_first", "is_terminal"}


@pytest.mark.parametrize("counts", [(7,), (3, 0, 5), (1, 1, 1), (2,)])
@pytest.mark.parametrize("length", [1, 4, 9])
def test_windows_from_all_starts_hold_every_step_equally_often(counts, length):
    """Exactly, by counting: also where a window is longer than all that is stored."""
    ring, oldest = 9, np.array([5, 0, 8], np.int32)[: len(counts)]
    table = np.stack([np.array(counts, np.int32), oldest])
    places, is_oldest = module.locate(np.arange(sum(counts))[:, None] + np.arange(length), table, ring)
    stored = {stream * ring + (oldest[stream] + step) % ring for stream, n in enumerate(counts) for step in range(n)}
    assert Counter(places.ravel().tolist()) == dict.fromkeys(stored, length)
    assert set(places[is_oldest]) == {stream * ring + oldest[stream] for stream, n in enumerate(counts) if n}


@pytest.mark.parametrize("place", PLACES)
def test_starts_are_drawn_alike_in_episodes_of_3_to_400_steps(place):
    replay = Replay(place, 1000, 2, Spaces(action=1, image=None, proprio=1, tasks=0), batch=500, length=50)
    lengths, start = (3, 400, 17, 3, 120, 51), 0
    for length in lengths:
        mark = start + np.arange(length)[:, None]
        flags = {"is_first": mark[:, 0] == start, "is_terminal": mark[:, 0] == start + length - 1}
        replay.add_episode({"action": mark, "proprio": mark, **flags})
        start += length
    assert replay.steps == sum(lengths) and replay.episodes == len(lengths)
    drawn = [replay.sample(key, 10) for key in jax.random.split(jax.random.key(1), 10)]
    counts = Counter(np.concatenate([np.asarray(each["proprio"]).ravel() for each in drawn]).astype(int).tolist())
    starts = Counter(np.concatenate([np.asarray(each["proprio"])[:, :, 0].ravel() for each in drawn]).astype(int).tolist())
    assert counts.keys() == starts.keys() == set(range(594))
    expected = 50_000 / 594
    squares = sum((number - expected) ** 2 / expected for number in starts.values())
    assert squares < 713  # chi-squared with 593 degrees of freedom: 713 or more once in 2,000 keys
    ends = np.cumsum(lengths)
    for each in drawn[:2]:
        mark = np.asarray(each["proprio"])[..., 0]
        assert np.array_equal(each["is_first"], np.isin(mark, [0, *ends[:-1]]))
        assert np.array_equal(each["is_terminal"], np.isin(mark, ends - 1))


@pytest.mark.parametrize("place", PLACES)
def test_windows_run_across_ends_and_streams(place):
    replay = make(place, streams=2)
    replay.append(0, rows_of(0, 0, 5))
    replay.append(0, rows_of(1, 0, 3, terminated=True))
    replay.append(1, rows_of(2, 0, 4))
    sequence = [0, 1, 2, 3, 4, 20, 21, 22, 40, 41, 42, 43]
    assert windows(replay) == all_windows(sequence)
    batches = replay.sample(jax.random.key(3), COUNT)
    mark = marks(batches)
    assert np.array_equal(batches["is_first"], mark % 20 == 0) and np.array_equal(batches["is_terminal"], mark == 22)


def test_both_places_give_the_same_bits():
    device, host, roomy = (make(*form) for form in (("device", 72, 3), ("host", 72, 3), ("host", 1000, 3)))
    generator = np.random.default_rng(0)
    for number, length in enumerate((9, 3, 7, 24)):
        rows = {
            "image": generator.integers(0, 255, (length, 4, 4, 3), np.uint8),
            "proprio": generator.normal(size=(length, 3)),
            "action": generator.normal(size=(length, 2)),
            "reward": generator.normal(size=(length, 2)),
            "is_first": generator.random(length) < 0.3,
            "is_terminal": generator.random(length) < 0.3,
        }
        for replay in (device, host, roomy):
            replay.append(number % 3, rows)
        kept = (device, host, roomy) if number < 3 else (device, host)  # the last is more than a ring of 24 has room for
        for key in jax.random.split(jax.random.key(length), 3):
            one, *others = (replay.sample(key, COUNT) for replay in kept)
            for other in others:
                assert one.keys() == other.keys()
                for name in one:
                    assert np.asarray(one[name]).tobytes() == np.asarray(other[name]).tobytes(), name
    assert not np.array_equal(one["action"], device.sample(jax.random.key(99), COUNT)["action"])


@pytest.mark.parametrize("place", PLACES)
def test_a_running_episode_is_drawn_as_far_as_it_has_come(place):
    replay = make(place)
    with pytest.raises(ValueError, match="Replay is empty"):
        replay.sample(jax.random.key(0), COUNT)
    replay.append(0, rows_of(0, 0, 3))
    assert windows(replay) == all_windows([0, 1, 2]) and replay.steps == 3  # fewer than a window has
    replay.append(0, rows_of(0, 3, 5))
    replay.append(0, rows_of(0, 5, 5))
    assert windows(replay) == all_windows(range(5)) and replay.episodes == 1


@pytest.mark.parametrize("place", PLACES)
def test_a_full_stream_forgets_its_oldest_steps(place):
    replay = make(place, capacity=20, streams=2)
    replay.append(1, rows_of(3, 0, 2))
    for episode in range(3):
        for start in range(0, 6, 3):
            replay.append(0, rows_of(episode, start, start + 3))
    kept = [*range(22, 26), *range(40, 46)]
    assert replay.steps == 12 and replay.episodes == 4
    assert windows(replay) == all_windows([*kept, 60, 61])
    batches = replay.sample(jax.random.key(0), COUNT)
    assert np.asarray(batches["is_first"])[marks(batches) == 22].all(), "nothing before it is known any more"
    replay.append(0, rows_of(4, 0, 13))  # more than the ring has room for
    assert windows(replay) == all_windows([*range(83, 93), 60, 61])


@pytest.mark.parametrize("place", PLACES)
def test_what_was_retracted_leaves_no_trace(place):
    """The same run without an episode whose worker died draws the same."""
    lossy, clean = make(place, 20, 2), make(place, 20, 2)
    for replay in (lossy, clean):
        replay.append(0, rows_of(0, 0, 5))
    lossy.append(0, rows_of(9, 0, 2))
    lossy.append(1, rows_of(8, 0, 3))
    lossy.append(0, rows_of(9, 2, 4))
    lossy.retract(0, 4)
    lossy.retract(1, 3)
    assert (lossy.steps, lossy.episodes) == (5, 1)
    for replay in (lossy, clean):
        replay.append(1, rows_of(1, 0, 8))
        replay.append(0, rows_of(2, 0, 4))
    for key in jax.random.split(jax.random.key(2), 3):
        np.testing.assert_array_equal(marks(lossy.sample(key, COUNT)), marks(clean.sample(key, COUNT)))
    lossy.retract(1, 100)  # an episode longer than what is stored of it
    assert windows(lossy) == all_windows([*range(5), *range(40, 44)])


def test_whole_episodes_are_spread_over_streams():
    replay = make("host", streams=3)
    for episode, length in enumerate((9, 4, 3, 2, 5)):
        replay.add_episode(rows_of(episode, 0, length))
    assert replay._counts.tolist() == [9, 9, 5]
    replay.add_episode(rows_of(5, 0, 3), stream=1)
    assert replay._counts.tolist() == [9, 12, 5]


@pytest.mark.parametrize("place", PLACES)
def test_the_newest_steps_come_newest_first_and_always_as_many(place):
    replay = make(place, capacity=20)
    for episode, length in enumerate((9, 6, 3)):
        replay.add_episode(rows_of(episode, 0, length))
    np.testing.assert_array_equal(marks(replay.newest(2, 3)), [[40, 41, 42], [23, 24, 25]])
    np.testing.assert_array_equal(marks(replay.newest(3, 4)), [[22, 23, 24, 25], [5, 6, 7, 8], [22, 23, 24, 25]])
    shorter = replay.newest(2, 10)  # than all episodes: what was stored before comes with them
    np.testing.assert_array_equal(marks(shorter), [[8, *range(20, 26), *range(40, 43)], [*range(5, 9), *range(20, 26)]])
    assert np.asarray(shorter["is_first"])[0].nonzero()[0].tolist() == [1, 7]
    replay.append(0, rows_of(3, 0, 5))  # the first steps of the first episode are gone
    np.testing.assert_array_equal(marks(replay.newest(4, 5))[:3], [range(60, 65), range(21, 26), range(4, 9)])


def test_streams_take_turns_with_their_newest_episodes():
    replay = make("host", streams=3)
    for stream, episode, length in ((0, 0, 5), (0, 1, 6), (2, 2, 7), (2, 3, 2), (2, 4, 4)):
        replay.append(stream, rows_of(episode, 0, length))
    assert marks(replay.newest(4, 3))[:, -1].tolist() == [25, 83, 4, 46]


@pytest.mark.parametrize("place", PLACES)
def test_rows_may_be_written_over_afterwards(place):
    """As environments do with the memory that they share."""
    replay, shared = make(place), rows_of(0, 0, 9)
    replay.add_episode(shared)
    for array in shared.values():
        array[...] = 77
    assert windows(replay) == all_windows(range(9))


def test_wrong_rows_are_refused():
    replay, rows = make("host"), rows_of(0, 0, 5)
    with pytest.raises(ValueError, match="Replay needs reward"):
        replay.append(0, {name: rows[name] for name in rows if name != "reward"})
    with pytest.raises(ValueError, match=r"image is float64 .* uint8"):
        replay.append(0, rows | {"image": rows["image"] / 255})
    with pytest.raises(ValueError, match=r"proprio is float\d+ \(4, 3\)"):
        replay.append(0, rows | {"proprio": rows["proprio"][:4]})
    assert replay.episodes == replay.steps == 0  # nothing was written of what was refused


def test_little_is_compiled_for_pieces_of_any_length():
    replay = make("device", capacity=2000)
    functions = (module.write_steps, module.draw_windows, module.gather_steps)
    for length in (1, 2, 4, 8, 16):
        replay.append(0, rows_of(0, 0, length))
    replay.sample(jax.random.key(0), COUNT)
    before = [function._cache_size() for function in functions]
    for length in range(1, 17):
        replay.append(0, rows_of(0, 0, length))
        replay.sample(jax.random.key(length), COUNT)
    assert [function._cache_size() for function in functions] == before


def test_steps_are_written_in_place():
    """No second copy of replay, not even for a moment."""
    replay = make("device", capacity=10_000)
    old, rows = dict(replay._store._stored), replay._checked(rows_of(0, 0, 8))
    sizes = module.write_steps.lower(old, np.arange(8), rows).compile().memory_analysis()
    assert sizes.alias_size_in_bytes == bytes_of(old) == 10_000 * BYTES
    assert sizes.temp_size_in_bytes < 10_000
    replay.append(0, rows_of(0, 0, 8))
    assert all(array.is_deleted() for array in old.values())


def bytes_of(arrays):
    return sum(array.nbytes for array in jax.tree.leaves(arrays))


@pytest.mark.parametrize("place", PLACES)
def test_one_thread_may_sample_while_another_appends(place):
    replay, stop, faults = make(place, capacity=60, streams=3), threading.Event(), []
    replay.append(0, rows_of(0, 0, 9))

    def sample():
        number = 0
        while not stop.is_set():
            number += 1
            try:
                batches = replay.sample(jax.random.key(number), COUNT)
                follows = np.diff(marks(batches)) == 1
                assert (follows | np.asarray(batches["is_first"])[..., 1:]).all()
            except Exception as fault:
                faults.append(fault)
                return

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        for round in range(30):
            for start in range(0, 9, 3):
                for stream, episode in enumerate((1, 2, 3 + round % 8)):
                    replay.append(stream, rows_of(episode, start, start + 3))
            replay.retract(round % 3, 9)
    finally:
        stop.set()
        thread.join()
    assert not faults


# --- Where there is room ---

PIXELS = Spaces(action=6, image=64, tasks=1)


@pytest.fixture
def machine(monkeypatch):
    """Sets what the machine says of its memory, in GB. No device: JAX has only the CPU."""

    def has(host, device=None, used=0.0):
        stats = {"bytes_limit": int(1e9 * (device or 0)), "bytes_in_use": int(1e9 * used)}
        gpu = SimpleNamespace(device_kind="NVIDIA Test", memory_stats=lambda: stats)
        cpu = SimpleNamespace(device_kind="cpu", memory_stats=lambda: None)
        fake = SimpleNamespace(
            devices=lambda: [cpu if device is None else gpu],
            default_backend=lambda: "cpu" if device is None else "gpu",
        )
        monkeypatch.setattr(module, "jax", fake)
        monkeypatch.setattr(module, "host_room", lambda: int(1e9 * host))

    return has


def test_frames_are_kept_on_the_device_where_they_fit(machine):
    machine(host=100, device=113)
    plan = plan_replay("auto", 501_000, PIXELS)
    assert plan.place == "device"
    assert plan.sentence == "Replay: 501,000 steps need 6.2 GB; kept on the device (NVIDIA Test, 105 GB free)"
    assert plan_replay("host", 501_000, PIXELS).place == "host"


def test_otherwise_on_the_host(machine):
    machine(host=100, device=15, used=2)
    assert plan_replay("auto", 501_000, PIXELS, reserve=6 * 10**9).place == "device"
    plan = plan_replay("auto", 501_000, PIXELS)
    assert plan.place == "host"
    assert plan.sentence == (
        "Replay: 501,000 steps need 6.2 GB, more than there is on the device (NVIDIA Test, 5.0 GB free); kept in "
        "host memory (90.0 GB free)"
    )
    with pytest.raises(TooLittleMemoryError, match=r"6\.2 GB, more than .* 5\.0 GB free.*fewer steps"):
        plan_replay("device", 501_000, PIXELS)


def test_a_run_that_fits_nowhere_says_so(machine):
    machine(host=5, device=10)
    with pytest.raises(TooLittleMemoryError, match=r"6\.2 GB, .*2\.0 GB free.*host memory has 4\.5 GB free\. .*smaller"):
        plan_replay("auto", 501_000, PIXELS)
    assert plan_replay("auto", 501_000, Spaces(6, image=None, proprio=17)).place == "device"


@pytest.mark.parametrize("place", ["auto", "host", "device"])
def test_without_an_accelerator_all_is_host_memory(machine, place):
    machine(host=8)
    plan = plan_replay(place, 501_000, PIXELS)
    assert plan.place == ("device" if place == "device" else "host") and "7.2 GB free" in plan.sentence
    with pytest.raises(TooLittleMemoryError):
        plan_replay(place, 601_200, PIXELS)


def test_the_bytes_planned_are_the_bytes_taken():
    plan = plan_replay("device", 90_000, SPACES, reserve=0)
    assert module.gigabytes(bytes_of(make(plan.place, capacity=90_000)._store._stored)) in plan.sentence


def test_room_on_this_machine_is_known():
    with open("/proc/meminfo") as file:
        total = 1024 * int(file.readline().split()[1])
    assert 0 < module.host_room() <= total


@pytest.mark.parametrize(
    ("line", "group", "files", "room"),
    [
        ("0::/a/b", "a/b", {"memory.max": "5000", "memory.current": "3000"}, 2100),
        ("0::/a/b", "a", {"memory.max": "5000", "memory.current": "3000"}, 2100),
        ("0::/a/b", "a/b", {"memory.max": "max", "memory.current": "3000"}, 8192),
        ("4:memory:/c", "memory/c", {"memory.limit_in_bytes": "5000", "memory.usage_in_bytes": "1000"}, 4100),
        ("4:memory:/gone", "memory", {"memory.limit_in_bytes": "5000", "memory.usage_in_bytes": "6000"}, 0),
        ("1:cpu:/a", "a", {"memory.max": "5000", "memory.current": "3000"}, 8192),
    ],
)
def test_limits_of_control_groups_count(tmp_path, line, group, files, room):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 8 kB\n")
    (proc / "self/cgroup").write_text(f"{line}\n")
    (groups / group).mkdir(parents=True)
    for name, text in (files | {"memory.stat": "file 500\ninactive_file 100"}).items():
        (groups / group / name).write_text(f"{text}\n")
    assert module.host_room(proc, groups) == room
