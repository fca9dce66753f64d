"""Mip levels, look-ups and cube maps."""

import itertools

import numba
import numpy as np
import pytest
from suite_worlds import WORLDS, load

from mjraycast import textures as module
from mjraycast.textures import FIRST_LEVEL, HEIGHT, LEVEL_COUNT, OFFSET, WIDTH

RANDOM = np.random.default_rng(0)


@numba.njit
def texel(texels, index, level, s, t, repeats):
    return module.texel(texels, index, level, s, t, repeats)


@numba.njit
def filtered(texels, index, first, count, s, t, density):
    return module.filtered(texels, index, first, count, s, t, density**2, True)


@numba.njit
def cube_colour(texels, index, direction):
    return module.cube_colour(texels, index, 0, direction, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


@numba.njit
def sky_colour(texels, index, sky, direction):
    return module.sky_colour(texels, index, sky, direction, (0.0, 0.01, 0.0), (0.0, 0.0, 0.01))


def one_texture(image):
    """A flat texture by itself: its texels and its index."""
    levels = module.pyramid(image)
    offsets = np.cumsum([0] + [level.shape[0] * level.shape[1] for level in levels])
    rows = [(level.shape[1], level.shape[0], offset) for level, offset in zip(levels, offsets, strict=False)]
    texels = np.concatenate([level.reshape(-1, 3) for level in levels]) / np.float32(255)
    return texels, np.array([(1, len(levels), 0), *rows], np.int64)


@pytest.mark.parametrize("shape", [(8, 8), (300, 300), (5, 3), (1, 4)])
def test_a_pyramid_halves_down_to_one_texel_and_keeps_the_mean(shape):
    image = RANDOM.integers(0, 256, (*shape, 3))
    levels = module.pyramid(image)
    for larger, smaller in itertools.pairwise(levels):
        assert smaller.shape[:2] == tuple(max(length // 2, 1) for length in larger.shape[:2])
    assert levels[-1].shape == (1, 1, 3)
    if shape == (8, 8):
        np.testing.assert_allclose(levels[-1].ravel(), image.mean((0, 1)), atol=1.5)
        blocks = image.reshape(4, 2, 4, 2, 3).mean((1, 3))
        np.testing.assert_allclose(levels[1], blocks, atol=0.51)


def test_lookups_interpolate_between_texels_and_repeat_or_end_at_the_edge():
    image = RANDOM.integers(0, 256, (4, 4, 3))
    texels, index = one_texture(image)
    at = (1.5 / 4, 2.5 / 4)
    np.testing.assert_allclose(texel(texels, index, 1, *at, True), image[2, 1] / 255, rtol=1e-6)
    between = texel(texels, index, 1, 2 / 4, 2.5 / 4, True)
    np.testing.assert_allclose(between, image[2, 1:3].mean(0) / 255, rtol=1e-6)
    again = texel(texels, index, 1, 5 + at[0], at[1] - 3, True)
    np.testing.assert_allclose(again, image[2, 1] / 255, rtol=1e-6)
    edge = texel(texels, index, 1, 0.0, 2.5 / 4, True)
    np.testing.assert_allclose(edge, (image[2, 0] + image[2, 3]) / 2 / 255, rtol=1e-6)
    np.testing.assert_allclose(texel(texels, index, 1, 0.0, 2.5 / 4, False), image[2, 0] / 255, rtol=1e-6)


def test_denser_pixels_use_coarser_levels_without_jumps():
    texels, index = one_texture(RANDOM.integers(0, 256, (64, 64, 3)))
    count = index[0, LEVEL_COUNT]
    finest = texel(texels, index, 1, 0.3, 0.4, True)
    assert filtered(texels, index, 1, count, 0.3, 0.4, 0.5) == finest
    coarsest = texel(texels, index, count, 0.3, 0.4, True)
    assert filtered(texels, index, 1, count, 0.3, 0.4, 1000.0) == coarsest
    densities = np.linspace(1.7, 60, 6000)
    colours = np.array([filtered(texels, index, 1, count, 0.3, 0.4, density) for density in densities])
    assert np.abs(np.diff(colours, axis=0)).max() < 0.02


def test_each_direction_has_its_face_of_a_cube_map():
    faces = RANDOM.integers(0, 256, (6, 3))
    texels = np.repeat(faces, 4, axis=0).astype(np.float32) / 255
    texels = np.concatenate([part for face in texels.reshape(6, 4, 3) for part in (face, face[:1])])
    rows = [row for face in range(6) for row in ((2, 2, 5 * face), (1, 1, 5 * face + 4))]
    index = np.array([(1, 2, 0), *rows], np.int64)
    for face, (axis, sign) in enumerate([(0, 1), (0, -1), (1, 1), (1, -1), (2, 1), (2, -1)]):
        direction = RANDOM.uniform(-0.9, 0.9, 3)
        direction[axis] = sign
        np.testing.assert_allclose(cube_colour(texels, index, tuple(direction)), faces[face] / 255, rtol=1e-6)
    assert sky_colour(texels, index, module.NONE, (1.0, 0.0, 0.0)) == (0, 0, 0)
    # The sky's z is up: OpenGL's third face is what the sky shows above.
    np.testing.assert_allclose(sky_colour(texels, index, 0, (0.1, 0.2, 1.0)), faces[2] / 255, rtol=1e-6)


def test_a_models_textures_are_indexed_without_overlap():
    model = load(WORLDS[3]).physics.model.ptr
    built = module.build_textures(model, pixel=0.01)
    end = 1
    for texture in range(model.ntex):
        faces = 1 if model.tex_type[texture] == module.FLAT else 6
        first, count = built.rows[texture, FIRST_LEVEL], built.rows[texture, LEVEL_COUNT]
        for row in built.rows[first : first + faces * count]:
            assert row[OFFSET] == end
            end += row[WIDTH] * row[HEIGHT]
    assert end == len(built.texels)
    assert module.find_sky(model) == int(np.flatnonzero(model.tex_type == module.SKYBOX)[0])
    finest = built.rows[built.rows[module.find_sky(model), FIRST_LEVEL], WIDTH]
    assert finest < model.tex_width[module.find_sky(model)], "no level of the sky was left out"
    assert 0.5 * finest * 0.01 <= 2, "levels that pixels need were left out"
