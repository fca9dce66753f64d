"""Frames as a video file."""

import warnings
from pathlib import Path

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
    with warnings.catch_warnings():
        # JAX warns of every fork. This one is followed by ffmpeg at once.
        warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
        writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame[:height, :width]))
    writer.close()
    return path
