"""Compiled functions: numbers, and what is kept of them on disk."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import mujoco
import numba
import numpy as np
import pytest

from mjraycast import kernel, passes, renderer

DRAW = """
import hashlib
from dm_control import suite
from mjraycast import Renderer, passes
env = suite.load("cheetah", "run", task_kwargs={"random": 3})
env.reset()
picture = Renderer(env.physics.model.ptr, 64, 64).render(env.physics.data.ptr, 0)
print(hashlib.sha256(picture.tobytes()).hexdigest(), sum(passes.draw.stats.cache_hits.values()))
"""


@numba.njit
def power(base, exponent):
    return kernel.power(base, exponent)


@numba.njit
def normalized(a):
    return kernel.normalized(a)


@numba.njit
def cross(a, b):
    return kernel.cross(a, b)


def test_vectors():
    a, b = np.random.default_rng(0).normal(size=(2, 3))
    np.testing.assert_allclose(cross(tuple(a), tuple(b)), np.cross(a, b))
    np.testing.assert_allclose(normalized(tuple(a)), a / np.linalg.norm(a))
    assert normalized((0.0, 0.0, 0.0)) == (0, 0, 0)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 10.0, 64.0, 0.5, 12.8])
def test_powers(exponent):
    for base in (0.1, 0.7, 1.0):
        assert power(base, exponent) == pytest.approx(base**exponent, rel=1e-9)


def start(*command, **environment):
    package = Path(kernel.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(package), **environment}
    return subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True)


SMALL = """
import sys, time
from pathlib import Path
from mjraycast import kernel

@kernel.entry
def half(x):
    return x / 2

here = Path(__file__).parent
(here / f"{sys.argv[1]}.started").touch()
while len(list(here.glob("*.started"))) < 2:
    time.sleep(0.01)
with kernel.one_at_a_time(half):
    print(half(3.0), sum(half.stats.cache_hits.values()))
"""


def test_of_processes_that_start_at_once_one_compiles_and_the_others_wait_for_it(tmp_path):
    (tmp_path / "small.py").write_text(SMALL)
    processes = [start(tmp_path / "small.py", name, NUMBA_CACHE_DIR=str(tmp_path)) for name in "ab"]
    found = sorted(process.communicate()[0] for process in processes)
    assert found == ["1.5 0\n", "1.5 1\n"]
    assert start(tmp_path / "small.py", "c", NUMBA_CACHE_DIR=str(tmp_path)).communicate()[0] == "1.5 1\n"


def test_frames_are_drawn_with_what_another_process_has_compiled():
    first, later = (start("-c", DRAW).communicate()[0].split() for _ in range(2))
    assert later == [first[0], "1"]


def test_the_first_frame_of_a_process_is_drawn_one_at_a_time(monkeypatch):
    locked = []
    monkeypatch.setattr(renderer.Renderer, "_is_ready", False)
    monkeypatch.setattr(renderer, "one_at_a_time", lambda function: contextlib.nullcontext(locked.append(function)))
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    for _ in range(2):
        renderer.Renderer(model, 8, 8).render(mujoco.MjData(model))
    assert locked == [passes.draw]


def test_a_function_that_is_not_kept_or_cannot_be_locked_is_called_anyway(tmp_path):
    entered = []
    (tmp_path / "file").touch()
    for folder in (None, tmp_path / "file" / "below", tmp_path / "new"):
        function = SimpleNamespace(__name__="draw", stats=SimpleNamespace(cache_path=folder))
        with kernel.one_at_a_time(function):
            entered.append(folder)
    assert len(entered) == 3
    assert str(kernel.sources_digest()) in (tmp_path / "new" / "draw.lock").read_text()
    with kernel.one_at_a_time(function), kernel.one_at_a_time(function):
        pass  # who finds that it is there, holds nothing up


def test_the_file_on_disk_is_tied_to_every_source(monkeypatch, tmp_path):
    before = kernel.sources_digest()
    for path in Path(kernel.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(kernel, "__file__", str(tmp_path / "kernel.py"))
    assert kernel.sources_digest() == before
    (tmp_path / "shapes.py").write_text((tmp_path / "shapes.py").read_text() + "\n")
    assert kernel.sources_digest() != before
    assert passes.draw.py_func.__closure__[0].cell_contents == before


def test_without_a_folder_to_write_to_functions_are_compiled_anyway(monkeypatch):
    calls = []

    def refusing(**options):
        calls.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(kernel.numba, "njit", refusing)
    assert kernel.entry(abs) is abs
    assert [options.get("cache", False) for options in calls] == [True, False]


def test_nobody_counts_references_to_arrays():
    @numba.njit(**kernel.OPTIONS)
    def total(table):
        found = 0.0
        for row in range(len(table)):
            if table[row, 0] > 0.0:
                found += kernel.vector(table, row, 0)[1]
        return found

    assert total(np.arange(6.0).reshape(2, 3)) == 4
    (code,) = total.inspect_llvm().values()
    assert "NRT_incref" not in code and "NRT_decref" not in code
