"""Frames of episodes, contact sheets, and `plan2explore look`: a random episode as a video."""

import io
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ..console import PatientConsole
from ..envs import make
from ..envs.names import check_module, folder_name, is_suite
from ..replay import Episode, record
from ..runs.files import check_folder
from ..video import enlarge, write_video

SHEET = 18  # frames on the contact sheet
PREVIEW = 2000  # env steps: `look` shows no more of an episode


def frames_of(episode: Episode, steps: slice, states: np.ndarray | None = None) -> np.ndarray:
    """Images of an episode's steps, uint8 (n, size, size, 3). Those of a run without pixels are drawn from its states.

    With `states`, those are drawn in their place. (Without MuJoCo behind it a Gymnasium environment cannot be put into a
    stored state: its images stay black. So do those of one that a file would have to start.)
    """
    if states is None and episode.image.any():
        return episode.image[steps]
    try:
        check_module(episode.world, "an episode")
        env = make(episode.world, size=episode.image.shape[1], obs="proprio", camera=episode.meta.get("camera"))
    except ValueError:
        if is_suite(episode.world):
            raise
        return episode.image[steps]
    with closing(env):
        if not env.draws_states:
            return episode.image[steps]
        return env.draw(episode.last_states()[steps] if states is None else states, episode.drawn)


def encode_png(frame: np.ndarray, pixels: int) -> bytes:
    """A uint8 frame (height, width, 3) as a PNG, enlarged to about `pixels`."""
    file = io.BytesIO()
    Image.fromarray(enlarge(frame, pixels)).save(file, "PNG", optimize=True)
    return file.getvalue()


def contact_sheet(frames: np.ndarray, labels: list[str], columns: int = 6, pixels: int = 192) -> Image.Image:
    """Frames side by side, each with its label."""
    large = enlarge(frames, pixels)
    height, width = large.shape[1:3]
    gap, caption = 6, 16
    rows = -(-len(large) // columns)
    sheet = Image.new("RGB", (columns * (width + gap) + gap, rows * (height + caption + gap) + gap), "white")
    draw = ImageDraw.Draw(sheet)
    for index, (frame, label) in enumerate(zip(large, labels, strict=True)):
        left, top = gap + index % columns * (width + gap), gap + index // columns * (height + caption + gap)
        sheet.paste(Image.fromarray(frame), (left, top))
        draw.text((left, top + height + 2), label, fill="black")
    return sheet


def look_at(world: str, out: Path, *, size: int, action_repeat: int, seed: int, **options: Any) -> int:
    """Plays, writes `WORLD.mp4` and `WORLD.png` below `out`, and prints where they are and how fast it was."""
    check_folder(out)
    console = PatientConsole(soft_wrap=True)
    console.print(f"Opening {world} (the first time, the renderer is compiled: about half a minute) ...")
    env = make(world, size=size, action_repeat=action_repeat, seed=seed, **options)
    whole, env.episode = env.episode, min(env.episode, PREVIEW)
    env.reset(seed=seed)
    env.step(np.zeros(env.action_size))  # compiled now, so that the clock does not count it
    with console.status("playing ..."):
        start = time.perf_counter()
        episode = record(env, seed=seed)
        speed = (len(episode) - 1) / (time.perf_counter() - start)
    frames = episode.image
    out.mkdir(parents=True, exist_ok=True)
    video = write_video(out / f"{folder_name(world)}.mp4", frames, env.fps)
    shown = np.linspace(0, len(frames) - 1, min(SHEET, len(frames))).astype(int)
    sheet = video.with_suffix(".png")
    contact_sheet(frames[shown], [f"env step {index * action_repeat}" for index in shown]).save(sheet)
    if whole > episode.meta["env_steps"] == PREVIEW:
        console.print(f"These are the first {PREVIEW:,} env steps: the episode was not over.")
    console.print(
        f"{len(frames) - 1} agent steps of {action_repeat} env steps, drawn by {env.renderer} at {size}x{size}\n"
        f"{speed:.0f} agent steps/s in one process, return {episode.reward.sum():.1f} (random actions)\n"
        f"video: {video}\ncontact sheet: {sheet}"
    )
    env.close()
    return 0
