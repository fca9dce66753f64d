"""Batches are what was stored, drawn fairly, and the same wherever frames are kept."""

import threading
from collections import Counter
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from plan2explore.config import Spaces
from plan2explore.replay import replay as module
from plan2explore.replay.buffer import Replay, TooLittleMemoryError, plan_replay

FRAMES, BATCH, LENGTH = 9, 50, 4
COUNT = 4  # batches drawn at once; another number would be another program to compile
SPACES = Spaces(action=2, image=4, proprio=3, tasks=2)
PLACES = ("device", "host")


def make(place, capacity=8, spaces=SPACES, frames=FRAMES, batch=BATCH, length=LENGTH):
    return Replay(place, capacity, frames, spaces, batch, length)


def rows_of(episode, start, stop):
    """Steps of an episode in which every number tells the episode and the step."""
    mark = 20 * episode + np.arange(start, stop)
    return {
        "image": np.broadcast_to(mark[:, None, None, None], (len(mark), 4, 4, 3)).astype(np.uint8),
        "proprio": mark[:, None] + np.array([0.0, 0.1, 0.2], np.float32),
        "action": mark[:, None] + np.array([0.3, 0.4]),  # float64: stored shorter
        "reward": mark[:, None] + np.array([0.5, 0.6]),
    }


def marks(batches):
    """The marks of each step, once it is certain that all that was stored with it came with it."""
    batches = {name: np.asarray(array) for name, array in batches.items()}
    mark = batches["image"][..., 0, 0, 0].astype(int)
    np.testing.assert_array_equal(batches["image"], np.broadcast_to(mark[..., None, None, None], (*mark.shape, 4, 4, 3)))
    for name, shifts in {"proprio": [0.0, 0.1, 0.2], "action": [0.3, 0.4], "reward": [0.5, 0.6]}.items():
        np.testing.assert_allclose(batches[name], mark[..., None] + np.array(shifts), rtol=1e-6)
    return mark


