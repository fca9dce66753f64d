"""Plain layers: dense, recurrent and image networks.

Parameters are made as float32. A layer computes in the narrower precision of its input and its weights, so that a caller
gets bfloat16 by casting either; the last layer of a head computes in float32. Weights start as Glorot's uniform, a recurrent
cell's products with its state as orthogonal ones, and biases as zero.
"""

import math
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from plan2explore.agent.fast.activations import elu, relu
from plan2explore.agent.fast.conv import (
    conv,
    conv_transpose,
    conv_transpose_blocks,
    conv_transpose_double_blocks,
    image_blocks,
    images_of_blocks,
    pad_images,
)
from plan2explore.agent.fast.linear import add_bias, affine, with_padded_rows

IMAGE_SIZES = (16, 32, 64, 128)


def glorot(key: Key[Array, ""], *shape: int) -> Float[Array, "..."]:
    """Glorot's uniform start; all axes but the last two are a convolution's window."""
    window = math.prod(shape[:-2])
    limit = math.sqrt(6 / (window * (shape[-2] + shape[-1])))
    # Drawn flat: a draw with several axes takes several times longer to compile.
    return jax.random.uniform(key, (math.prod(shape),), minval=-limit, maxval=limit).reshape(shape)


def narrower(x: Array, weight: Array) -> jnp.dtype:
    """The precision of whichever has the fewer bits."""
    return min(x.dtype, weight.dtype, key=lambda dtype: dtype.itemsize)


class Linear(eqx.Module):
    """An affine map of the last axis; a head's last layer is computed in float32."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]
    float32: bool = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, key: Key[Array, ""], float32: bool = False):
        self.weight = glorot(key, inputs, outputs)
        self.bias = jnp.zeros(outputs)
        self.float32 = float32

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        # In bfloat16, values near 2,700 would be multiples of 16.
        dtype = jnp.dtype(jnp.float32) if self.float32 else narrower(x, self.weight)
        return affine(x.astype(dtype), self.weight.astype(dtype), self.bias.astype(dtype))


class RMSNorm(eqx.Module):
    """Scales each vector to a root mean square of 1, then by learned factors; computed in float32."""

    scale: Float[Array, " size"]

    def __init__(self, size: int):
        self.scale = jnp.ones(size)

    def __call__(self, x: Float[Array, "*batch size"]) -> Float[Array, "*batch size"]:
        wide = x.astype(jnp.float32)
        normed = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-4)
        return (normed * self.scale.astype(jnp.float32)).astype(x.dtype)


class MLP(eqx.Module):
    """`depth` hidden layers of `width` units and an affine output layer.

    Hidden layers have ELU (or ReLU); with `norm`, RMSNorm and SiLU.
    """

    layers: tuple[Linear, ...]
    norms: tuple[RMSNorm, ...]
    relu: bool = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int,
        depth: int,
        *,
        key: Key[Array, ""],
        norm: bool = False,
        relu: bool = False,
        head: bool = False,
        out_scale: float = 1.0,
    ):
        sizes = [inputs, *[width] * depth, outputs]
        keys = jax.random.split(key, depth + 1)
        layers = [Linear(*pair, one) for pair, one in zip(pairwise(sizes[:-1]), keys[:-1], strict=True)]
        layers.append(Linear(sizes[-2], outputs, keys[-1], float32=head))
        if out_scale != 1.0:
            layers[-1] = eqx.tree_at(lambda last: last.weight, layers[-1], out_scale * layers[-1].weight)
        self.layers = tuple(layers)
        self.norms = tuple(RMSNorm(width) for _ in range(depth)) if norm else ()
        self.relu = relu

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return with_padded_rows(lambda rows: self.layers[-1](self.hidden(rows)), x)

    def hidden(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch width"]:
        """The output of the last hidden layer."""
        for index, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            if self.norms:
                x = jax.nn.silu(self.norms[index](x))
            else:
                x = relu(x) if self.relu else elu(x)
        return x


class GRUCell(eqx.Module):
    """A gated recurrent unit with the reset gate applied *after* the recurrent product (as Keras and cuDNN).

    With input x and state h, and columns of the weights in the order reset, update, candidate:
    r = sigmoid(x W_r + h U_r + b_r), z = sigmoid(x W_z + h U_z + b_z),
    c = tanh(x W_c + b_c + r (h U_c + d)), and the next state is z h + (1 - z) c.
    Resetting after the product lets one product serve all three gates.
    """

    input_weight: Float[Array, "inputs three_width"]
    state_weight: Float[Array, "width three_width"]
    bias: Float[Array, " three_width"]
    reset_bias: Float[Array, " width"]

    def __init__(self, inputs: int, width: int, key: Key[Array, ""]):
        input_key, state_key = jax.random.split(key)
        self.input_weight = glorot(input_key, inputs, 3 * width)
        self.state_weight = jax.nn.initializers.orthogonal()(state_key, (width, 3 * width))
        self.bias = jnp.zeros(3 * width)
        self.reset_bias = jnp.zeros(width)

    def __call__(
        self, x: Float[Array, "*batch inputs"], state: Float[Array, "*batch width"]
    ) -> Float[Array, "*batch width"]:
        dtype = narrower(x, self.input_weight)
        state = state.astype(dtype)
        from_input = affine(x.astype(dtype), self.input_weight.astype(dtype), self.bias.astype(dtype))
        from_state = affine(state, self.state_weight.astype(dtype), self.state_bias.astype(dtype))
        return self.gate(from_input, from_state, state)

    @property
    def state_bias(self) -> Float[Array, " three_width"]:
        """What is added to the product with the state: only the candidate's share is a parameter."""
        return jnp.concatenate([jnp.zeros_like(self.bias, shape=2 * self.reset_bias.size), self.reset_bias])

    @staticmethod
    def gate(
        from_input: Float[Array, "*batch three_width"],
        from_state: Float[Array, "*batch three_width"],
        state: Float[Array, "*batch width"],
    ) -> Float[Array, "*batch width"]:
        """The next state, from the products with the input and with the state."""
        reset_x, update_x, candidate_x = jnp.split(from_input, 3, -1)
        reset_h, update_h, candidate_h = jnp.split(from_state, 3, -1)
        reset = jax.nn.sigmoid(reset_x + reset_h)
        update = jax.nn.sigmoid(update_x + update_h)
        candidate = jnp.tanh(candidate_x + reset * candidate_h)
        return update * state + (1 - update) * candidate


