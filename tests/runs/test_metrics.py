"""Metrics: strict JSON lines that survive anything, and event files that TensorBoard reads."""

import errno
import io
import json
import logging
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from events import read_events
from patience import PATIENCE
from PIL import Image
from tensorboardX.proto.event_pb2 import SessionLog

from plan2explore.runs import metrics as metrics_module
from plan2explore.runs.files import read_lines
from plan2explore.runs.folder import RunError, RunFolder
from plan2explore.runs.metrics import Metrics


@pytest.fixture
def run(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", "explore", {"world": "walker"})


def test_a_line_for_each_moment(run):
    values = {"loss": jnp.asarray(0.5), "rank": np.float32(3), "count": np.array([7]), "half": jnp.bfloat16(1.5)}
    values["yes"] = True
    with Metrics(run) as metrics:
        metrics.write(0, {"loss": 1.0})
        metrics.write(500, values)
    first, second = read_lines(run.metrics_file)
    assert first["env_steps"] == 0 and first["loss"] == 1.0 and first["time"] > 1.7e9
    assert list(second)[:2] == ["env_steps", "time"] and second["time"] >= first["time"]
    del second["time"]
    assert second == {"env_steps": 500, "loss": 0.5, "rank": 3.0, "count": 7, "half": 1.5, "yes": 1}
    summaries = {
        (event.step, value.tag): value.simple_value
        for event in read_events(run.tensorboard)
        for value in event.summary.value
    }
    assert summaries == {(0, "train/loss"): 1.0, (500, "train/loss"): 0.5, (500, "train/rank"): 3.0} | {
        (500, "train/count"): 7.0, (500, "train/half"): 1.5, (500, "train/yes"): 1.0,
    }  # fmt: skip


def test_numbers_that_are_not_finite_stay_valid_json(run):
    with Metrics(run) as metrics:
        metrics.write(1, {"a": math.nan, "b": math.inf, "c": np.float32("-inf"), "d": 2.5})

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    line = json.loads(run.metrics_file.read_text(), parse_constant=refuse)
    assert (line["a"], line["b"], line["c"], line["d"]) == (None, None, None, 2.5)
    values = {value.tag: value.simple_value for value in read_events(run.tensorboard)[-1].summary.value}
    assert math.isnan(values["train/a"]) and values["train/b"] == math.inf


def test_tensorboard_has_the_groups_of_the_field(run, monkeypatch):
    clock = iter([10.0, 14.0])
    values = {"coverage": 0.5, "model/loss": 2.0, "explorer/reward": 1.0, "update": 100}
    with Metrics(run) as metrics:
        monkeypatch.setattr(metrics_module.time, "monotonic", lambda: next(clock))
        metrics.write(1000, values)
        metrics.write(1000, {"score/walker_walk": 7.0})
        metrics.write(1800, {"update": 300})
    lines = read_lines(run.metrics_file)
    assert lines[0].keys() == {"env_steps", "time", *values} and lines[2].keys() == {"env_steps", "time", "update"}
    assert [
        {value.tag: value.simple_value for value in event.summary.value}
        for event in read_events(run.tensorboard)
        if event.summary.value
    ] == [
        {"explore/coverage": 0.5, "train/model/loss": 2.0, "train/explorer/reward": 1.0, "time/updates": 100.0},
        {"eval/walker_walk/score": 7.0},
        {"time/updates": 300.0, "time/env_steps_per_second": 200.0, "time/updates_per_second": 50.0},
    ]


@pytest.mark.parametrize("value", [np.zeros(2), "high", None, np.zeros((0,)), 1j])
def test_what_is_not_one_number_is_refused(value, run):
    with Metrics(run) as metrics, pytest.raises(ValueError, match="'loss' should be one number"):
        metrics.write(1, {"loss": value})
    assert read_lines(run.metrics_file) == []


def test_a_killed_run_resumes_from_its_checkpoint(run):
    assert read_lines(run.metrics_file) == []
    with Metrics(run, resume_at=0) as metrics:
        assert read_lines(run.metrics_file) == []
        for steps in (0, 500, 1000, 1500):
            metrics.write(steps, {"score": steps})
    with open(run.metrics_file, "a") as file:
        file.write('{"env_steps": 2000, "sco')
    with Metrics(run, resume_at=1000) as metrics:
        assert [line["env_steps"] for line in read_lines(run.metrics_file)] == [0, 500, 1000]
        metrics.write(1500, {"score": -1})
    assert [line["score"] for line in read_lines(run.metrics_file)] == [0, 500, 1000, -1]
    assert run.metrics_file.read_text().count("\n") == 4
    events = read_events(run.tensorboard)
    start = [i for i, event in enumerate(events) if event.session_log.status == SessionLog.START][-1]
    assert events[start].step == 1001, "TensorBoard hides older events from here on"
    assert [value.simple_value for event in events[start:] for value in event.summary.value] == [-1]
    assert len(list(run.tensorboard.iterdir())) == 2, "starts within one second have their own files"


def test_updates_after_the_checkpoint_are_dropped_at_the_same_env_step_too(run):
    with Metrics(run) as metrics:
        for update in (100, 200, 300):
            metrics.write(5000, {"update": update})
        metrics.write(5000, {"score": 1.0})
    with Metrics(run, resume_at=5000, updates=200):
        assert [line.get("update") for line in read_lines(run.metrics_file)] == [100, 200, None]


def test_damaged_lines_are_named_and_kept(run, caplog):
    lines = [b'{"env_steps": 0}', b'{"env_steps": 1, "x": \xff\x00', b"[3]", b'{"y": 1}', b'{"env_steps": 4}', b'{"env_st']
    run.metrics_file.write_bytes(b"\n".join(lines))
    with caplog.at_level(logging.WARNING):
        assert read_lines(run.metrics_file) == [{"env_steps": 0}, {"y": 1}, {"env_steps": 4}]
    assert "Line 2 of" in caplog.text and "Line 3 of" in caplog.text
    assert "Line 6" not in caplog.text, "it may be in the middle of being written"
    with Metrics(run) as metrics:
        metrics.write(5, {})
    assert run.metrics_file.read_bytes().split(b"\n")[:5] == lines[:5]
    assert read_lines(run.metrics_file)[-1]["env_steps"] == 5


WRITES_UNTIL_KILLED = """
import os, signal, sys
from plan2explore.runs.folder import RunFolder
from plan2explore.runs.metrics import Metrics
metrics = Metrics(RunFolder.open(sys.argv[1]))
for i in range(100):
    metrics.write(i, {"score": i})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_loses_nothing_written(run):
    subprocess.run([sys.executable, "-c", WRITES_UNTIL_KILLED, run.path], timeout=PATIENCE)
    assert [line["score"] for line in read_lines(run.metrics_file)] == list(range(100))
    written = [value.simple_value for event in read_events(run.tensorboard) for value in event.summary.value]
    assert written == list(range(100))


def test_a_full_disk_is_the_callers_error_and_breaks_no_file(run, monkeypatch):
    """tensorboardX's own writer would lose its thread, and then block for ever."""
    metrics = Metrics(run)
    metrics.write(1, {"a": 1})

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(20):
        with pytest.raises(OSError, match="No space left"):
            metrics.write(2, {"a": 2})
    monkeypatch.undo()
    metrics.write(3, {"a": 3})
    assert [line["a"] for line in read_lines(run.metrics_file)] == [1, 3]
    assert [value.simple_value for event in read_events(run.tensorboard) for value in event.summary.value] == [1, 3]


def test_videos_come_with_later_lines_and_their_errors_too(run, monkeypatch):
    def videos():
        return [value.tag for event in read_events(run.tensorboard) for value in event.summary.value if value.image.height]

    frames = np.zeros((2, 8, 8, 3), np.uint8)
    with Metrics(run) as metrics:
        metrics.video(1, "first", frames, 10)
        metrics._videos[0][-1].result()  # it is encoded
        assert videos() == []
        metrics.write(2, {"a": 2})
        assert videos() == ["train/first"]
        monkeypatch.setattr(metrics_module, "encode_gif", lambda *_: 1 / 0)
        metrics.video(3, "broken", frames, 10)
        with pytest.raises(ZeroDivisionError):
            metrics.flush()
        metrics.write(4, {"a": 4})
    assert videos() == ["train/first"]


def test_a_video_moves(run):
    frames = np.zeros((4, 8, 12, 3), np.uint8)
    for i in range(4):
        frames[i, :, 3 * i : 3 * i + 3] = (250, 20, 20)
    with Metrics(run) as metrics:
        metrics.video(700, "evaluation/walk", frames, fps=20)
        with pytest.raises(ValueError, match="uint8"):
            metrics.video(700, "evaluation/walk", frames / 255, fps=20)
    event = read_events(run.tensorboard)[-1]
    (value,) = event.summary.value
    assert (event.step, value.tag, value.image.height, value.image.width) == (700, "eval/walk/video", 8, 12)
    moving = Image.open(io.BytesIO(value.image.encoded_image_string))
    assert moving.format == "GIF" and moving.n_frames == 4 and moving.info["duration"] == 50
    for i in range(4):
        moving.seek(i)
        difference = np.asarray(moving.convert("RGB")).astype(int) - frames[i]
        assert np.abs(difference).max() < 16


def test_a_histogram_counts(run):
    values = np.append(np.random.default_rng(0).normal(size=1000), math.nan)
    with Metrics(run) as metrics:
        metrics.histogram(3, "actions", values)
        metrics.histogram(3, "nothing", [math.nan])
    (value,) = read_events(run.tensorboard)[-1].summary.value
    histogram = value.histo
    assert value.tag == "train/actions" and histogram.num == 1000 and sum(histogram.bucket) == 1000
    assert len(histogram.bucket) == len(histogram.bucket_limit) == 30
    assert histogram.max == pytest.approx(np.nanmax(values)) and histogram.sum == pytest.approx(np.nansum(values))


def test_weights_and_biases_only_if_it_is_there(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RunError, match=r"pip install 'plan2explore\[wandb\]'"):
        Metrics(run, wandb=True)
    assert not run.tensorboard.exists()


def test_weights_and_biases_gets_the_same(run, monkeypatch):
    """A stand-in for the package: what it is told, not what it does with it."""
    calls = []
    fake = SimpleNamespace(
        init=lambda **options: calls.append(("init", options)),
        define_metric=lambda *args, **options: calls.append(("define", args, options)),
        log=lambda values: calls.append(("log", values)),
        finish=lambda: calls.append(("finish",)),
        Histogram=len,
        Video=lambda file, format: (format, file.read()[:3]),
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with Metrics(run, wandb=True) as metrics:
        metrics.write(5, {"loss": 2.0})
        metrics.histogram(6, "actions", np.zeros(4))
        metrics.video(7, "walk", np.zeros((2, 4, 4, 3), np.uint8), 10)
    assert calls[0][1]["id"] == run.id and calls[0][1]["resume"] == "allow" and calls[0][1]["config"] == {"world": "walker"}
    assert [call[1] for call in calls if call[0] == "log"] == [
        {"env_steps": 5, "train/loss": 2.0},
        {"env_steps": 6, "train/actions": 4},
        {"env_steps": 7, "train/walk": ("gif", b"GIF")},
    ]
    assert calls[-1] == ("finish",)


OFFLINE = """
import sys
from pathlib import Path
import numpy as np
from plan2explore.runs.folder import RunFolder
from plan2explore.runs.metrics import Metrics
for start in (0, 500):
    with Metrics(RunFolder.open(Path(sys.argv[1])), start, wandb=True) as metrics:
        metrics.write(start + 5, {"loss": 2.0})
        metrics.histogram(start + 6, "intrinsic/reward", np.arange(4.0))
        metrics.video(start + 7, "evaluation/walk", np.zeros((2, 16, 16, 3), np.uint8), 10)
"""


def test_the_real_weights_and_biases_keeps_it_without_a_network(run):
    environment = os.environ | {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    subprocess.run([sys.executable, "-c", OFFLINE, str(run.path)], env=environment, check=True, timeout=PATIENCE)
    starts = sorted((run.path / "wandb").glob("offline-run-*"))
    assert len(starts) == 2
    for start in starts:
        (kept,) = start.glob(f"run-{run.id}.wandb")
        for word in (b"env_steps", b"train/loss", b"explore/intrinsic_reward", b"eval/walk/video"):
            assert word in kept.read_bytes()
        (video,) = start.rglob("*.gif")
        assert video.read_bytes()[:3] == b"GIF"
