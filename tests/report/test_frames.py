"""Videos and contact sheets hold the frames that were given."""

import jax.numpy as jnp
import numpy as np

from plan2explore import make, record
from plan2explore.report.frames import contact_sheet, frames_of
from plan2explore.video import enlarge, read_video, write_video


def test_small_frames_are_enlarged_pixel_by_pixel():
    frames = np.random.default_rng(0).integers(0, 255, (2, 16, 16, 3), np.uint8)
    large = enlarge(frames, 64)
    assert large.shape == (2, 64, 64, 3)
    np.testing.assert_array_equal(large[:, 1::4, 2::4], frames)


def test_a_video_keeps_colours_and_count_without_a_warning(tmp_path, recwarn):
    jnp.zeros(1).block_until_ready()  # JAX warns of every fork from now on
    frames = np.zeros((12, 21, 21, 3), np.uint8)
    frames[:6, ..., 0], frames[6:, ..., 2] = 255, 255
    path = write_video(tmp_path / "v.mp4", frames, fps=6, pixels=21)
    seen = read_video(path)
    assert seen.shape == (12, 20, 20, 3)
    assert seen[2][..., 0].mean() > 200 > 60 > seen[2][..., 2].mean()
    assert seen[10][..., 2].mean() > 200 > 60 > seen[10][..., 0].mean()
    assert not [each for each in recwarn if issubclass(each.category, RuntimeWarning)]


def test_a_contact_sheet_has_a_place_for_every_frame():
    frames = np.full((7, 16, 16, 3), (200, 30, 60), np.uint8)
    sheet = np.asarray(contact_sheet(frames, [str(i) for i in range(7)], columns=3, pixels=16))
    assert (sheet == (200, 30, 60)).all(-1).sum() == 7 * 16 * 16


def test_frames_of_a_run_without_pixels_are_drawn_from_its_states():
    drawn = record(make("reacher", size=16), seed=3)
    black = record(make("reacher", size=16, obs="proprio"), seed=3)
    assert not black.image.any()
    np.testing.assert_array_equal(frames_of(black, slice(0, None, 50)), drawn.image[::50])
    assert frames_of(drawn, slice(2, 5)).base is drawn.image
