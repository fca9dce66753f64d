"""Films in the page: stored episodes of exploration, and those of adapted tasks, made as small as the page allows."""

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from ..replay import Episode
from ..runs.folder import RunFolder
from .coordinates import coordinates_of
from .explored import Explored, Missing
from .html import Markup, figure, film, grid, join, missing, tag
from .pictures import frames_of, write_video
from .results import PROBE, shots_of

MOST_FRAMES = 251  # half of those of an episode with two env steps per action
LARGEST_SOURCE = 256 * 2**20  # bytes of a film that is read at all
MP4 = b"ftyp"  # what follows the first four bytes


@dataclass(frozen=True)
class PageFilm:
    """A film that could be shown: `make` gives its bytes, no more of them than it is told."""

    group: str
    caption: str
    make: Callable[[int], bytes]


def show_films(films: Sequence[PageFilm], room: int) -> Markup:
    """Films of a group side by side, in so many bytes of the page. Each may take its share of what is left."""
    shown: dict[str, list[Markup]] = {}
    notes, left = [], room
    for index, each in enumerate(films):
        share = left // (len(films) - index) * 3 // 4  # base64 makes four characters of three bytes
        try:
            data = each.make(share)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            notes.append(missing(f"{each.caption}: left out. {error}"))
            continue
        piece = figure(film(data, each.caption), each.caption)
        left -= len(piece)
        shown.setdefault(each.group, []).append(piece)
    return join([*notes, *(join([tag("h3", group), grid(pieces, small=True)]) for group, pieces in shown.items())])


def exploration_films(explored: Explored) -> list[PageFilm]:
    """The first, the middle and the last episode."""
    numbers = explored.episodes.numbers()
    chosen = dict.fromkeys(numbers[index] for index in (0, len(numbers) // 2, -1)) if numbers else {}
    group = f"Exploration: {explored.label}"
    return [PageFilm(group, _about(explored, number), _of_episode(explored, number)) for number in chosen]


def _about(explored: Explored, number: int) -> str:
    """Which episode it is, and who acted in it."""
    about = f"Episode {number}"
    try:
        policy = explored.episodes.load(number, pictures=False).meta.get("policy")
    except (ValueError, OSError):
        return about  # why it cannot be read is said when it is to be shown
    return f"{about}, acted by {policy}" if policy else about


def _of_episode(explored: Explored, number: int) -> Callable[[int], bytes]:
    def make(limit: int) -> bytes:
        episode = explored.episodes.load(number)
        every = -(-len(episode) // MOST_FRAMES)
        return encode(frames_of(episode, slice(None, None, every)), frames_per_second(explored, episode) / every, limit)

    return make


def frames_per_second(explored: Explored, episode: Episode) -> float:
    """At which the film of an episode runs in real time."""
    if episode.world != explored.config.world.world:
        raise ValueError(f"It is of {episode.world!r}, which is not the run's world.")
    seconds = coordinates_of(episode.world, episode).seconds or 1 / 30
    return min(120.0, max(1.0, 1 / (seconds * episode.state.shape[1])))


def encode(frames: np.ndarray, fps: float, limit: int) -> bytes:
    """Frames as an mp4 of at most so many bytes: smaller, then shorter, until it fits."""
    with tempfile.TemporaryDirectory() as folder:
        for pixels, part in ((256, 1.0), (128, 1.0), (128, 0.5)):
            file = write_video(Path(folder) / "film.mp4", frames[: max(1, int(part * len(frames)))], fps, pixels)
            if file.stat().st_size <= limit:
                return file.read_bytes()
    raise ValueError("There is no room for it in the page.")


def stored_films(folder: Path, group: str, tell: Callable[[str], str]) -> list[PageFilm]:
    """The films in a run's `videos/`; `tell` says by a file's name what it shows."""
    return [PageFilm(group or file.stem, tell(file.stem), _of_file(file)) for file in sorted(folder.glob("*.mp4"))]


def _of_file(file: Path) -> Callable[[int], bytes]:
    def make(limit: int) -> bytes:
        if not file.is_file() or file.stat().st_size > LARGEST_SOURCE:
            raise ValueError("It is no plain file, or too large.")
        with file.open("rb") as opened:
            if opened.read(12)[4:8] != MP4:
                raise ValueError("It is damaged: not an mp4.")
        return file.read_bytes() if file.stat().st_size <= limit else shrink(file, limit)

    return make


def shrink(file: Path, limit: int) -> bytes:
    """A film made smaller and shorter. Only an mp4 is read: other forms could name further files."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.mp4"
        reads = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "mov", "-i", str(file.resolve())]
        writes = ["-an", "-t", "10", "-vf", "scale=160:-2", "-c:v", "libx264", "-crf", "30", "-pix_fmt", "yuv420p"]
        subprocess.run([*reads, *writes, str(small)], check=True, capture_output=True, timeout=60)
        if small.stat().st_size > limit:
            raise ValueError("There is no room for it in the page.")
        return small.read_bytes()


def adaptation_films(explored: Explored) -> list[PageFilm]:
    """What the run's folder and those of its adaptations have."""
    films = stored_films(explored.run.folder.videos, "", partial(_probe_shown, explored))
    films = [replace(film, group=re.sub(r"-\d+$", "", film.group)) for film in films]
    for folder in explored.adaptations:
        task = str(folder.settings.get("task", ""))
        films += stored_films(folder.videos, task, partial(_adaptation_shown, explored, folder))
    return films


def _probe_shown(explored: Explored, stem: str) -> str:
    """`evaluate --video` calls the film of a probe TASK-STEPS."""
    task, _, steps = stem.rpartition("-")
    known = task in explored.probes and steps.isdecimal()
    return f"{explored.label}: {task}, {PROBE} at env step {int(steps):,}" if known else f"{explored.label}: {stem}"


def _adaptation_shown(explored: Explored, folder: RunFolder, stem: str) -> str:
    """The task and how it was learned; a film that `evaluate --video` did not name keeps its own name."""
    task, shots = str(folder.settings.get("task", "")), shots_of(folder)
    how = f"few-shot ({shots} episodes)" if shots else "zero-shot"
    snapshot = folder.settings.get("snapshot")
    start = f" from env step {snapshot:,}" if isinstance(snapshot, int) else ""
    named = "" if re.fullmatch(rf"{re.escape(task)}-\d+", stem) else f", {stem}"
    return f"{explored.label}: {task}, {how}{start}{named}"


def films_of(every: Sequence[Explored], room: int) -> Markup:
    """Films of all runs, in about so many bytes of the page: policies of a task beside each other, then exploration."""
    films = [film for explored in every for film in adaptation_films(explored)]
    films.sort(key=lambda film: film.group)
    films += [film for explored in every for film in exploration_films(explored)]
    if not films:
        raise Missing("There is no episode and no film to show.")
    return show_films(films, room)