def starts(batches):
    """Counts (episode, offset), of sequences that are steps of one episode in a row."""
    mark = marks(batches)
    assert (np.diff(mark) == 1).all()
    episode, offset = divmod(mark[..., 0], 20)
    assert (mark[..., -1] // 20 == episode).all()
    return Counter(zip(episode.ravel().tolist(), offset.ravel().tolist(), strict=True))


@pytest.mark.parametrize("place", PLACES)
def test_batches_have_the_form_that_the_learner_takes(place):
    replay = make(place)
    replay.add(rows_of(0, 0, FRAMES))
    batches = replay.sample(jax.random.key(0), COUNT)
    assert {name: (array.shape, str(array.dtype)) for name, array in batches.items()} == {
        "action": ((COUNT, BATCH, LENGTH, 2), "float32"),
        "image": ((COUNT, BATCH, LENGTH, 4, 4, 3), "uint8"),
        "proprio": ((COUNT, BATCH, LENGTH, 3), "float32"),
        "reward": ((COUNT, BATCH, LENGTH, 2), "float32"),
    }
    assert all(isinstance(array, jax.Array) for array in batches.values())
    forms = {name: (form.shape, form.dtype) for name, form in replay.batches(COUNT).items()}
    assert forms == {name: (array.shape, array.dtype) for name, array in batches.items()}


@pytest.mark.parametrize("place", PLACES)
def test_batches_are_tied_to_no_device(place):
    """Or what learns from them would be compiled for a state that is not, and again for its own result, which is."""
    replay = make(place)
    replay.add(rows_of(0, 0, FRAMES))
    assert not any(array.committed for array in replay.sample(jax.random.key(0), COUNT).values())


@pytest.mark.parametrize(
    ("spaces", "names"),
    [
        (Spaces(2, image=None, proprio=3, tasks=0), {"action", "proprio"}),
        (Spaces(2, image=4, tasks=2), {"action", "image", "reward"}),
    ],
)
@pytest.mark.parametrize("place", PLACES)
def test_only_what_the_agent_learns_from_is_kept(place, spaces, names):
    replay = make(place, spaces=spaces)
    replay.add(rows_of(0, 0, FRAMES))
    assert set(replay.sample(jax.random.key(0), COUNT)) == names


@pytest.mark.parametrize("place", PLACES)
def test_every_place_of_every_long_enough_episode_is_equally_likely(place):
    """Episodes are drawn alike, however long; offsets within each alike, the last one included."""
    replay, lengths = make(place), {0: 9, 1: 4, 2: 3, 3: 6}
    for episode, length in lengths.items():
        replay.add(rows_of(episode, 0, length))
    assert replay.episodes == 3
    counts = sum((starts(replay.sample(key, COUNT)) for key in jax.random.split(jax.random.key(1), 30)), Counter())
    places = {episode: length - LENGTH + 1 for episode, length in lengths.items() if length >= LENGTH}
    expected = {(episode, offset): 2000 / count for episode, count in places.items() for offset in range(count)}
    assert counts.keys() == expected.keys()
    squares = sum((counts[start] - number) ** 2 / number for start, number in expected.items())
    assert squares < 30  # chi-squared with 9 degrees of freedom: 30 or more once in 2,000 keys


def test_both_places_give_the_same_bits():
    device, host, roomy = make("device"), make("host"), make("host", capacity=50, frames=30)
    generator = np.random.default_rng(0)
    for length in (9, 3, 7):
        rows = {
            "image": generator.integers(0, 255, (length, 4, 4, 3), np.uint8),
            "proprio": generator.normal(size=(length, 3)),
            "action": generator.normal(size=(length, 2)),
            "reward": generator.normal(size=(length, 2)),
        }
        for replay in (device, host, roomy):
            replay.add(rows)
        for key in jax.random.split(jax.random.key(length), 3):
            one, *others = (replay.sample(key, COUNT) for replay in (device, host, roomy))
            for other in others:
                assert one.keys() == other.keys()
                for name in one:
                    assert np.asarray(one[name]).tobytes() == np.asarray(other[name]).tobytes(), name
    assert not np.array_equal(one["action"], device.sample(jax.random.key(99), COUNT)["action"])


@pytest.mark.parametrize("place", PLACES)
def test_a_running_episode_is_drawn_as_far_as_it_has_come(place):
    replay = make(place)
    slot = replay.open()
    replay.extend(slot, rows_of(0, 0, 3))
    with pytest.raises(ValueError, match=r"No episode in memory has the 4 steps .* the longest has 3"):
        replay.sample(jax.random.key(0), COUNT)
    replay.extend(slot, rows_of(0, 3, 5))
    assert starts(replay.sample(jax.random.key(0), COUNT)).keys() == {(0, 0), (0, 1)}
    replay.extend(slot, rows_of(0, 5, 5))
    replay.extend(slot, rows_of(0, 5, 9))
    assert starts(replay.sample(jax.random.key(0), COUNT)).keys() == {(0, offset) for offset in range(6)}
    with pytest.raises(ValueError, match="of 9 steps cannot grow by 1"):
        replay.extend(slot, rows_of(0, 9, 10))


@pytest.mark.parametrize("place", PLACES)
def test_the_newest_steps_come_newest_first_and_always_as_many(place):
    replay = make(place)
    for episode, length in enumerate((9, 6, 3)):
        replay.add(rows_of(episode, 0, length))
    np.testing.assert_array_equal(marks(replay.newest(2, 3)), [[40, 41, 42], [23, 24, 25]])
    np.testing.assert_array_equal(marks(replay.newest(3, 4)), [[22, 23, 24, 25], [5, 6, 7, 8], [22, 23, 24, 25]])
    np.testing.assert_array_equal(marks(replay.newest(2, 50)), [np.arange(9)] * 2)
    replay.drop(2)
    replay.drop(0)
    replay.add(rows_of(4, 0, 4))  # in a slot that was used before
    np.testing.assert_array_equal(marks(replay.newest(2, 3)), [[81, 82, 83], [23, 24, 25]])


@pytest.mark.parametrize("place", PLACES)
def test_dropped_episodes_are_forgotten_and_their_slots_used_again(place):
    replay = make(place, capacity=3)
    slots = [replay.add(rows_of(episode, 0, FRAMES)) for episode in range(3)]
    with pytest.raises(ValueError, match="room for 3 episodes"):
        replay.open()
    replay.drop(slots[1])
    assert replay.episodes == 2
    assert {episode for episode, _ in starts(replay.sample(jax.random.key(0), COUNT))} == {0, 2}
    assert replay.open() == slots[1]
    assert {episode for episode, _ in starts(replay.sample(jax.random.key(0), COUNT))} == {0, 2}
    replay.extend(slots[1], rows_of(4, 0, 4))
    assert starts(replay.sample(jax.random.key(0), COUNT)).keys() >= {(4, 0), (0, 5), (2, 5)}
    assert {episode for episode, _ in starts(replay.sample(jax.random.key(0), COUNT))} == {0, 2, 4}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_drawn_does_not_depend_on_slots(place):
    """An episode that was lost leaves no trace: the same run without it draws the same."""
    lossy, clean = make(place), make(place)
    lost, kept = lossy.add(rows_of(9, 0, 5)), lossy.add(rows_of(0, 0, 9))
    lossy.drop(lost)
    assert lossy.add(rows_of(1, 0, 8)) < kept
    for episode, length in ((0, 9), (1, 8)):
        clean.add(rows_of(episode, 0, length))
    key = jax.random.key(2)
    np.testing.assert_array_equal(marks(lossy.sample(key, COUNT)), marks(clean.sample(key, COUNT)))


@pytest.mark.parametrize("place", PLACES)
def test_rows_may_be_written_over_afterwards(place):
    """As environments do with the memory that they share."""
    replay, shared = make(place), rows_of(0, 0, FRAMES)
    replay.add(shared)
    for array in shared.values():
        array[...] = 77
    starts(replay.sample(jax.random.key(0), COUNT))


@pytest.mark.parametrize("place", PLACES)
def test_wrong_rows_are_refused(place):
    replay = make(place)
    slot, rows = replay.open(), rows_of(0, 0, 5)
    with pytest.raises(ValueError, match="Memory needs reward"):
        replay.extend(slot, {name: rows[name] for name in ("image", "proprio", "action")})
    with pytest.raises(ValueError, match=r"image is float64 .* uint8"):
        replay.extend(slot, rows | {"image": rows["image"] / 255})
    with pytest.raises(ValueError, match=r"proprio is float\d+ \(4, 3\)"):
        replay.extend(slot, rows | {"proprio": rows["proprio"][:4]})
    assert replay.episodes == 0
    replay.extend(slot, rows_of(0, 0, FRAMES))  # nothing was written of what was refused
    assert starts(replay.sample(jax.random.key(0), COUNT)).keys() == {(0, offset) for offset in range(6)}
    with pytest.raises(ValueError, match="do not fit into episodes of 9"):
        make(place, length=10)


def test_nothing_is_compiled_again_while_memory_grows():
    replay = make("device")
    functions = (module.write_steps, module.draw_sequences, module.gather_sequences)

    def grow(episode):
        slot = replay.open()
        for start in range(0, 9, 3):
            replay.extend(slot, rows_of(episode, start, start + 3))
        return replay.sample(jax.random.key(episode), COUNT)

    grow(0)
    before = [function._cache_size() for function in functions]
    for episode in range(1, 6):
        grow(episode)
    assert [function._cache_size() for function in functions] == before


def test_steps_are_written_in_place():
    """No second copy of memory, not even for a moment."""
    replay = make("device", capacity=1000)
    old = dict(replay._store._stored)
    sizes = module.write_steps.lower(old, 0, 0, replay._check(rows_of(0, 0, 5))[1]).compile().memory_analysis()
    assert sizes.alias_size_in_bytes == bytes_of(old) == 1000 * FRAMES * (4 * 4 * 3 + 4 * (3 + 2 + 2))
    assert sizes.temp_size_in_bytes < 10_000
    replay.add(rows_of(0, 0, 5))
    assert all(array.is_deleted() for array in old.values())


def bytes_of(arrays):
    return sum(array.nbytes for array in jax.tree.leaves(arrays))


def test_host_memory_grows_with_use():
    replay = make("host", capacity=1000)
    assert bytes_of(replay._store._stored) == 0
    slots = [replay.add(rows_of(episode, 0, 5)) for episode in range(2)]
    assert bytes_of(replay._store._stored) == 2 * FRAMES * (4 * 4 * 3 + 4 * (3 + 2 + 2))
    replay.drop(slots[0])
    assert bytes_of(replay._store._stored) == FRAMES * (4 * 4 * 3 + 4 * (3 + 2 + 2))


@pytest.mark.parametrize("place", PLACES)
def test_one_thread_may_sample_while_another_extends(place):
    replay, stop, faults = make(place, capacity=20), threading.Event(), []
    replay.add(rows_of(0, 0, FRAMES))

    def sample():
        number = 0
        while not stop.is_set():
            number += 1
            try:
                starts(replay.sample(jax.random.key(number), COUNT))
            except Exception as fault:
                faults.append(fault)
                return

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        for round in range(30):
            slots = [replay.open() for _ in range(3)]
            for start in range(0, 9, 3):
                for slot, episode in zip(slots, (1, 2, 3 + round % 8), strict=True):
                    replay.extend(slot, rows_of(episode, start, start + 3))
            for slot in slots:
                replay.drop(slot)
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
    plan = plan_replay("auto", 1000, 501, PIXELS)
    assert plan.place == "device"
    assert plan.sentence == "Memory: 1,000 episodes need 6.2 GB; kept on the device (NVIDIA Test, 105 GB free)"
    assert plan_replay("host", 1000, 501, PIXELS).place == "host"


def test_otherwise_on_the_host(machine):
    machine(host=100, device=15, used=2)
    assert plan_replay("auto", 1000, 501, PIXELS, reserve=6 * 10**9).place == "device"
    plan = plan_replay("auto", 1000, 501, PIXELS)
    assert plan.place == "host"
    assert plan.sentence == (
        "Memory: 1,000 episodes need 6.2 GB, more than there is on the device (NVIDIA Test, 5.0 GB free); kept in "
        "host memory (90.0 GB free)"
    )
    with pytest.raises(TooLittleMemoryError, match=r"6\.2 GB, more than .* 5\.0 GB free.*fewer steps"):
        plan_replay("device", 1000, 501, PIXELS)


def test_a_run_that_fits_nowhere_says_so(machine):
    machine(host=5, device=10)
    with pytest.raises(TooLittleMemoryError, match=r"6\.2 GB, .*2\.0 GB free.*host memory has 4\.5 GB free\. .*smaller"):
        plan_replay("auto", 1000, 501, PIXELS)
    assert plan_replay("auto", 1000, 501, Spaces(6, image=None, proprio=17)).place == "device"


@pytest.mark.parametrize("place", ["auto", "host", "device"])
def test_without_an_accelerator_all_is_host_memory(machine, place):
    machine(host=8)
    plan = plan_replay(place, 1000, 501, PIXELS)
    assert plan.place == ("device" if place == "device" else "host") and "7.2 GB free" in plan.sentence
    with pytest.raises(TooLittleMemoryError):
        plan_replay(place, 1200, 501, PIXELS)


def test_the_bytes_planned_are_the_bytes_taken():
    plan = plan_replay("device", 10_000, FRAMES, SPACES, reserve=0)
    assert module.gigabytes(bytes_of(make(plan.place, capacity=10_000)._store._stored)) in plan.sentence


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


def test_room_is_made_by_forgetting_the_oldest_episode_that_need_not_stay():
    replay = Replay("host", 3, 8, Spaces(action=1, image=None, proprio=1, tasks=0), batch=2, length=2)
    slots = [replay.add({"action": np.zeros((2, 1)), "proprio": np.full((2, 1), i)}) for i in range(2)]
    assert not replay.make_room() and replay.episodes == 2
    slots.append(replay.add({"action": np.zeros((2, 1)), "proprio": np.full((2, 1), 2)}))
    assert replay.make_room(keep=slots[:1]) and replay.open() == slots[1]
    assert not replay.make_room(keep=[*slots])
    assert replay.make_room(keep=slots[1:])
    with pytest.raises(KeyError):
        replay.extend(slots[0], {"action": np.zeros((2, 1)), "proprio": np.zeros((2, 1))})