class BlockLinear(eqx.Module):
    """A block-diagonal affine map: each block of inputs makes its own block of outputs."""

    weight: Float[Array, "blocks inputs outputs"]
    bias: Float[Array, "blocks outputs"]

    def __init__(self, blocks: int, inputs: int, outputs: int, key: Key[Array, ""]):
        self.weight = jax.vmap(lambda one: glorot(one, inputs, outputs))(jax.random.split(key, blocks))
        self.bias = jnp.zeros((blocks, outputs))

    def __call__(self, x: Float[Array, "*batch blocks inputs"]) -> Float[Array, "*batch blocks outputs"]:
        dtype = narrower(x, self.weight)
        return add_bias(jnp.einsum("...bi,bio->...bo", x.astype(dtype), self.weight.astype(dtype)), self.bias)


class BlockGRUCell(eqx.Module):
    """DreamerV3's recurrent core: a GRU whose state mixes within blocks; dense layers carry what all blocks share."""

    inputs: tuple[Linear, ...]
    input_norms: tuple[RMSNorm, ...]
    shared: Linear
    hidden: BlockLinear
    hidden_norm: RMSNorm
    gates: BlockLinear

    def __init__(self, deter: int, stoch: int, action: int, width: int, blocks: int, key: Key[Array, ""]):
        if deter % blocks:
            raise ValueError(f"{blocks} blocks do not divide a recurrent state of {deter} units (model.deter).")
        keys, block = jax.random.split(key, 6), deter // blocks
        self.inputs = tuple(Linear(size, width, one) for size, one in zip((deter, stoch, action), keys[:3], strict=True))
        self.input_norms = tuple(RMSNorm(width) for _ in self.inputs)
        self.shared = Linear(3 * width, deter, keys[3])
        self.hidden = BlockLinear(blocks, block, block, keys[4])
        self.hidden_norm = RMSNorm(deter)
        self.gates = BlockLinear(blocks, block, 3 * block, keys[5])

    def __call__(
        self, deter: Float[Array, "*batch deter"], stoch: Float[Array, "*batch stoch"], action: Float[Array, "*batch action"]
    ) -> Float[Array, "*batch deter"]:
        layers = zip(self.inputs, self.input_norms, (deter, stoch, action), strict=True)
        shared = jnp.concatenate([jax.nn.silu(norm(layer(x))) for layer, norm, x in layers], -1)
        blocks = deter.reshape(*deter.shape[:-1], self.hidden.weight.shape[0], -1)
        hidden = self.shared(shared) + self.hidden(blocks).reshape(deter.shape)
        hidden = jax.nn.silu(self.hidden_norm(hidden)).reshape(blocks.shape)
        reset, candidate, update = jnp.split(self.gates(hidden).astype(jnp.float32), 3, -1)
        candidate = jnp.tanh(jax.nn.sigmoid(reset) * candidate)
        update = jax.nn.sigmoid(update - 1)
        return (update * candidate + (1 - update) * blocks).reshape(deter.shape).astype(deter.dtype)


