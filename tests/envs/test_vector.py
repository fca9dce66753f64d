"""Many environments at once: the same episodes for any number of workers, nothing left behind by any end."""

import contextlib
import dataclasses
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from patience import PATIENCE

from plan2explore.envs import make
from plan2explore.envs.vector import Batch, VectorEnv, Worker, WorkerError
from plan2explore.envs.worker import RESET, STEP, EnvGroup, Spec, episode_seed, map_arrays

TRICK = 1.0  # a first action of this value makes a FakeWorld do its trick


class FakeWorld(gymnasium.Env):
    """The interface of the suite's worlds without physics: noise that depends on seed and actions."""

    action_repeat, state_size, drawn_size = 2, 4, 1
    observation_space = gymnasium.spaces.Dict(
        image=gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8),
        proprio=gymnasium.spaces.Box(-9, 9, (3,), np.float32),
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, trick="none"):
        self.image_buffer = None
        self.trick = trick

    def reset(self, *, seed=None, options=None):
        self.noise = np.random.default_rng(seed)
        self.left = self.noise.integers(4, 8)
        self.steps = 0
        info = {"env_steps": 0, "state": self.noise.normal(size=(1, 4)), "drawn": self.noise.random(1)}
        return self.observe(0.0), info

    def step(self, action):
        if action[0] == TRICK:
            getattr(self, self.trick)()
        self.left -= 1
        self.steps += 2
        state = self.noise.normal(size=(2, 4))
        info = {"env_steps": self.steps, "state": state}
        return self.observe(action.sum()), float(state.sum()), self.left == 0, False, info

    def observe(self, shift):
        image = np.empty((8, 8, 3), np.uint8) if self.image_buffer is None else self.image_buffer
        image[:] = self.noise.integers(0, 256, image.shape)
        return {"image": image, "proprio": np.float32(self.noise.random(3) + shift)}

    def none(self):
        pass

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def leave(self):
        sys.exit("had enough")

    def fail(self):
        raise ValueError("the tyres are flat")

    def wait(self):
        while not Path("go").exists():
            time.sleep(0.01)

    def hang(self):
        time.sleep(10 * PATIENCE)


def actions_of(count, steps, size=2):
    return np.random.default_rng(7).uniform(-1, 0.9, (steps, count, size)).astype(np.float32)


def copy(batch):
    return {field.name: getattr(batch, field.name).copy() for field in dataclasses.fields(Batch)}


def alone(env, index, actions, seed):
    """What environment `index` must give: the same world stepped by hand, reset with the documented seeds."""
    rows, episode, ended = [], 0, True
    for action in [None, *actions[:, index]]:
        if ended:
            observation, info = env.reset(seed=episode_seed(seed, index, episode))
            episode, ended, reward, first, drawn = episode + 1, False, 0.0, True, info["drawn"]
            terminated = truncated = False
        else:
            observation, reward, terminated, truncated, info = env.step(action)
            ended, first = terminated or truncated, False
        state = np.full((env.unwrapped.action_repeat, env.unwrapped.state_size), np.nan)
        state[: len(info["state"])] = info["state"]
        seen = observation["image"].copy(), observation["proprio"]
        rows.append((*seen, reward, terminated, truncated, first, info["env_steps"], state, drawn, False, episode))
    return rows


def roll(vector, actions):
    return [copy(vector.reset()), *(copy(vector.step(action)) for action in actions)]


def assert_rows_equal(batches, index, rows):
    for batch, row in zip(batches, rows, strict=True):
        for field, expected in zip(dataclasses.fields(Batch), row, strict=True):
            np.testing.assert_array_equal(batch[field.name][index], expected, f"{field.name} of {index}")


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_episodes_of_a_plain_loop(workers):
    actions = actions_of(count=5, steps=14)
    with VectorEnv(FakeWorld, count=5, workers=workers, seed=3) as vector:
        batches = roll(vector, actions)
    for index in range(5):
        assert_rows_equal(batches, index, alone(FakeWorld(), index, actions, seed=3))
    assert sum(batch["first"].sum() for batch in batches) >= 10  # several episodes each


def test_worlds_of_the_suite_do_so_too_with_their_images():
    options = {"size": 16, "action_repeat": 100}  # an episode is 10 actions
    actions = actions_of(count=3, steps=12)
    with VectorEnv("reacher_easy", count=3, workers=2, seed=1, **options) as vector:
        batches = roll(vector, actions)
        for pid in vector.processes:
            assert "jaxlib" not in Path(f"/proc/{pid}/maps").read_text()
    env = make("reacher_easy", **options)
    for index in range(3):
        assert_rows_equal(batches, index, alone(env, index, actions, seed=1))
    assert batches[10]["truncated"].all() and batches[11]["first"].all()


