"""Reading what TensorBoard is given."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c


def read_events(folder: Path) -> list[Event]:
    """All events of a folder in TensorBoard's order, checksums verified."""
    events = []
    for file in sorted(folder.iterdir()):
        data = io.BytesIO(file.read_bytes())
        while length := data.read(8):
            assert struct.unpack("<I", data.read(4))[0] == masked_crc32c(length)
            content = data.read(struct.unpack("<Q", length)[0])
            assert struct.unpack("<I", data.read(4))[0] == masked_crc32c(content)
            events.append(Event.FromString(content))
    return events


def shown(folder: Path, kind: str) -> dict[tuple[str, int], Any]:
    """By tag and step all that is of this kind: `image`, `histo` or `simple_value`. Nothing is there twice."""
    values = [(event.step, value) for event in read_events(folder) for value in event.summary.value]
    found = {(value.tag, step): getattr(value, kind) for step, value in values if value.WhichOneof("value") == kind}
    assert len(found) == sum(value.WhichOneof("value") == kind for _, value in values)
    return found


def frames_of(video: Any) -> np.ndarray:
    """A video as (time, height, width, 3). In the file, frames that are alike are one that lasts longer."""
    moving = Image.open(io.BytesIO(video.encoded_image_string))
    frames, times = [], []
    for index in range(moving.n_frames):
        moving.seek(index)
        frames.append(np.asarray(moving.convert("RGB")))
        times.append(int(moving.info["duration"]))
    assert frames[0].shape == (video.height, video.width, 3)
    return np.repeat(frames, np.array(times) // np.gcd.reduce(times), axis=0)
