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
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from plan2explore.atomic import append, sync

from .files import append_line, drop_later
from .folder import RunError, RunFolder

RESERVED = {"env_steps", "time"}
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


class Metrics:
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
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="films")
        self._films: deque[QueuedFilm] = deque()
        self._last: tuple[float, int, float] | None = None

    def write(self, env_steps: int, values: Mapping[str, Any]) -> None:
        """Adds one line of numbers. JSON has no word for one that is not finite: it becomes null there."""
        if taken := RESERVED & set(values):
            raise ValueError(f"A metric cannot be called {min(taken)!r}: every line has one already.")
        numbers = {name: _number(name, value) for name, value in values.items()}
        line: dict[str, Any] = {"env_steps": int(env_steps), "time": round(time.time(), 3)}
        append_line(self.file, line | {name: _finite(number) for name, number in numbers.items()})
        tagged = {tag_of(name): number for name, number in numbers.items()} | self._speed(env_steps, numbers)
        self._events.scalars(env_steps, tagged)
        self._log(env_steps, tagged)
        self._write_films()

    def _speed(self, env_steps: int, numbers: Mapping[str, int | float]) -> dict[str, float]:
        """Env steps and updates a second since the last line of updates; metrics.jsonl has the times themselves."""
        if "update" not in numbers:
            return {}
        last, self._last = self._last, (time.monotonic(), env_steps, numbers["update"])
        if last is None or self._last[0] <= last[0]:
            return {}
        _, steps, updates = (
            (now - before) / (self._last[0] - last[0]) for now, before in zip(self._last, last, strict=True)
        )
        return {"time/env_steps_per_second": steps, "time/updates_per_second": updates}

    def histogram(self, env_steps: int, name: str, values: Any) -> None:
        """How numbers are distributed, those that are not finite left out."""
        flat = np.asarray(values, np.float64).ravel()
        flat = flat[np.isfinite(flat)]
        if flat.size:
            self._events.histogram(env_steps, tag_of(name), flat)
            if self._wandb:
                self._log(env_steps, {tag_of(name): self._wandb.Histogram(flat)})

    def video(self, env_steps: int, name: str, frames: np.ndarray, fps: float) -> None:
        """A moving picture, of `frames` uint8 (time, height, width, 3): a thread encodes it, and a later call writes it."""
        check_film(frames)
        self._films.append(
            QueuedFilm(env_steps, tag_of(name), frames.shape[1:3], self._encoder.submit(encode_gif, frames, fps))
        )

    def _write_films(self, wait: bool = False) -> None:
        """Writes those that are encoded, in their order; or all, when they are."""
        while self._films and (wait or self._films[0].encoded.done()):
            film = self._films.popleft()
            moving = film.encoded.result()
            self._events.picture(film.env_steps, film.name, moving, *film.size)
            if self._wandb:
                self._log(film.env_steps, {film.name: self._wandb.Video(io.BytesIO(moving), format="gif")})

    def flush(self) -> None:
        """Returns when everything is on disk."""
        self._write_films(wait=True)
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

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _log(self, env_steps: int, values: Mapping[str, Any]) -> None:
        if self._wandb:
            self._wandb.log({"env_steps": int(env_steps), **values})


class QueuedFilm(NamedTuple):
    """A moving picture on its way to TensorBoard."""

    env_steps: int
    name: str
    size: tuple[int, ...]
    """Height and width."""
    encoded: Future[bytes]


def check_film(frames: np.ndarray) -> None:
    """Anything but pictures is refused."""
    if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or not len(frames):
        raise ValueError(f"A video is uint8 (time, height, width, 3), not {frames.dtype} {frames.shape}.")


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


def _finite(number: int | float) -> int | float | None:
    return number if math.isfinite(number) else None


def _start_wandb(folder: RunFolder) -> Any:
    try:
        import wandb
    except ImportError:
        text = "Weights & Biases is not installed: pip install 'plan2explore[wandb]', or go without --wandb."
        raise RunError(text) from None
    wandb.init(
        project=os.environ.get("WANDB_PROJECT", "plan2explore"),
        id=folder.id,  # the same at each start, so that the curves continue
        name=folder.path.name,
        dir=str(folder.path),
        config=folder.settings,
        resume="allow",
    )
    wandb.define_metric("*", step_metric="env_steps")
    return wandb


class _EventFile:
    """One more file for TensorBoard, written without a thread between: its errors are the caller's at once."""

    def __init__(self, folder: Path, resume_at: int | None) -> None:
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # late: half a second

        self._event = Event
        self.file = _new_event_file(folder)
        self._append(file_version="brain.Event:2")
        if resume_at is not None:  # TensorBoard hides what older files have from this step on
            self._append(step=resume_at + 1, session_log=SessionLog(status=SessionLog.START))

    def scalars(self, env_steps: int, numbers: Mapping[str, int | float]) -> None:
        self._summary(env_steps, [{"tag": name, "simple_value": number} for name, number in numbers.items()])

    def picture(self, env_steps: int, name: str, encoded: bytes, height: int, width: int) -> None:
        picture = {"height": height, "width": width, "colorspace": 3, "encoded_image_string": encoded}
        self._summary(env_steps, [{"tag": name, "image": picture}])

    def histogram(self, env_steps: int, name: str, values: np.ndarray) -> None:
        counts, edges = np.histogram(values, bins=30)
        histogram = {
            "min": values.min(),
            "max": values.max(),
            "num": values.size,
            "sum": values.sum(),
            "sum_squares": np.square(values).sum(),
            "bucket_limit": edges[1:].tolist(),
            "bucket": counts.tolist(),
        }
        self._summary(env_steps, [{"tag": name, "histo": histogram}])

    def _summary(self, env_steps: int, values: list[dict[str, Any]]) -> None:
        self._append(step=int(env_steps), summary={"value": values})

    def _append(self, **fields: Any) -> None:
        """An event in a record: its length and the event, each followed by a checksum."""
        from tensorboardX.record_writer import masked_crc32c

        data = self._event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        append(self.file, length + checksums[0] + data + checksums[1])


def _new_event_file(folder: Path) -> Path:
    """An empty file whose name sorts after those of earlier starts: TensorBoard reads them in that order."""
    folder.mkdir(parents=True, exist_ok=True)
    start, number = int(time.time()), 0
    while True:
        file = folder / f"events.out.tfevents.{start:010d}.{socket.gethostname()}.{number:03d}"
        try:
            file.touch(exist_ok=False)
            return file
        except FileExistsError:
            number += 1