def test_batches_have_the_documented_types_and_cannot_be_written():
    with VectorEnv(FakeWorld, count=2, workers=1) as vector:
        batch = vector.reset()
        assert batch.image.shape == (2, 8, 8, 3) and batch.image.dtype == np.uint8
        assert batch.state.shape == (2, 2, 4) and np.isnan(batch.state[:, 1]).all()
        assert batch.drawn.shape == (2, 1) and batch.reward.dtype == np.float64
        assert batch.env_steps.dtype == np.int64
        assert not batch.lost.any()
        with pytest.raises(ValueError):
            batch.image[0] = 0
        assert vector.step(np.zeros((2, 2))).image is batch.image  # the same memory: nothing is copied
        assert vector.observation_space == FakeWorld.observation_space
    assert batch.env_steps.tolist() == [2, 2]  # still readable


def test_images_are_drawn_straight_into_the_shared_memory():
    memory = os.memfd_create("memory")
    group = EnvGroup([FakeWorld] * 2, {}, range(1, 3), 3, seed=0)
    group.attach(memory, group.build()[0])
    parents = map_arrays(memory, Spec.of(FakeWorld()), 3)
    for command in (RESET, STEP):
        group.run(command)
        for index, env in group.envs.items():
            assert np.shares_memory(env.image_buffer, group.arrays["image"][index])
            np.testing.assert_array_equal(parents["image"][index], env.image_buffer)
    assert not parents["image"][0].any()  # another worker's
    os.close(memory)


def test_environments_may_be_made_in_different_ways_and_episodes_counted_from_any_number():
    def negative():
        def invert(observation):
            return {**observation, "image": 255 - observation["image"]}

        return gymnasium.wrappers.TransformObservation(FakeWorld(), invert, FakeWorld.observation_space)

    with VectorEnv([FakeWorld, negative], count=2, workers=2, seed=5, first_episode=2) as vector:
        image = vector.reset().image
    first, second = (FakeWorld().reset(seed=episode_seed(5, index, 2))[0]["image"] for index in (0, 1))
    np.testing.assert_array_equal(image[0], first)
    np.testing.assert_array_equal(image[1], 255 - second)  # a wrapper's own image
    with pytest.raises(ValueError, match="list of 2 environments to make was given for 3"):
        VectorEnv([FakeWorld, negative], count=3)


def test_seeds_differ_between_environments_episodes_and_runs():
    assert len({episode_seed(s, i, k) for s in range(3) for i in range(10) for k in range(10)}) == 300


def test_the_parent_is_free_and_does_not_spin_while_environments_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with VectorEnv(FakeWorld, count=1, trick="wait") as vector:
        vector.reset()
        vector.send([[TRICK, 0]])
        go = threading.Timer(0.5, Path("go").touch)  # nothing would come of this if `send` waited for the step
        go.start()
        cpu = time.thread_time()
        assert vector.receive().env_steps == [2] and Path("go").exists()
        assert time.thread_time() - cpu < 0.2


def test_workers_have_one_thread_no_jax_and_no_file_of_the_current_folder_for_pythons_own(tmp_path, monkeypatch):
    for name in ("json", "pickle", "struct", "wave", "cloudpickle"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py was run')")
    (tmp_path / "users_own.py").write_text("number = 7")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # as a notebook has it

    def report():
        class Report(FakeWorld):
            def observe(self, shift):
                import wave  # noqa: F401

                import users_own

                threads = sum(int(os.environ[f"{library}_NUM_THREADS"]) for library in ("OMP", "NUMBA"))
                found = np.float32(["jax" in sys.modules, threads, users_own.number])
                return {**super().observe(shift), "proprio": found}

        return Report()

    with VectorEnv(report, count=1) as vector:
        assert vector.reset().proprio.tolist() == [[0, 2, 7]]


LOOK_AND_STEP = """
import os, sys
from plan2explore.cli import main
for world in ("pendulum", "gymnasium:Hopper-v5"):
    try:
        main(["look", world, "--size", "16", "--action-repeat", "100"])
    except SystemExit as end:
        assert not end.code, end.code
assert not {"MUJOCO_GL", "PYTHONSAFEPATH"} & os.environ.keys()
from plan2explore import VectorEnv
with VectorEnv("gymnasium:Hopper-v5", 1, obs="proprio") as vector:
    vector.reset()
import mujoco
print(mujoco.rendering.classic.gl_context.GLContext)  # users may draw with it
"""


def test_no_process_takes_a_file_of_the_current_folder_for_pythons_own(tmp_path):
    """Not even those that the packages start behind the environments while they are imported: GLFW's is one."""
    for name in ("ctypes", "json", "pickle", "random", "struct", "subprocess", "types"):
        (tmp_path / f"{name}.py").write_text("import sys\nopen('was_run', 'a').write(f'{__name__} in {sys.argv}, ')")
    environment = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "PYTHONSAFEPATH")}
    command = [sys.executable, "-P", "-c", LOOK_AND_STEP]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert not (tmp_path / "was_run").exists(), (tmp_path / "was_run").read_text()
    assert done.returncode == 0, done.stderr
    assert "gymnasium_Hopper-v5.mp4" in done.stdout and done.stdout.splitlines()[-1] == "<class 'mujoco.glfw.GLContext'>"


