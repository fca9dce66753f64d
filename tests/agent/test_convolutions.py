"""Every fast form of an image layer agrees with its plain form, values and gradients, and that with loops."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent import convolutions as conv


def random(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def value_and_gradients(layer, images, weight, form):
    def loss(images, weight):
        made = layer(images, weight, form)
        return jnp.mean(made * jnp.cos(jnp.arange(made.size)).reshape(made.shape)), made

    (_, made), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(images, weight)
    return made, *gradients


def assert_same(layer, images, weight, form):
    plain = value_and_gradients(layer, images, weight, "plain")
    fast = value_and_gradients(layer, images, weight, form)
    for expected, got in zip(plain, fast, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["conv", "patches", "auto"])
@pytest.mark.parametrize("side", [16, 15, 6])
def test_every_form_of_shrink_is_the_strided_convolution(form, side):
    assert_same(conv.shrink, random(2, side, side, 3), random(4, 4, 3, 5, seed=1) / 7, form)


@pytest.mark.parametrize("form", ["patches", "shifts", "auto"])
@pytest.mark.parametrize("side", [1, 5])
@pytest.mark.parametrize("kernel", [5, 6])
def test_every_form_of_grow_is_the_transposed_convolution(form, side, kernel):
    assert_same(conv.grow, random(2, side, side, 3), random(kernel, kernel, 3, 4, seed=1) / 7, form)


def test_plain_shrink_against_loops():
    images, weight = random(1, 7, 7, 2), random(4, 4, 2, 3, seed=1)
    made = conv.shrink(images, weight, "plain")
    assert made.shape[1] == conv.shrunk(7)
    for y in range(2):
        for x in range(2):
            window = images[0, 2 * y : 2 * y + 4, 2 * x : 2 * x + 4]
            expected = np.einsum("yxi,yxio->o", window, weight)
            np.testing.assert_allclose(made[0, y, x], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [5, 6])
def test_plain_grow_against_loops(kernel):
    images, weight = random(1, 3, 3, 2), random(kernel, kernel, 2, 3, seed=1)
    made = conv.grow(images, weight, "plain")
    side = conv.grown(3, kernel)
    expected = np.zeros((side, side, 3))
    for y in range(3):
        for x in range(3):
            given = np.einsum("i,yxio->yxo", images[0, y, x], weight)
            expected[2 * y : 2 * y + kernel, 2 * x : 2 * x + kernel] += given
    np.testing.assert_allclose(made[0], expected, rtol=1e-4, atol=1e-4)


def test_blocks_and_back():
    images = random(2, 3, 8, 6, 3)
    blocks = conv.image_blocks(images)
    assert blocks.shape == (2, 3, 4, 3, 12)
    np.testing.assert_array_equal(blocks[0, 0, 1, 2].reshape(2, 2, 3), images[0, 0, 2:4, 4:6])
    np.testing.assert_array_equal(conv.images_of_blocks(blocks), images)
    larger = conv.image_blocks(random(2, 8, 8, 3), 4)
    assert larger.shape == (2, 2, 2, 48)
    np.testing.assert_array_equal(conv.images_of_blocks(larger, 4), random(2, 8, 8, 3))


def test_grow_in_blocks_is_grow():
    images, weight = random(2, 5, 5, 3), random(6, 6, 3, 4, seed=1)
    plain, blocks = conv.grow(images, weight, "plain"), conv.grow_blocks(images, weight)
    np.testing.assert_allclose(conv.images_of_blocks(blocks), plain, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", ["auto", "patches", "shifts"])
def test_grow_from_blocks_to_double_blocks_is_grow(form):
    def from_blocks(images, weight, form):
        if form == "plain":
            return conv.grow(images, weight, form)
        return conv.images_of_blocks(conv.grow_double_blocks(conv.image_blocks(images), weight, form), 4)

    assert_same(from_blocks, random(2, 6, 6, 3), random(6, 6, 3, 4, seed=1) / 7, form)


@pytest.mark.parametrize("layer", [conv.shrink, conv.grow])
def test_an_unknown_form_is_refused(layer):
    with pytest.raises(ValueError, match="choose auto"):
        layer(random(1, 8, 8, 1), random(4, 4, 1, 1), "fourier")


def test_the_images_precision_is_kept():
    half = jnp.ones((1, 8, 8, 2), jnp.bfloat16)
    for form in ("plain", "conv", "patches"):
        made = jax.eval_shape(partial(conv.shrink, form=form), half, jnp.ones((4, 4, 2, 3)))
        assert made.dtype == half.dtype
    for form in ("plain", "patches", "shifts"):
        made = jax.eval_shape(partial(conv.grow, form=form), half, jnp.ones((6, 6, 2, 3)))
        assert made.dtype == half.dtype
