"""Both forms of an image layer agree with the plain convolution, values and gradients, and that with loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from plan2explore.agent.fast import conv, linear

LAYOUT = conv.LAYOUT


@pytest.fixture(params=["gpu", "cpu"], autouse=True)
def device(request, monkeypatch):
    """Every test sees both forms."""
    monkeypatch.setattr(linear, "on_gpu", lambda: request.param == "gpu")


def plain_conv(images, weight):
    return lax.conv_general_dilated(images, weight, (2, 2), "VALID", dimension_numbers=LAYOUT)


def plain_conv_transpose(images, weight):
    return lax.conv_transpose(images, weight[::-1, ::-1], (2, 2), "VALID", dimension_numbers=LAYOUT)


def random(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def value_and_gradients(layer, images, weight):
    def loss(images, weight):
        made = layer(images, weight)
        return jnp.mean(made * jnp.cos(jnp.arange(made.size)).reshape(made.shape)), made

    (_, made), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(images, weight)
    return made, *gradients


def assert_same(plain, layer, images, weight):
    both = (value_and_gradients(each, images, weight) for each in (plain, layer))
    for expected, got in zip(*both, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", [16, 15, 6])
def test_conv_is_the_strided_convolution(side):
    assert_same(plain_conv, conv.conv, random(2, side, side, 3), random(4, 4, 3, 5, seed=1) / 7)


@pytest.mark.parametrize("side", [1, 5])
@pytest.mark.parametrize("kernel", [5, 6])
def test_conv_transpose_is_the_transposed_convolution(side, kernel):
    images, weight = random(2, side, side, 3), random(kernel, kernel, 3, 4, seed=1) / 7
    assert_same(plain_conv_transpose, conv.conv_transpose, images, weight)


def test_conv_against_loops():
    images, weight = random(1, 7, 7, 2), random(4, 4, 2, 3, seed=1)
    made = conv.conv(images, weight)
    assert made.shape == (1, 2, 2, 3)
    for y in range(2):
        for x in range(2):
            window = images[0, 2 * y : 2 * y + 4, 2 * x : 2 * x + 4]
            expected = np.einsum("yxi,yxio->o", window, weight)
            np.testing.assert_allclose(made[0, y, x], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kernel", "side"), [(5, 9), (6, 10)])
def test_conv_transpose_against_loops(kernel, side):
    images, weight = random(1, 3, 3, 2), random(kernel, kernel, 2, 3, seed=1)
    made = conv.conv_transpose(images, weight)
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


def test_conv_transpose_in_blocks_is_conv_transpose():
    images, weight = random(2, 5, 5, 3), random(6, 6, 3, 4, seed=1)
    plain, blocks = plain_conv_transpose(images, weight), conv.conv_transpose_blocks(images, weight)
    np.testing.assert_allclose(conv.images_of_blocks(blocks), plain, rtol=1e-5, atol=1e-4)


def test_conv_transpose_from_blocks_to_double_blocks_is_conv_transpose():
    def from_blocks(images, weight):
        return conv.images_of_blocks(conv.conv_transpose_double_blocks(conv.image_blocks(images), weight), 4)

    assert_same(plain_conv_transpose, from_blocks, random(2, 6, 6, 3), random(6, 6, 3, 4, seed=1) / 7)


def test_the_images_precision_is_kept():
    half = jnp.ones((1, 8, 8, 2), jnp.bfloat16)
    assert jax.eval_shape(conv.conv, half, jnp.ones((4, 4, 2, 3))).dtype == half.dtype
    assert jax.eval_shape(conv.conv_transpose, half, jnp.ones((6, 6, 2, 3))).dtype == half.dtype