def test_workers_leave_ctrl_c_and_polite_kills_to_the_parent_from_their_first_moment():
    memory = os.memfd_create("memory")
    worker = Worker(0, EnvGroup([FakeWorld] * 2, {}, range(2), 2, seed=0), memory)
    for answer, command in (([Spec.of(FakeWorld())] * 2, RESET), (None, STEP)):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(worker.process.pid, number)
        assert worker.receive() == answer
        worker.send(command)
    worker.receive()
    worker.end()
    os.close(memory)


@pytest.mark.parametrize("moment", ["between steps", "in a step"])
def test_a_killed_worker_is_replaced_and_the_rest_go_on(moment, caplog):
    actions = actions_of(count=4, steps=6)
    with VectorEnv(FakeWorld, count=4, workers=2, seed=3, trick="hang") as vector:
        batches = roll(vector, actions[:2])
        if moment == "in a step":
            actions[2, 2, 0] = TRICK
            vector.send(actions[2])
            time.sleep(0.1)
        os.kill(vector.processes[1], signal.SIGKILL)
        with caplog.at_level(logging.WARNING, "plan2explore.envs"):
            batches.append(copy(vector.receive() if moment == "in a step" else vector.step(actions[2])))
        batches += [copy(vector.step(action)) for action in actions[3:]]
    assert batches[3]["lost"].tolist() == [False, False, True, True]
    assert batches[3]["first"][2:].all() and (batches[3]["env_steps"][2:] == 0).all()
    assert not any(batch["lost"].any() for batch in batches[:3] + batches[4:])
    for index in (0, 1):
        assert_rows_equal(batches, index, alone(FakeWorld(), index, actions, seed=3))
    assert "environments 2 to 3) was ended by signal 9" in caplog.text and "dropped" in caplog.text
    assert len(caplog.records) == 1


def test_only_unfinished_episodes_are_lost():
    with VectorEnv(FakeWorld, count=1) as vector:
        vector.reset()
        while not vector.step([[0, 0]]).terminated[0]:
            pass
        os.kill(vector.processes[0], signal.SIGKILL)
        batch = vector.step([[0, 0]])
        assert batch.first[0] and not batch.lost[0]
        os.kill(vector.processes[0], signal.SIGKILL)
        batch = vector.reset()
        assert batch.first[0] and not batch.lost[0]


def test_a_lost_episode_is_not_repeated_and_a_worker_that_dies_at_every_step_given_up():
    with VectorEnv(FakeWorld, count=2, workers=1, trick="die") as vector:
        vector.reset()
        batch = vector.step([[0, 0], [TRICK, 0]])
        assert batch.lost.all()
        np.testing.assert_array_equal(batch.image[0], FakeWorld().reset(seed=episode_seed(0, 0, 1))[0]["image"])
        vector.step(np.zeros((2, 2)))  # a finished step: the count starts again
        for _ in range(2):
            assert vector.step([[0, 0], [TRICK, 0]]).lost.all()
        with pytest.raises(WorkerError, match=r"after 2 others in its place .* 2 environments may be too many"):
            vector.step([[0, 0], [TRICK, 0]])


def test_a_worker_that_dies_at_every_start_is_given_up():
    def make():
        os._exit(3)

    with pytest.raises(WorkerError, match=r"Worker 0 .* ended with exit code 3, after 2 others .* environment by itself"):
        VectorEnv(make, count=1)


def test_an_exception_in_an_environment_arrives_with_its_traceback_and_closes_everything():
    with VectorEnv(FakeWorld, count=4, workers=2, trick="fail") as vector:
        vector.reset()
        sentence = r"Environment 3 \(worker 1\) failed: ValueError: the tyres are flat"
        with pytest.raises(WorkerError, match=sentence) as error:
            vector.step([[0, 0], [0, 0], [0, 0], [TRICK, 0]])
        assert "in fail" in str(error.value)
        assert not alive(vector.processes)
        for use in (vector.reset, vector.receive):
            with pytest.raises(RuntimeError, match="closed"):
                use()


