"""Videos are made as small as the page allows, or left out with a sentence."""

import shutil
from functools import partial

import numpy as np
import pytest
from small_run import TASK

from plan2explore.report.run import open_runs
from plan2explore.report.videos import PageVideo, encode, policy_videos, show_videos, shrink, stored_video
from plan2explore.video import write_video

FRAMES = np.random.default_rng(0).integers(0, 255, (30, 32, 32, 3), np.uint8)


def test_a_video_gets_smaller_until_it_fits():
    large = encode(FRAMES, 30, 10**9)
    small = encode(FRAMES, 30, len(large) - 1)
    assert len(small) < len(large) and small[4:8] == b"ftyp"
    with pytest.raises(ValueError, match="no room"):
        encode(FRAMES, 30, 100)


def test_a_stored_video_is_taken_as_it_is_or_shrunk(tmp_path):
    file = write_video(tmp_path / "a.mp4", FRAMES.repeat(4, 0), 10)
    size = file.stat().st_size
    assert stored_video(file, size) == file.read_bytes()
    assert len(stored_video(file, size - 1)) < size
    with pytest.raises(ValueError, match="no room"):
        shrink(file, 100)


def test_what_is_no_video_is_said(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"#EXTM3U\nfile:///etc/passwd\n")
    (tmp_path / "b.mp4").mkdir()
    found = [PageVideo("task", f"run: {file.stem}", partial(stored_video, file)) for file in sorted(tmp_path.iterdir())]
    page = show_videos(found, 10**6)
    assert "run: a: left out. It is damaged" in page and "run: b: left out" in page and "<video" not in page


def test_videos_share_the_room():
    asked = []

    def make(limit: int) -> bytes:
        asked.append(limit)
        return b"x" * min(limit, 3000)

    page = show_videos([PageVideo("group", str(number), make) for number in range(3)], 40_000)
    assert page.count("<video") == 3 and asked[0] == 40_000 // 3 * 3 // 4 and asked[2] > asked[0]
    assert 12_000 < len(page) < 14_000


def test_captions_say_what_is_shown(copied):
    run = copied
    adapted = run / "adapt" / TASK
    shutil.copytree(adapted, run / "adapt" / "few")
    description = run / "adapt" / "few" / "run.json"
    description.write_text(description.read_text().replace('"shots": 0', '"shots": 20'))
    (run / "videos").mkdir()
    for file in (run / "videos" / f"{TASK}-3000.mp4", run / "videos" / "holiday-2.mp4", adapted / "videos" / "other.mp4"):
        shutil.copy(adapted / "videos" / f"{TASK}-0.mp4", file)
    captions = [video.caption.removeprefix("copy (plan2explore): ") for video in policy_videos(open_runs([run])[0][0])]
    assert captions == [
        f"{TASK}, zero-shot probe at env step 3,000", "holiday-2",
        f"{TASK}, zero-shot from env step 3,000", f"{TASK}, zero-shot from env step 3,000, other",
        f"{TASK}, few-shot (20 episodes) from env step 3,000",
    ]  # fmt: skip


def test_policies_of_a_task_stand_side_by_side(page_of_both):
    _, page = page_of_both.read_text().split("<h2>Videos</h2>")
    policies, first, second = page.partition("<h2>")[0].split("<h3>Exploration: ")
    assert policies.count("<h3>") == 1 and f"<h3>{TASK}</h3>" in policies and policies.count("<video") == 2
    assert first.startswith("first (plan2explore)</h3>") and first.count("<video") == second.count("<video") == 3
