"""An update on several devices is the update on one, with noise of its own in each part of the batch."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sizes import NANO

from plan2explore.agent.learner import Learner
from plan2explore.config import Spaces

TESTS = Path(__file__).parents[1]


def on_cpu_devices(count: int, *arguments: object) -> subprocess.Popen:
    """In a process of its own: the number of CPU devices is decided when JAX starts."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    variables = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
    command = [sys.executable, TESTS / "scale" / "eight_devices.py", *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(process: subprocess.Popen) -> list[str]:
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return [line for line in out.splitlines() if line.startswith(("same", "own noise", "bench", "a run"))]


@pytest.mark.slow
def test_eight_devices_learn_what_one_does(tmp_path):
    said = lines_of(on_cpu_devices(8, tmp_path / "run"))
    assert said == ["same", "own noise", "bench True", "a run 3"]


@pytest.mark.slow
def test_two_hosts_learn_what_one_device_does():
    """Processes that find each other with `jax.distributed`; each has four devices and half of the sequences."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*free.getsockname())
    hosts = [on_cpu_devices(4, host, address) for host in (0, 1)]
    try:
        assert [lines_of(host) for host in hosts] == [["same"], ["same"]]
    finally:
        for host in hosts:
            host.kill()


@pytest.mark.parametrize(
    ("devices", "batch", "said"), [(4096, 4096, "4096 devices needs as many; there are"), (2, 3, "evenly")]
)
def test_devices_that_are_not_there_or_do_not_divide_the_batch_are_refused(monkeypatch, devices, batch, said):
    if devices == 2:
        monkeypatch.setattr("jax.devices", lambda: [None, None])
    with pytest.raises(ValueError, match=said):
        Learner(replace(NANO, batch=batch), Spaces(action=2, image=None, proprio=5), devices)
