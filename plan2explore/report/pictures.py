"""Videos and contact sheets from frames."""

import io
import warnings
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
from PIL import Image, ImageDraw

from ..envs import make
from ..envs.names import check_module, is_suite
from ..replay import Episode


def frames_of(episode: Episode, steps: slice) -> np.ndarray:
    """Images of an episode's steps, uint8 (n, size, size, 3). Those of a run without pixels are drawn from its states.

    (Without MuJoCo behind it a Gymnasium environment cannot be put into a stored state: its images stay black.)
    """
    stored = episode.image[steps]
    env = None if episode.image.any() else _drawing_env(episode)
    if env is None:
        return stored
    taken = ~np.isnan(episode.state).all(-1)
    last = taken.shape[1] - 1 - np.argmax(taken[:, ::-1], 1)
    states = episode.state[np.arange(len(episode)), last][steps]
    try:
        return env.draw(states, episode.drawn)
    finally:
        env.close()


def _drawing_env(episode: Episode) -> Any:
    """An environment that can draw an episode's states; none where there is no such, or a file would have to start it."""
    try:
        check_module(episode.world, "an episode")
        env = make(episode.world, size=episode.image.shape[1], obs="proprio", camera=episode.meta.get("camera"))
    except ValueError:
        if is_suite(episode.world):
            raise
        return None
    if not env.draws_states:
        env.close()
        return None
    return env


def enlarge(frames: np.ndarray, pixels: int) -> np.ndarray:
    """Repeats pixels until a frame is about `pixels` wide: small pictures stay what they are, but can be seen."""
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


def contact_sheet(frames: np.ndarray, labels: list[str], columns: int = 6, pixels: int = 192) -> Image.Image:
    """Frames side by side, each with its label."""
    large = enlarge(frames, pixels)
    height, width = large.shape[1:3]
    gap, caption = 6, 16
    rows = -(-len(large) // columns)
    sheet = Image.new("RGB", (columns * (width + gap) + gap, rows * (height + caption + gap) + gap), "white")
    draw = ImageDraw.Draw(sheet)
    for index, (frame, label) in enumerate(zip(large, labels, strict=True)):
        left = gap + index % columns * (width + gap)
        top = gap + index // columns * (height + caption + gap)
        sheet.paste(Image.fromarray(frame), (left, top))
        draw.text((left, top + height + 2), label, fill="black")
    return sheet


def encode_png(frame: np.ndarray, pixels: int | None = None) -> bytes:
    """A uint8 frame (height, width, 3) as a PNG, enlarged to about `pixels` if those are given."""
    file = io.BytesIO()
    Image.fromarray(frame if pixels is None else enlarge(frame, pixels)).save(file, "PNG", optimize=True)
    return file.getvalue()
