"""`plan2explore look`: a random episode as a video and a contact sheet."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ..envs import make
from ..envs.names import folder_name
from ..replay import record
from ..runs.files import check_folder
from .pictures import contact_sheet, write_video

SHEET = 18  # frames on the contact sheet


def look_at(world: str, out: Path, *, size: int, action_repeat: int, seed: int, **options: Any) -> int:
    """Plays, writes `WORLD.mp4` and `WORLD.png` below `out`, and prints where they are and how fast it was."""
    check_folder(out)
    console = Console()
    console.print(f"Opening {world} (the first time, the renderer is compiled: about half a minute) ...")
    env = make(world, size=size, action_repeat=action_repeat, seed=seed, **options)
    env.reset(seed=seed)
    env.step(np.zeros(env.action_size))  # compiled now, so that the clock does not count it
    with console.status("playing ..."):
        start = time.perf_counter()
        episode = record(env, seed=seed)
        seconds = time.perf_counter() - start
    frames = episode.image
    out.mkdir(parents=True, exist_ok=True)
    name = folder_name(world)
    video = write_video(out / f"{name}.mp4", frames, env.fps)
    shown = np.linspace(0, len(frames) - 1, min(SHEET, len(frames))).astype(int)
    sheet = out / f"{name}.png"
    contact_sheet(frames[shown], [f"env step {index * action_repeat}" for index in shown]).save(sheet)
    console.print(f"{len(frames) - 1} agent steps of {action_repeat} env steps, drawn by {env.renderer} at {size}x{size}")
    speed = (len(frames) - 1) / seconds
    console.print(f"{speed:.0f} agent steps/s in one process, return {episode.reward.sum():.1f} (random actions)")
    console.print(f"video: {video}\ncontact sheet: {sheet}", soft_wrap=True)
    env.close()
    return 0
