"""An update on several devices is the update on one, with noise of its own in each part of the batch."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sizes import NANO

from plan2explore.agent.learner import Learner
from plan2explore.config import Spaces

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_eight_devices_learn_what_one_does(tmp_path):
    """In a process of its own: the number of CPU devices is decided when JAX starts."""
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8"
    variables = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(TESTS)}
    ended = subprocess.run(
        [sys.executable, TESTS / "scale" / "eight_devices.py", tmp_path / "run"],
        env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = [line for line in ended.stdout.splitlines() if line.startswith(("same", "own noise", "bench", "a run"))]
    assert said == ["same paper", "same modern", "own noise", "bench [1, 2]", "a run 3"]


@pytest.mark.parametrize(
    ("devices", "batch", "said"), [(4096, 4096, "4096 devices needs as many; there are"), (2, 3, "evenly")]
)
def test_devices_that_are_not_there_or_do_not_divide_the_batch_are_refused(monkeypatch, devices, batch, said):
    if devices == 2:
        monkeypatch.setattr("jax.devices", lambda: [None, None])
    with pytest.raises(ValueError, match=said):
        Learner(replace(NANO, batch=batch), Spaces(action=2, image=None, proprio=5), devices)
