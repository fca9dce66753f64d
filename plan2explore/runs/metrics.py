"""Metrics of a run: a JSON line for each moment, and the same for TensorBoard and, if wanted, Weights & Biases."""

import io
import math
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from plan2explore.atomic import append, sync

from .files import append_line, drop_later
from .folder import RunError, RunFolder

TAGS = {
    "coverage": "explore/coverage",
    "episodes": "explore/episodes",
    "intrinsic/mean": "explore/intrinsic_mean",
    "intrinsic/reward": "explore/intrinsic_reward",
    "update": "time/updates",
}
"""Names for TensorBoard and Weights & Biases, which show a group for each first part; see `tag_of` for the others."""


def tag_of(name: str) -> str:
    """A metric's name in TensorBoard and Weights & Biases: below explore/, eval/, time/ or train/."""
    head, _, task = name.partition("/")
    if head in ("score", "evaluation"):
        return f"eval/{task}/{'score' if head == 'score' else 'video'}"
    return TAGS.get(name, f"train/{name}")


class Metrics(AbstractContextManager["Metrics"]):
    """Writes metrics by environment steps. What was written survives this process, however that ends.

    `resume_at`: environment steps of the checkpoint that the run resumes from. What a killed process wrote
    after it is dropped, because it will be written again.
    """

    def __init__(
        self, folder: RunFolder, resume_at: int | None = None, wandb: bool = False, updates: float = math.inf
    ) -> None:
        self.file = folder.metrics_file
        self._wandb = _start_wandb(folder) if wandb else None  # first: it may be missing
        drop_later(self.file, {"env_steps": math.inf if resume_at is None else resume_at, "update": updates})
        self._events = _EventFile(folder.tensorboard, resume_at)
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="videos")
        self._videos: deque[tuple[int, str, dict[str, Any], Future[bytes]]] = deque()
        self._last: tuple[float, int, float] | None = None

    def write(self, env_steps: int, values: Mapping[str, Any]) -> None:
        """Adds one line of numbers. JSON has no word for one that is not finite: it becomes null there."""
        numbers = {name: _number(name, value) for name, value in values.items()}
        line: dict[str, Any] = {"env_steps": int(env_steps), "time": round(time.time(), 3)}
        append_line(self.file, line | {name: number if math.isfinite(number) else None for name, number in numbers.items()})
        tagged = {tag_of(name): number for name, number in numbers.items()} | self._speed(env_steps, numbers)
        self._events.write(env_steps, [{"tag": name, "simple_value": number} for name, number in tagged.items()])
        self._log(env_steps, tagged)
        self._write_videos()

    def _speed(self, env_steps: int, numbers: Mapping[str, int | float]) -> dict[str, float]:
        """Env steps and updates a second since the last line of updates; metrics.jsonl has the times themselves."""
        if "update" not in numbers:
            return {}
        last, self._last = self._last, (time.monotonic(), env_steps, numbers["update"])
        if last is None or self._last[0] <= last[0]:
            return {}
        seconds, steps, updates = np.subtract(self._last, last).tolist()
        return {"time/env_steps_per_second": steps / seconds, "time/updates_per_second": updates / seconds}

    def histogram(self, env_steps: int, name: str, values: Any) -> None:
        """How numbers are distributed, those that are not finite left out."""
        flat = np.asarray(values, np.float64).ravel()
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return
        counts, edges = np.histogram(flat, bins=30)
        moments = {"num": flat.size, "sum": flat.sum(), "sum_squares": np.square(flat).sum()}
        bins = {"min": flat.min(), "max": flat.max(), "bucket_limit": edges[1:].tolist(), "bucket": counts.tolist()}
        self._events.write(env_steps, [{"tag": tag_of(name), "histo": moments | bins}])
        if self._wandb:
            self._log(env_steps, {tag_of(name): self._wandb.Histogram(flat)})

    def video(self, env_steps: int, name: str, frames: np.ndarray, fps: float) -> None:
        """A video of `frames` uint8 (time, height, width, 3): a thread encodes it, and a later call writes it."""
        if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or not len(frames):
            raise ValueError(f"A video is uint8 (time, height, width, 3), not {frames.dtype} {frames.shape}.")
        size = {"height": frames.shape[1], "width": frames.shape[2], "colorspace": 3}
        self._videos.append((env_steps, tag_of(name), size, self._encoder.submit(encode_gif, frames, fps)))

    def _write_videos(self, wait: bool = False) -> None:
        """Writes those that are encoded, in their order; or all, when they are."""
        while self._videos and (wait or self._videos[0][-1].done()):
            env_steps, tag, size, encoded = self._videos.popleft()
            gif = encoded.result()
            self._events.write(env_steps, [{"tag": tag, "image": size | {"encoded_image_string": gif}}])
            if self._wandb:
                self._log(env_steps, {tag: self._wandb.Video(io.BytesIO(gif), format="gif")})

    def flush(self) -> None:
        """Returns when everything is on disk."""
        self._write_videos(wait=True)
        for file in (self.file, self._events.file):
            if file.exists():
                sync(file)

    def close(self) -> None:
        """Makes sure that everything is on disk. A second time does no harm."""
        try:
            self.flush()
        finally:
            self._encoder.shutdown()
            if self._wandb:
                self._wandb.finish()
                self._wandb = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def _log(self, env_steps: int, values: Mapping[str, Any]) -> None:
        if self._wandb:
            self._wandb.log({"env_steps": int(env_steps), **values})