class ImageLayer(eqx.Module):
    """The weight and bias of one convolution."""

    weight: Float[Array, "height width inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, kernel: int, inputs: int, outputs: int, key: Key[Array, ""]):
        self.weight = glorot(key, kernel, kernel, inputs, outputs)
        self.bias = jnp.zeros(outputs)


def image_layers(size: int) -> int:
    """How many layers lead from images of this size to 2x2 pixels, and from one pixel back to them."""
    if size not in IMAGE_SIZES:
        raise ValueError(
            f"Images of {size}x{size} pixels do not fit the encoder and decoder: choose a size of "
            f"{', '.join(map(str, IMAGE_SIZES))}."
        )
    return int(math.log2(size)) - 2


class ImageEncoder(eqx.Module):
    """Images to feature vectors: kernel 4, stride 2, no padding, ReLU; `depth` channels, then doubled.

    64x64 pixels give 31, 14, 6 and 2: with the paper's depth of 32, 2 x 2 x 256 = 1024 features.
    """

    layers: tuple[ImageLayer, ...]

    def __init__(self, size: int, depth: int, key: Key[Array, ""]):
        channels = [3, *[depth * 2**layer for layer in range(image_layers(size))]]
        keys = jax.random.split(key, len(channels) - 1)
        self.layers = tuple(ImageLayer(4, *pair, key) for pair, key in zip(pairwise(channels), keys, strict=True))

    @property
    def features(self) -> int:
        """Length of the feature vector."""
        return 2 * 2 * self.layers[-1].bias.size

    def __call__(self, images: Float[Array, "*batch size size 3"]) -> Float[Array, "*batch features"]:
        x = images.reshape(-1, *images.shape[-3:]).astype(narrower(images, self.layers[0].weight))
        for layer in self.layers:
            x = relu(add_bias(conv(x, layer.weight), layer.bias))
        return x.reshape(*images.shape[:-3], -1)


class ImageDecoder(eqx.Module):
    """Feature vectors to images: one pixel with as many channels as the encoder has features, then grown.

    With the paper's depth of 32, 1 x 1 x 1024 becomes 5, 13, 30 and 64 pixels of 128, 64, 32 and 3 channels
    by transposed convolutions with kernels of 5, 5, 6 and 6, stride 2, and ReLU between them.
    """

    linear: Linear
    layers: tuple[ImageLayer, ...]

    def __init__(self, inputs: int, size: int, depth: int, key: Key[Array, ""]):
        count = image_layers(size)
        kernels = [5] * (count - 2) + [6, 6]
        widest = 2 * 2 * depth * 2 ** (count - 1)
        channels = [widest, *[depth * 2**layer for layer in reversed(range(count - 1))], 3]
        linear_key, *keys = jax.random.split(key, count + 1)
        self.linear = Linear(inputs, widest, linear_key)
        self.layers = tuple(
            ImageLayer(kernel, *pair, key) for kernel, pair, key in zip(kernels, pairwise(channels), keys, strict=True)
        )

    def __call__(self, features: Float[Array, "*batch inputs"]) -> Float[Array, "*batch size size 3"]:
        made = images_of_blocks(self._blocks(features), 4)
        return made.reshape(*features.shape[:-1], *made.shape[1:])

    def gaussian_nll(
        self, features: Float[Array, "*batch inputs"], images: Float[Array, "*batch size size 3"]
    ) -> Float[Array, "*batch"]:
        """The images' negative log-likelihood under unit Gaussians, less its constant: half the squared error, summed."""
        # The image is never put together: the images are taken apart instead, without a backward pass.
        made, target = self._blocks(features), image_blocks(images, 4)
        miss = made.astype(jnp.float32) - target.astype(jnp.float32).reshape(made.shape)
        return 0.5 * jnp.sum(miss**2, axis=(1, 2, 3)).reshape(features.shape[:-1])

    def _blocks(self, features: Float[Array, "*batch inputs"]) -> Float[Array, "flat rows columns double_block"]:
        """The image as blocks of 4x4 pixels: the last two layers without moving a pixel to its place."""
        flat = features.reshape(-1, features.shape[-1])
        *others, penultimate, last = self.layers
        x = self.linear(pad_images(flat)).reshape(-1, 1, 1, self.layers[0].weight.shape[2])
        for layer in others:
            x = relu(add_bias(conv_transpose(x, layer.weight), layer.bias))
        x = relu(add_bias(conv_transpose_blocks(x, penultimate.weight), jnp.tile(penultimate.bias, 4)))
        x = add_bias(conv_transpose_double_blocks(x, last.weight), jnp.tile(last.bias, 16))
        return x[: flat.shape[0]]