def test_an_environment_that_calls_sys_exit_has_failed():
    with VectorEnv(FakeWorld, count=1, trick="leave") as vector:
        vector.reset()
        with pytest.raises(WorkerError, match=r"Environment 0 .*failed: SystemExit: had enough"):
            vector.step([[TRICK, 0]])


def test_an_exception_in_make_and_different_worlds_are_errors_too():
    with pytest.raises(WorkerError, match=r"Environment 0 .*TypeError"):
        VectorEnv(FakeWorld, count=2, workers=1, colour="red")

    def some_larger():
        world = FakeWorld()
        world.state_size = os.getpid()
        return world

    with pytest.raises(ValueError, match="same spaces and sizes"):
        VectorEnv(some_larger, count=2, workers=2)


def test_wrong_use_is_answered_with_a_sentence_and_harms_nothing():
    with pytest.raises(ValueError, match="3 workers for 2 environments"):
        VectorEnv(FakeWorld, count=2, workers=3)
    with VectorEnv(FakeWorld, count=2, workers=1) as vector:
        with pytest.raises(RuntimeError, match=r"Call reset\(\) once"):
            vector.step(np.zeros((2, 2)))
        vector.reset()
        with pytest.raises(ValueError, match=r"shape \(2, 3\) were given; expected \(2, 2\)"):
            vector.step(np.zeros((2, 3)))
        with pytest.raises(RuntimeError, match="nothing to receive"):
            vector.receive()
        vector.send(np.zeros((2, 2)))
        with pytest.raises(RuntimeError, match="under way"):
            vector.send(np.ones((2, 2)))
        with pytest.raises(RuntimeError, match="under way"):
            vector.reset()
        assert vector.receive().env_steps.tolist() == [2, 2]


# ---- nothing is left behind ----


def alive(pids):
    """Those processes that run; one that ended and waits to be collected does not."""
    running = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            running += [pid] if state not in "ZX" else []
    return running


def run_script(tmp_path, body):
    """Starts a script with two workers in a process group of its own; the process and its workers' ids."""
    script = tmp_path / "script.py"
    # A test run in a shell's background inherits an ignored Ctrl-C; the script stands for one in the foreground.
    head = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    head += f"from {__name__} import FakeWorld, TRICK\nfrom plan2explore.envs.vector import VectorEnv\n"
    script.write_text(head + textwrap.dedent(body))
    parent = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2, parent.communicate()[1]
    return parent, workers


def assert_all_gone(parent, workers):
    deadline = time.monotonic() + PATIENCE
    try:
        parent.communicate(timeout=PATIENCE)  # returns when nobody holds its output any more
        while alive(workers) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not alive(workers)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


STEP_FOR_EVER = """
vector = VectorEnv(FakeWorld, count=4, workers=2)
vector.reset()
print(*vector.processes, flush=True)
while True:
    vector.step([[0, 0]] * 4)
"""
HANG = """
vector = VectorEnv(FakeWorld, count=4, workers=2, trick="hang")
vector.reset()
vector.send([[TRICK, 0]] * 4)
print(*vector.processes, flush=True)
vector.receive()
"""


def test_nothing_is_left_after_ctrl_c(tmp_path):
    parent, workers = run_script(tmp_path, HANG)
    os.killpg(parent.pid, signal.SIGINT)
    assert_all_gone(parent, workers)
    assert parent.returncode == -signal.SIGINT


FORK = "import os, time\nif os.fork() == 0:\n    os.close(1), os.close(2), time.sleep(3000), os._exit(0)\n"


@pytest.mark.parametrize("body", [STEP_FOR_EVER.replace("print", FORK + "print"), HANG], ids=["forked child", "hanging"])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path, body):
    """Even if a process that it forked lives on, and holds its sockets open."""
    parent, workers = run_script(tmp_path, body)
    for pid in (parent.pid, *workers):  # the memory has no name that could stay behind
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "memfd:plan2explore (deleted)" in maps and "/dev/shm" not in maps
    parent.kill()
    assert_all_gone(parent, workers)


def test_a_script_needs_no_guard_and_no_close_and_may_define_its_own_world(tmp_path):
    body = """
    class Mine(FakeWorld):
        drawn_size = 5
        def reset(self, **options):
            observation, info = super().reset(**options)
            return observation, {**info, "drawn": [5.0] * 5}

    vector = VectorEnv(lambda: Mine(), count=4, workers=2)
    print(*vector.processes, flush=True)
    assert vector.reset().drawn.shape == (4, 5)
    raise SystemExit(7)
    """
    parent, workers = run_script(tmp_path, body)
    assert_all_gone(parent, workers)
    assert parent.returncode == 7