def encode_gif(frames: np.ndarray, fps: float) -> bytes:
    """A GIF that repeats for ever, of `frames` uint8 (time, height, width, 3)."""
    count, height, width, _ = frames.shape
    # One palette for all frames: one for each takes four to seven times as long. Rare colours are kept too.
    sheet = Image.fromarray(frames.reshape(count * height, width, 3)).quantize(method=Image.Quantize.MAXCOVERAGE)
    first, *others = [sheet.crop((0, top, width, top + height)) for top in range(0, count * height, height)]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=1000 / fps, loop=0)
    return file.getvalue()


def _number(name: str, value: Any) -> int | float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind in "OUSMmc":
        raise ValueError(f"Metric {name!r} should be one number, not {array.dtype} of shape {array.shape}.")
    return int(array.item()) if array.dtype.kind in "biu" else float(array.item())


def _start_wandb(folder: RunFolder) -> Any:
    try:
        import wandb
    except ImportError:
        text = "Weights & Biases is not installed: pip install 'plan2explore[wandb]', or go without --wandb."
        raise RunError(text) from None
    wandb.init(  # with the same id at each start, so that the curves continue
        project=os.environ.get("WANDB_PROJECT", "plan2explore"), id=folder.id, name=folder.path.name, dir=str(folder.path),
        config=folder.settings, resume="allow",
    )  # fmt: skip
    wandb.define_metric("*", step_metric="env_steps")
    return wandb


class _EventFile:
    """One more file for TensorBoard, written without a thread between: its errors are the caller's at once."""

    def __init__(self, folder: Path, resume_at: int | None) -> None:
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # late: half a second

        self._event = Event
        folder.mkdir(parents=True, exist_ok=True)
        # Its name sorts after those of earlier starts: TensorBoard reads them in that order.
        self.file = folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        self._append(file_version="brain.Event:2")
        if resume_at is not None:  # TensorBoard hides what older files have from this step on
            self._append(step=resume_at + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, env_steps: int, values: list[dict[str, Any]]) -> None:
        """Values of one moment, as TensorBoard's messages have them."""
        self._append(step=int(env_steps), summary={"value": values})

    def _append(self, **fields: Any) -> None:
        """An event in a record: its length and the event, each followed by a checksum."""
        from tensorboardX.record_writer import masked_crc32c

        data = self._event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        append(self.file, length + checksums[0] + data + checksums[1])
