"""The networks have the paper's shapes, and compute what their docstrings say in the forms for every device."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import stats

from plan2explore.agent.fast import conv, linear
from plan2explore.agent.fast.conv import LAYOUT
from plan2explore.agent.networks import MLP, BlockGRUCell, GRUCell, ImageDecoder, ImageEncoder, Linear, RMSNorm

KEY = jax.random.key(0)


def random(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def test_glorot_limits_and_zero_biases():
    layer = Linear(300, 100, KEY)
    limit = np.sqrt(6 / 400)
    assert 0.99 * limit < jnp.abs(layer.weight).max() <= limit
    assert abs(float(layer.weight.mean())) < 0.01 * limit
    np.testing.assert_array_equal(layer.bias, 0)
    image = ImageEncoder(32, 8, KEY).layers[1]
    limit = np.sqrt(6 / (16 * (8 + 16)))
    assert 0.99 * limit < jnp.abs(image.weight).max() <= limit


@pytest.mark.parametrize("kind", ["elu", "relu", "norm"])
def test_mlp_against_its_definition(kind):
    network = MLP(3, 2, 7, 2, key=KEY, relu=kind == "relu", norm=kind == "norm")
    network = jax.tree.map(lambda leaf: leaf + 0.1, network)  # so that biases and scales count
    x = random(4, 5, 3)
    hidden = np.asarray(x, np.float64)
    for index, layer in enumerate(network.layers[:-1]):
        hidden = hidden @ np.asarray(layer.weight) + np.asarray(layer.bias)
        if kind == "norm":  # RMSNorm, then SiLU
            hidden = hidden / np.sqrt(np.square(hidden).mean(-1, keepdims=True) + 1e-4) * network.norms[index].scale
            hidden = hidden / (1 + np.exp(-hidden))
        else:
            hidden = np.where(hidden > 0, hidden, np.expm1(hidden) if kind == "elu" else 0)
    expected = hidden @ np.asarray(network.layers[-1].weight) + np.asarray(network.layers[-1].bias)
    np.testing.assert_allclose(network(x), expected, rtol=1e-5, atol=1e-5)


def test_a_last_layer_may_start_small():
    plain, small = (MLP(3, 2, 7, 1, key=KEY, out_scale=scale) for scale in (1.0, 0.01))
    np.testing.assert_allclose(small(random(4, 3)), 0.01 * plain(random(4, 3)), rtol=1e-4, atol=1e-6)


def test_rms_norm_is_computed_in_float32():
    x = (1e4 * random(3, 64)).astype(jnp.bfloat16)
    normed = RMSNorm(64)(x)
    assert normed.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.square(normed.astype(jnp.float32)).mean(-1), 1, rtol=0.02)


def test_gru_against_its_equations():
    cell = jax.tree.map(lambda leaf: leaf + 0.05, GRUCell(3, 4, KEY))
    x, h = np.asarray(random(5, 3), np.float64), np.asarray(random(5, 4, seed=1), np.float64)
    parts = cell.input_weight, cell.state_weight, cell.bias, cell.reset_bias
    w, u, b, d = (np.asarray(leaf, np.float64) for leaf in parts)

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    reset = sigmoid(x @ w[:, :4] + h @ u[:, :4] + b[:4])
    update = sigmoid(x @ w[:, 4:8] + h @ u[:, 4:8] + b[4:8])
    candidate = np.tanh(x @ w[:, 8:] + b[8:] + reset * (h @ u[:, 8:] + d))
    expected = update * h + (1 - update) * candidate
    np.testing.assert_allclose(cell(jnp.float32(x), jnp.float32(h)), expected, atol=1e-5)


def test_gru_starts_with_an_orthogonal_recurrence():
    weight = GRUCell(3, 4, KEY).state_weight
    np.testing.assert_allclose(weight @ weight.T, np.eye(4), atol=1e-5)


def test_block_gru_against_its_equations():
    cell = jax.tree.map(lambda leaf: leaf + 0.05, BlockGRUCell(deter=6, stoch=3, action=2, width=4, blocks=2, key=KEY))
    deter, stoch, action = (np.asarray(random(5, size, seed=size), np.float64) for size in (6, 3, 2))

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    def activate(a, norm):
        a = a / np.sqrt(np.square(a).mean(-1, keepdims=True) + 1e-4) * np.asarray(norm.scale)
        return a * sigmoid(a)

    def affine(layer, a):
        return a @ np.asarray(layer.weight) + np.asarray(layer.bias)

    inputs = zip(cell.inputs, cell.input_norms, (deter, stoch, action), strict=True)
    hidden = affine(cell.shared, np.concatenate([activate(affine(layer, x), norm) for layer, norm, x in inputs], -1))
    for block in (0, 1):
        part = slice(3 * block, 3 * block + 3)
        hidden[:, part] += deter[:, part] @ cell.hidden.weight[block] + cell.hidden.bias[block]
    hidden, expected = activate(hidden, cell.hidden_norm), np.zeros((5, 6))
    for block in (0, 1):
        part = slice(3 * block, 3 * block + 3)
        gates = hidden[:, part] @ np.asarray(cell.gates.weight[block]) + np.asarray(cell.gates.bias[block])
        reset, candidate, update = np.split(gates, 3, -1)
        update = sigmoid(update - 1)
        expected[:, part] = update * np.tanh(sigmoid(reset) * candidate) + (1 - update) * deter[:, part]
    got = cell(*(jnp.float32(x) for x in (deter, stoch, action)))
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_blocks_that_do_not_divide_the_state_are_refused():
    with pytest.raises(ValueError, match="3 blocks do not divide a recurrent state of 8"):
        BlockGRUCell(8, 4, 2, 4, 3, KEY)


def test_the_papers_encoder_and_decoder():
    encoder = eqx.filter_eval_shape(ImageEncoder, 64, 32, KEY)
    decoder = eqx.filter_eval_shape(ImageDecoder, 460, 64, 32, KEY)
    assert encoder.features == 1024
    assert [layer.weight.shape for layer in encoder.layers] == [
        (4, 4, 3, 32), (4, 4, 32, 64), (4, 4, 64, 128), (4, 4, 128, 256)
    ]  # fmt: skip
    assert decoder.linear.weight.shape == (460, 1024)
    assert [layer.weight.shape for layer in decoder.layers] == [
        (5, 5, 1024, 128), (5, 5, 128, 64), (6, 6, 64, 32), (6, 6, 32, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_shapes_of_every_size(size):
    def shapes(images, features):
        encoder, decoder = ImageEncoder(size, 2, KEY), ImageDecoder(6, size, 2, KEY)
        return encoder(images), decoder(features)

    encoded, decoded = jax.eval_shape(shapes, jnp.zeros((2, 3, size, size, 3)), jnp.zeros((2, 3, 6)))
    assert encoded.shape == (2, 3, 2 * 2 * size // 4)  # the last of its layers has size / 4 channels
    assert decoded.shape == (2, 3, size, size, 3)


def test_other_sizes_are_refused_with_the_allowed_ones():
    for make in (ImageEncoder, lambda size, depth, key: ImageDecoder(5, size, depth, key)):
        with pytest.raises(ValueError, match=r"84x84.*16, 32, 64, 128"):
            make(84, 2, KEY)


def gradients(loss, network, *data):
    return jax.tree.leaves(eqx.filter_jit(eqx.filter_value_and_grad(loss))(network, *data))


def assert_same(expected, got):
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def plain_encoder(encoder, images):
    x = images
    for layer in encoder.layers:
        x = jax.nn.relu(lax.conv_general_dilated(x, layer.weight, (2, 2), "VALID", dimension_numbers=LAYOUT) + layer.bias)
    return x.reshape(len(images), -1)


def plain_decoder(decoder, features):
    x = decoder.linear(features.reshape(-1, features.shape[-1]))[:, None, None]
    for layer in decoder.layers:
        x = jax.nn.relu(x) if layer is not decoder.layers[0] else x
        weight = layer.weight[::-1, ::-1]
        x = lax.conv_transpose(x, weight, (2, 2), "VALID", dimension_numbers=LAYOUT) + layer.bias
    return x.reshape(*features.shape[:-1], *x.shape[1:])


@pytest.mark.parametrize("gpu", [True, False])
def test_the_encoder_is_a_chain_of_plain_convolutions(gpu, monkeypatch):
    monkeypatch.setattr(linear, "on_gpu", lambda: gpu)
    encoder, images = ImageEncoder(32, 4, KEY), random(2, 32, 32, 3)
    expected = gradients(lambda encoder, images: jnp.mean(jnp.sin(plain_encoder(encoder, images))), encoder, images)
    assert_same(expected, gradients(lambda encoder, images: jnp.mean(jnp.sin(encoder(images))), encoder, images))


@pytest.mark.parametrize("device", ["cpu", "gpu", "gpu, padded"])
def test_the_decoder_is_a_chain_of_plain_convolutions_in_image_and_loss(device, monkeypatch):
    monkeypatch.setattr(linear, "on_gpu", lambda: device != "cpu")
    if device == "gpu, padded":
        monkeypatch.setattr(conv, "MANY_IMAGES", 6)
        monkeypatch.setattr(conv, "ROUND_NUMBER", 4)

    def plain_loss(decoder, features, images):
        return 0.5 * jnp.mean(jnp.square(plain_decoder(decoder, features) - images).sum((-1, -2, -3))) / images[0, 0].size

    def loss(decoder, features, images):
        return jnp.mean(decoder.gaussian_nll(features, images)) / images[0, 0].size

    features, images = random(2, 3, 5), random(2, 3, 32, 32, 3, seed=1)
    decoder = jax.tree.map(lambda leaf: leaf + 0.01, ImageDecoder(5, 32, 4, KEY))
    assert_same([plain_decoder(decoder, features)], [decoder(features)])
    assert_same(gradients(plain_loss, decoder, features, images), gradients(loss, decoder, features, images))


def test_the_decoders_likelihood_against_scipy():
    decoder, features, images = ImageDecoder(5, 16, 2, KEY), random(2, 3, 5), random(2, 3, 16, 16, 3, seed=1)
    constant = 16 * 16 * 3 * 0.5 * np.log(2 * np.pi)
    expected = -stats.norm.logpdf(images, loc=decoder(features)).sum((-1, -2, -3)) - constant
    np.testing.assert_allclose(decoder.gaussian_nll(features, images), expected, rtol=1e-4)


@pytest.mark.parametrize("cast", ["input", "weights"])
def test_layers_compute_in_the_narrower_precision(cast):
    def ones(*shape):
        return jnp.ones(shape, jnp.bfloat16 if cast == "input" else jnp.float32)

    def results():
        decoder = ImageDecoder(3, 16, 2, KEY)
        networks = MLP(3, 2, 4, 1, key=KEY, norm=True), GRUCell(3, 4, KEY), ImageEncoder(16, 2, KEY), decoder
        if cast == "weights":
            networks = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), networks)
        mlp, cell, encoder, decoder = networks
        gru = cell(ones(2, 3), ones(2, 4))
        computed = mlp(ones(2, 3)), gru, encoder(ones(2, 16, 16, 3)), decoder(ones(2, 3))
        return computed, decoder.gaussian_nll(ones(2, 3), ones(2, 16, 16, 3))

    computed, loss = jax.eval_shape(results)
    assert [result.dtype for result in computed] == [jnp.bfloat16] * 4
    assert loss.dtype == jnp.float32
