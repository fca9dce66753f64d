"""Videos in the page: stored episodes of exploration, and those of adapted tasks, made as small as the page allows."""

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from ..runs.folder import RunFolder
from ..runs.reader import summary_of
from ..runs.results import PROBE
from ..video import write_video
from .coordinates import coordinates_of
from .frames import frames_of
from .html import Markup, figure, grid, join, missing, tag, video
from .run import Missing, ReportRun

MOST_FRAMES = 251  # half of those of an episode with two env steps per action
LARGEST_SOURCE = 256 * 2**20  # bytes of a video that is read at all
MP4 = b"ftyp"  # what follows the first four bytes
NO_ROOM = "There is no room for it in the page."


@dataclass(frozen=True)
class PageVideo:
    """A video that could be shown: `make` gives its bytes, no more of them than it is told."""

    group: str
    caption: str
    make: Callable[[int], bytes]


def videos(runs: Sequence[ReportRun], room: int) -> Markup:
    """Videos of all runs, in about so many bytes of the page: policies of a task beside each other, then exploration."""
    found = sorted((each for run in runs for each in policy_videos(run)), key=lambda each: each.group)
    found += [each for run in runs for each in exploration_videos(run)]
    if not found:
        raise Missing("There is no episode and no video to show.")
    return show_videos(found, room)


def show_videos(found: Sequence[PageVideo], room: int) -> Markup:
    """Videos of a group side by side, in so many bytes of the page. Each may take its share of what is left."""
    shown: dict[str, list[Markup]] = {}
    notes = []
    for index, each in enumerate(found):
        share = room // (len(found) - index) * 3 // 4  # base64 makes four characters of three bytes
        try:
            piece = figure(video(each.make(share), each.caption), each.caption)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            notes.append(missing(f"{each.caption}: left out. {error}"))
            continue
        room -= len(piece)
        shown.setdefault(each.group, []).append(piece)
    return join([*notes, *(join([tag("h3", group), grid(pieces, small=True)]) for group, pieces in shown.items())])


def exploration_videos(run: ReportRun) -> list[PageVideo]:
    """The first, the middle and the last episode."""
    numbers, found = run.episodes.numbers(), []
    for number in dict.fromkeys(numbers[index] for index in (0, len(numbers) // 2, -1)) if numbers else ():
        caption = f"Episode {number}"
        with suppress(ValueError, OSError):  # why it cannot be read is said when it is to be shown
            policy = run.episodes.load(number, images=False).meta.get("policy")
            caption += f", acted by {policy}" if policy else ""
        found.append(PageVideo(f"Exploration: {run.label}", caption, partial(_of_episode, run, number)))
    return found


def _of_episode(run: ReportRun, number: int, limit: int) -> bytes:
    """An episode's video, in real time."""
    episode = run.load_episode(number)
    seconds = coordinates_of(episode.world, episode).seconds or 1 / 30
    fps = min(120.0, max(1.0, 1 / (seconds * episode.state.shape[1])))
    every = -(-len(episode) // MOST_FRAMES)
    return encode(frames_of(episode, slice(None, None, every)), fps / every, limit)


def encode(frames: np.ndarray, fps: float, limit: int) -> bytes:
    """Frames as an mp4 of at most so many bytes: smaller, then shorter, until it fits."""
    with tempfile.TemporaryDirectory() as folder:
        for pixels, part in ((256, 1.0), (128, 1.0), (128, 0.5)):
            file = write_video(Path(folder) / "video.mp4", frames[: max(1, int(part * len(frames)))], fps, pixels)
            if file.stat().st_size <= limit:
                return file.read_bytes()
    raise ValueError(NO_ROOM)


def policy_videos(run: ReportRun) -> list[PageVideo]:
    """What the run's folder and those of its adaptations have: `evaluate --video` calls the video of a probe TASK-STEPS."""
    found = []
    for file in sorted(run.folder.videos.glob("*.mp4")):
        task, _, steps = file.stem.rpartition("-")
        known = task in run.about.probes and steps.isdecimal()
        about = f"{task}, {PROBE} at env step {int(steps):,}" if known else file.stem
        found.append((re.sub(r"-\d+$", "", file.stem), about, file))
    for folder in run.adaptations[0]:
        files = sorted(folder.videos.glob("*.mp4"))
        found += [(summary_of(folder).task or file.stem, _adaptation_shown(folder, file.stem), file) for file in files]
    return [PageVideo(group, f"{run.label}: {about}", partial(stored_video, file)) for group, about, file in found]


def _adaptation_shown(folder: RunFolder, stem: str) -> str:
    """The task and how it was learned; a video that `evaluate --video` did not name keeps its own name."""
    about = summary_of(folder)
    how = f"few-shot ({about.shots} episodes)" if about.shots else "zero-shot"
    named = "" if re.fullmatch(rf"{re.escape(about.task)}-\d+", stem) else f", {stem}"
    start = f" from env step {about.snapshot:,}" if about.snapshot else ""
    return f"{about.task}, {how}{start}{named}"


def stored_video(file: Path, limit: int) -> bytes:
    """The bytes of a video as it is, or shrunk."""
    if not file.is_file() or file.stat().st_size > LARGEST_SOURCE:
        raise ValueError("It is no plain file, or too large.")
    with file.open("rb") as opened:
        if opened.read(12)[4:8] != MP4:
            raise ValueError("It is damaged: not an mp4.")
    return file.read_bytes() if file.stat().st_size <= limit else shrink(file, limit)


def shrink(file: Path, limit: int) -> bytes:
    """A video made smaller and shorter. Only an mp4 is read: other forms could name further files."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.mp4"
        reads = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "mov", "-i", str(file.resolve())]
        writes = ["-an", "-t", "10", "-vf", "scale=160:-2", "-c:v", "libx264", "-crf", "30", "-pix_fmt", "yuv420p"]
        subprocess.run([*reads, *writes, str(small)], check=True, capture_output=True, timeout=60)
        if small.stat().st_size > limit:
            raise ValueError(NO_ROOM)
        return small.read_bytes()
