"""The two image layers of the world model, in forms that compilers make something of.

`conv` is the encoder's layer (kernel 4, stride 2, no padding) and `conv_transpose` the decoder's (transposed,
kernel 5 or 6, stride 2). Pictures are (batch, height, width, channels) and weights (height, width,
inputs, outputs). Compilers make little of the plain convolutions, which tests compare these with. The same sums are
reached by large products:

- `conv` takes 2x2 blocks of pixels as channels: a dense 2x2 convolution on GPUs; on CPUs its patches are written out
  for one matrix product.
- `conv_transpose` is a dense 3x3 convolution whose channels are 2x2 blocks of pixels. On GPUs: three horizontal shifts
  side by side, one product for the three vertical taps, and the sum of the three results, shifted. On CPUs: written-out
  patches again.

A kernel of 5 counts as one of 6 whose last row and column are zero.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Num

from plan2explore.agent.fast import linear
from plan2explore.agent.fast.linear import pad_to_multiple

LAYOUT = ("NHWC", "HWIO", "NHWC")
MANY_IMAGES, ROUND_NUMBER = 1024, 256


def image_blocks(images: Num[Array, "*batch height width pixel"], side: int = 2) -> Num[Array, "*batch rows columns block"]:
    """Makes each square block of pixels the channels of one: row in block, column in block, channel."""
    *batch, height, width, channels = images.shape
    split = images.reshape(*batch, height // side, side, width // side, side, channels)
    return jnp.swapaxes(split, -4, -3).reshape(*batch, height // side, width // side, side**2 * channels)


def images_of_blocks(
    blocks: Num[Array, "*batch rows columns block"], side: int = 2
) -> Num[Array, "*batch height width pixel"]:
    """The inverse of `image_blocks`."""
    *batch, rows, columns, channels = blocks.shape
    split = blocks.reshape(*batch, rows, columns, side, side, channels // side**2)
    return jnp.swapaxes(split, -4, -3).reshape(*batch, side * rows, side * columns, channels // side**2)


def pad_images(rows: Float[Array, "rows features"]) -> Float[Array, "_ features"]:
    """What many images are grown from, on a GPU filled up to a round number of them.

    The gradient of such a layer's weights is a sum over all pixels of all images. For another number of terms the
    compiler copies everything into a longer array first.
    """
    return pad_to_multiple(rows, 0, ROUND_NUMBER) if linear.on_gpu() and len(rows) >= MANY_IMAGES else rows


def conv(
    images: Float[Array, "batch height width inputs"], weight: Float[Array, "4 4 inputs outputs"]
) -> Float[Array, "batch shorter narrower outputs"]:
    """A convolution with kernel 4, stride 2 and no padding, computed in the images' precision."""
    weight = weight.astype(images.dtype)
    rows, columns = ((side - 4) // 2 + 1 for side in images.shape[1:3])
    images = images[:, : 2 * rows + 2, : 2 * columns + 2]
    blocks, kernel = image_blocks(images), _blocked_kernel(weight)
    if linear.on_gpu():
        # The first layer's blocks have 12 channels; the library would copy them into 16 for itself, twice.
        blocks, kernel = pad_to_multiple(blocks, -1), pad_to_multiple(kernel, -2)
        return lax.conv_general_dilated(blocks, kernel, (1, 1), "VALID", dimension_numbers=LAYOUT)
    shifted = [blocks[:, y : y + rows, x : x + columns] for y in (0, 1) for x in (0, 1)]
    return jnp.concatenate(shifted, -1) @ kernel.reshape(-1, weight.shape[-1])


def conv_transpose(
    images: Float[Array, "batch height width inputs"], weight: Float[Array, "k k inputs outputs"]
) -> Float[Array, "batch taller wider outputs"]:
    """A transposed convolution, kernel 5 or 6, stride 2: input i times weight k goes to output 2 i + k."""
    if images.shape[1:3] == (1, 1):
        return _conv_transpose_pixel(images, weight.astype(images.dtype))
    height, width = (2 * (side - 1) + weight.shape[0] for side in images.shape[1:3])
    return images_of_blocks(conv_transpose_blocks(images, weight))[:, :height, :width]


def conv_transpose_blocks(
    images: Float[Array, "batch height width inputs"], weight: Float[Array, "k k inputs outputs"]
) -> Float[Array, "batch rows columns block"]:
    """What `conv_transpose` makes, as `image_blocks`: two more rows and columns of blocks than there were pixels."""
    return _correlate(images, _subpixel_kernel(weight.astype(images.dtype)))


def conv_transpose_double_blocks(
    blocks: Float[Array, "batch rows columns block"], weight: Float[Array, "6 6 inputs outputs"]
) -> Float[Array, "batch taller wider double_block"]:
    """What `conv_transpose` makes of pixels that come as `image_blocks`, as blocks of 4x4 pixels.

    After `conv_transpose_blocks` this is two layers in which no pixel is ever moved to its place.
    """
    return _correlate(blocks, _double_block_kernel(weight.astype(blocks.dtype)))


def _correlate(
    images: Float[Array, "batch height width inputs"], kernel: Float[Array, "k k inputs outputs"]
) -> Float[Array, "batch taller wider outputs"]:
    """A dense convolution that adds k - 1 rows and columns: input i times kernel k goes to output i + k."""
    _, height, width, inputs = images.shape
    taps, outputs = kernel.shape[0], kernel.shape[-1]
    more = taps - 1
    if not linear.on_gpu():
        padded = jnp.pad(images, ((0, 0), (more, more), (more, more), (0, 0)))
        corners = [(more - y, more - x) for y in range(taps) for x in range(taps)]
        shifted = [padded[:, y : y + more + height, x : x + more + width] for y, x in corners]
        return jnp.concatenate(shifted, -1) @ kernel.reshape(-1, outputs)
    shifted = [jnp.pad(images, ((0, 0), (0, 0), (x, more - x), (0, 0))) for x in range(taps)]
    stacked = kernel.transpose(1, 2, 0, 3).reshape(taps * inputs, taps * outputs)
    # Barriers, forward and backward: what is multiplied is put together once, not for each product again.
    product = lax.optimization_barrier(lax.optimization_barrier(jnp.concatenate(shifted, -1)) @ stacked)
    rows = jnp.split(product, taps, -1)
    # What each row of pixels gives to the rows that it touches.
    first, *rest = (jnp.pad(row, ((0, 0), (y, more - y), (0, 0), (0, 0))) for y, row in enumerate(rows))
    return sum(rest, first)


def _conv_transpose_pixel(
    images: Float[Array, "batch 1 1 inputs"], weight: Float[Array, "k k inputs outputs"]
) -> Float[Array, "batch k k outputs"]:
    """A single pixel grows by one plain product."""
    kernel, _, inputs, outputs = weight.shape
    product = images[:, 0, 0] @ weight.transpose(2, 0, 1, 3).reshape(inputs, -1)
    return product.reshape(-1, kernel, kernel, outputs)


def _blocked_kernel(weight: Float[Array, "4 4 inputs outputs"]) -> Float[Array, "2 2 four_inputs outputs"]:
    """The 2x2 kernel that does to blocks of pixels what the 4x4 kernel does to pixels."""
    _, _, inputs, outputs = weight.shape
    return weight.reshape(2, 2, 2, 2, inputs, outputs).swapaxes(1, 2).reshape(2, 2, 4 * inputs, outputs)


def _subpixel_kernel(weight: Float[Array, "k k inputs outputs"]) -> Float[Array, "3 3 inputs block"]:
    """The 3x3 kernel whose outputs are the blocks of pixels that the transposed convolution makes."""
    weight = _even(weight)
    _, _, inputs, outputs = weight.shape
    taps = weight.reshape(3, 2, 3, 2, inputs, outputs)
    return taps.transpose(0, 2, 4, 1, 3, 5).reshape(3, 3, inputs, 4 * outputs)


def _double_block_kernel(
    weight: Float[Array, "6 6 inputs outputs"],
) -> Float[Array, "2 2 block double_block"]:
    """The 2x2 kernel from blocks of 2x2 pixels to the blocks of 4x4 pixels that they touch."""
    _, _, inputs, outputs = weight.shape
    places = [(2 * pixel, 2 - 2 * pixel) for pixel in (0, 1)]
    placed = jnp.stack([jnp.pad(weight, (y, x, (0, 0), (0, 0))) for y in places for x in places])
    split = placed.reshape(2, 2, 2, 4, 2, 4, inputs, outputs)
    return split.transpose(2, 4, 0, 1, 6, 3, 5, 7).reshape(2, 2, 4 * inputs, 16 * outputs)


def _even(weight: Float[Array, "k k inputs outputs"]) -> Float[Array, "6 6 inputs outputs"]:
    missing = 6 - weight.shape[0]
    return jnp.pad(weight, ((0, missing), (0, missing), (0, 0), (0, 0))) if missing else weight
