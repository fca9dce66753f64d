"""Frames as a video file."""

import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np


def enlarge(frames: np.ndarray, pixels: int) -> np.ndarray:
    """Repeats pixels until a frame is about `pixels` wide: small frames stay what they are, but can be seen."""
    factor = max(1, round(pixels / frames.shape[-2]))
    return frames.repeat(factor, axis=-3).repeat(factor, axis=-2)


def write_video(path: Path, frames: np.ndarray, fps: float, pixels: int = 256) -> Path:
    """Writes uint8 frames (time, height, width, 3) as an mp4 that browsers play."""
    frames = enlarge(frames, pixels)
    height, width = (side - side % 2 for side in frames.shape[1:3])  # H.264 wants even sides
    writer = imageio_ffmpeg.write_frames(
        str(path), (width, height), fps=fps, codec="libx264", quality=8, macro_block_size=2, ffmpeg_log_level="error"
    )
    _start(writer)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame[:height, :width]))
    writer.close()
    return path


def read_video(path: Path) -> np.ndarray:
    """The frames of an mp4, uint8 (time, height, width, 3)."""
    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = _start(reader)["size"]
    return np.stack([np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader])


def _start(ffmpeg: Generator[Any, Any, None]) -> Any:
    """Starts ffmpeg without JAX's warning of every fork: this one is followed by another program at once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
        return next(ffmpeg)
