"""Films are made as small as the page allows, or left out with a sentence."""

import numpy as np
import pytest

from plan2explore.report.films import Film, encode, show_films, shrink, stored_films
from plan2explore.report.pictures import write_video

FRAMES = np.random.default_rng(0).integers(0, 255, (30, 32, 32, 3), np.uint8)


def test_a_film_gets_smaller_until_it_fits():
    large = encode(FRAMES, 30, 10**9)
    small = encode(FRAMES, 30, len(large) - 1)
    assert len(small) < len(large) and small[4:8] == b"ftyp"
    with pytest.raises(ValueError, match="no room"):
        encode(FRAMES, 30, 100)


def test_a_stored_film_is_taken_as_it_is_or_shrunk(tmp_path):
    file = write_video(tmp_path / "a.mp4", FRAMES.repeat(4, 0), 10)
    (film,) = stored_films(tmp_path, "run")
    size = file.stat().st_size
    assert film.caption == "run: a.mp4" and film.make(size) == file.read_bytes()
    assert len(film.make(size - 1)) < size
    with pytest.raises(ValueError, match="no room"):
        shrink(file, 100)


def test_what_is_no_film_is_said(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"#EXTM3U\nfile:///etc/passwd\n")
    (tmp_path / "b.mp4").mkdir()
    page, used = show_films(stored_films(tmp_path, "run"), 10**6)
    assert "run: a.mp4: left out. It is damaged" in page and "run: b.mp4: left out" in page and "<video" not in page
    assert used == 0


def test_films_share_the_room():
    asked = []

    def make(limit: int) -> bytes:
        asked.append(limit)
        return b"x" * min(limit, 3000)

    page, used = show_films([Film(str(number), make) for number in range(3)], 40_000)
    assert page.count("<video") == 3 and asked[0] == 40_000 // 3 * 3 // 4 and asked[2] > asked[0]
    assert 12_000 < used < 14_000
