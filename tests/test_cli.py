"""The command line as a person uses it: sentences instead of stack traces, files where it says."""

import json
import re
import subprocess
import sys

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from plan2explore import doctor
from plan2explore.cli import main


def run(capsys, *arguments):
    """(status, standard output, standard error) of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    streams = capsys.readouterr()
    return ended.value.code or 0, streams.out, streams.err


def test_look_leaves_a_video_and_a_contact_sheet(capsys, tmp_path):
    status, printed, _ = run(capsys, "look", "pendulum", "--size", "32", "--out", str(tmp_path / "a" / "b"))
    assert status == 0
    assert re.search(r"\d+ agent steps/s in one process", printed)
    for suffix in ("mp4", "png"):
        assert str(tmp_path / "a" / "b" / f"pendulum.{suffix}") in printed
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "a" / "b" / "pendulum.mp4"))
    assert frames == 501 and seconds == pytest.approx(501 / 25, abs=0.2)  # real time: two steps of 20 ms a frame
    assert np.asarray(Image.open(tmp_path / "a" / "b" / "pendulum.png")).std() > 10


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("look", "walkr"), "no world or task 'walkr'. Nearest names: walker"),
        (("look", "walker", "--size", "4"), "size is a whole number from 8 to 1024"),
        (("look", "walker", "--renderer", "pencil"), "one of auto, raycast, gl"),
        (("bench", "everything"), "no benchmark 'everything'"),
        (("bench", "render", "--backends", "directx"), "A backend is one of raycast, osmesa, egl"),
        (("tasks", "--which", "mine"), "list_tasks knows"),
    ],
)
def test_mistakes_end_in_a_sentence(capsys, arguments, sentence):
    status, _, error = run(capsys, *arguments)
    assert status == 2
    assert sentence in error and "Traceback" not in error


def test_a_folder_that_cannot_be_made_is_said(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    status, _, error = run(capsys, "look", "pendulum", "--size", "8", "--out", str(tmp_path / "file" / "x"))
    assert status == 2 and "file" in error and "Traceback" not in error


def test_ctrl_c_ends_with_130(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("plan2explore.cli._run", interrupted)
    assert run(capsys, "doctor")[0] == 130


def test_help_and_version_do_not_load_the_simulator():
    code = "import sys; from plan2explore.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('jax', 'mujoco', 'numba') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip().endswith("[]")
    version = subprocess.run([sys.executable, "-m", "plan2explore", "--version"], capture_output=True, text=True)
    assert re.fullmatch(r"plan2explore \d+\.\d+\.\d+\n", version.stdout)


def test_doctor_finds_this_machine_able(capsys, tmp_path):
    status, printed, _ = run(capsys, "doctor", "--json", str(tmp_path / "found.json"))
    assert status == 0, printed
    for word in ("Python", "JAX", "mujoco", "OpenGL", "ray-caster", "memory", "disk"):
        assert word in printed
    findings = json.loads((tmp_path / "found.json").read_text())
    assert all(finding["fix"] for finding in findings if finding["level"] != "fine")


def test_doctor_ends_with_1_only_for_what_stops_a_run(capsys, monkeypatch):
    note = doctor.Finding("note", "slow", "wait")
    monkeypatch.setattr(doctor, "CHECKS", (lambda: [note],))
    assert run(capsys, "doctor")[0] == 0
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda name: "4.0.0")
    monkeypatch.setattr(doctor, "CHECKS", (doctor._mujoco,))
    status, printed, _ = run(capsys, "doctor")
    assert status == 1 and "mujoco<4" in printed

    def broken():
        raise ImportError("no module of that name")

    monkeypatch.setattr(doctor, "CHECKS", (broken,))
    status, printed, _ = run(capsys, "doctor")
    assert status == 1 and "no module of that name" in printed


def test_bench_render_prints_and_writes_what_it_measured(capsys, tmp_path):
    file = tmp_path / "speed.json"
    status, printed, _ = run(
        capsys, "bench", "render", "--worlds", "pendulum", "--seconds", "0.2", "--backends", "raycast", "--json", str(file)
    )
    assert status == 0 and "agent steps/s" in printed
    measured = json.loads(file.read_text())
    assert measured["rows"][0]["one"] > 50 and measured["rows"][0]["all"] > 50
    assert measured["machine"]["cores"] >= 1 and measured["machine"]["time"]
