"""Times every form of every layer of the agent at the paper's sizes, forward and backward.

    python benchmarks/layers.py [--json PATH] [--only GROUP ...] [--budget SECONDS] [--quick]
    python benchmarks/layers.py --flags [--json PATH]

Each case trains itself: a compiled loop of many steps, in which a case's parameters and inputs move by a
tiny step along their gradients, so that nothing can be computed once for all steps. Times are the best of
three runs of the loop, per step. `--flags` times the whole update under several settings of the compiler
instead, each in a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from rich.console import Console
from rich.table import Table

from plan2explore.agent import convolutions as conv
from plan2explore.agent.networks import MLP, GRUCell, ImageDecoder, ImageEncoder, Linear

TINY_STEP = 1e-6


@dataclass(frozen=True)
class Sizes:
    """The paper's sizes."""

    images: int = 2500
    depth: int = 32
    batch: int = 50
    length: int = 50
    deter: int = 400
    stoch: int = 60
    hidden: int = 400
    action: int = 6
    embedding: int = 1024
    horizon: int = 15
    behaviors: int = 2
    members: int = 5
    width: int = 1024
    product: int = 8192
    repeats: int = 10

    @property
    def dtype(self) -> Any:
        return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16


QUICK = Sizes(
    images=4, depth=2, batch=4, length=10, deter=8, stoch=4, hidden=8, action=2, embedding=8, horizon=5,
    width=8, product=64, repeats=2, )  # fmt: skip


@dataclass
class Result:
    """One line of the table."""

    group: str
    name: str
    ms: float | None = None
    compile_s: float | None = None
    temporary_mb: float | None = None
    error: str | None = None


Build = Callable[[], tuple[Callable[[Any], Any], Any]]
Cases = Iterator[tuple[str, Build]]


# --- Measuring ---


def root() -> jax.Array:
    """The key of all chance. A function, since making it takes hold of the device."""
    return jax.random.key(0)


def trained(loss: Callable[..., Any], *arguments: Any) -> tuple[Callable[[Any], Any], Any]:
    """A step that moves all arguments of a loss a little along their gradients, and where it starts."""

    def step(arguments: tuple) -> tuple:
        floats, rest = eqx.partition(arguments, eqx.is_inexact_array)
        gradients = jax.grad(lambda floats: loss(*eqx.combine(floats, rest)))(floats)
        moved = jax.tree.map(lambda x, g: x - (TINY_STEP * g).astype(x.dtype), floats, gradients)
        return eqx.combine(moved, jax.tree.map(partial(jnp.roll, shift=1, axis=0), rest))

    return step, arguments


def measure(build: Build, repeats: int) -> Result:
    """Compiles a loop of steps and times it."""
    step, start = build()
    dynamic, static = eqx.partition(start, eqx.is_array)

    def loop(dynamic: Any) -> Any:
        def body(carry: Any, _: None) -> tuple[Any, None]:
            return eqx.filter(step(eqx.combine(carry, static)), eqx.is_array), None

        return lax.scan(body, dynamic, None, length=repeats)[0]

    begin = time.perf_counter()
    compiled = jax.jit(loop).lower(dynamic).compile()
    result = Result("", "", compile_s=time.perf_counter() - begin)
    jax.block_until_ready(compiled(dynamic))
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(dynamic))
        times.append(time.perf_counter() - begin)
    memory = compiled.memory_analysis()
    result.temporary_mb = memory.temp_size_in_bytes / 1e6 if memory is not None else None
    result.ms = 1000 * min(times) / repeats
    return result


def normal(*shape: int, dtype: Any = jnp.float32, seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def mean(x: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(x.astype(jnp.float32)))


# --- Products: what the machine gives ---


def products(sizes: Sizes) -> Cases:
    shapes = {
        "large, square": (sizes.product, sizes.product, sizes.product),
        "members' hidden layers": (sizes.images * sizes.horizon, sizes.width, sizes.width),
        "actor's layer": (sizes.images * sizes.behaviors, sizes.hidden, sizes.hidden),
        "actor's layer, 512 wide": (sizes.images * sizes.behaviors, 512, 512),
        "gates": (sizes.images * sizes.behaviors, sizes.hidden, 3 * sizes.deter),
        "gates, 512 wide": (sizes.images * sizes.behaviors, 512, 1536),
        "gates of a batch": (sizes.batch, sizes.hidden, 3 * sizes.deter),
    }
    for name, (rows, inputs, outputs) in shapes.items():

        def build(rows: int = rows, inputs: int = inputs, outputs: int = outputs) -> Any:
            x, w = normal(rows, inputs, dtype=sizes.dtype), normal(inputs, outputs, dtype=sizes.dtype)
            return lambda carry: (carry[0], carry[1] + (carry[0] @ carry[1])[:1, :1] * 1e-9), (x, w)

        yield f"{name}: {rows} x {inputs} x {outputs}, one forward product", build


# --- Image layers ---


def encoder_layers(sizes: Sizes) -> Cases:
    side, inputs = 64, 3
    for layer in range(4):
        outputs = sizes.depth * 2**layer
        for form in ("plain", "conv", "patches", "band"):

            def build(form: Any = form, shape: tuple = (side, inputs, outputs)) -> Any:
                side, inputs, outputs = shape
                weight = normal(4, 4, inputs, outputs) / (4 * inputs)
                if inputs == 3:  # pictures have no gradient
                    pictures = jax.random.randint(root(), (sizes.images, side, side, 3), 0, 255, jnp.uint8)
                    return trained(
                        lambda w, x: mean(conv.shrink(centered(x, sizes), w, form)), weight, pictures
                    )
                x = normal(sizes.images, side, side, inputs, dtype=sizes.dtype)
                return trained(lambda w, x: mean(conv.shrink(x, w, form)), weight, x)

            yield f"layer {layer + 1}, {form}", build
        side, inputs = conv.shrunk(side), outputs


def centered(pictures: jax.Array, sizes: Sizes) -> jax.Array:
    return pictures.astype(sizes.dtype) / 255 - 0.5


def encoder_whole(sizes: Sizes) -> Cases:
    forms = {
        "all plain": ("plain",) * 4,
        "all conv": ("conv",) * 4,
        "all patches": ("patches",) * 4,
        "patches, then conv": ("patches", "conv", "conv", "conv"),
        "band, then conv": ("band", "conv", "conv", "conv"),
        "band, then patches": ("band", "patches", "patches", "patches"),
        "patches, conv, patches, patches": ("patches", "conv", "patches", "patches"),
    }
    for name, chosen in forms.items():

        def build(chosen: tuple = chosen) -> Any:
            pictures = jax.random.randint(root(), (sizes.images, 64, 64, 3), 0, 255, jnp.uint8)

            def loss(encoder: ImageEncoder, pictures: jax.Array) -> jax.Array:
                x = centered(pictures, sizes)
                for layer, form in zip(encoder.layers, chosen, strict=True):
                    x = jax.nn.relu(conv.shrink(x, layer.weight, form) + layer.bias.astype(x.dtype))
                return mean(x)

            return trained(loss, ImageEncoder(64, sizes.depth, root()), pictures)

        yield name, build


def grow_rows_of_inputs(x: jax.Array, weight: jax.Array) -> jax.Array:
    """The band with vertical taps side by side on the input: fewer, longer sums."""
    batch, height, width, inputs = x.shape
    wide, outputs = conv.grown(width, weight.shape[0]), weight.shape[-1]
    band = conv._band(conv._even(weight.astype(x.dtype))[:, : weight.shape[0]], width, wide)
    band = band.reshape(width * inputs, 3, -1).swapaxes(0, 1).reshape(3 * width * inputs, -1)
    rows = x.reshape(batch, height, width * inputs)
    taps = jnp.concatenate([jnp.pad(rows, ((0, 0), (y, 2 - y), (0, 0))) for y in range(3)], -1)
    made = (taps @ band).reshape(batch, 2 * height + 4, wide, outputs)
    return made[:, : conv.grown(height, weight.shape[0])]


def grow_scattered(x: jax.Array, weight: jax.Array) -> jax.Array:
    """Blocks from one product without shifts, then nine shifted sums."""
    batch, height, width, inputs = x.shape
    kernel = conv._subpixel_kernel(weight.astype(x.dtype))
    taps = (x @ kernel.transpose(2, 0, 1, 3).reshape(inputs, -1)).reshape(batch, height, width, 3, 3, -1)
    parts = [
        jnp.pad(taps[:, :, :, y, x], ((0, 0), (y, 2 - y), (x, 2 - x), (0, 0)))
        for y in range(3)
        for x in range(3)
    ]
    return sum(parts[1:], parts[0])


def grow_double_blocks(blocks: jax.Array, weight: jax.Array, form: Any) -> jax.Array:
    """From 2x2 blocks of pixels to 4x4 blocks; one form more than the package has."""
    if form != "scattered":
        return conv.grow_double_blocks(blocks, weight, form)
    kernel = conv._double_block_kernel(weight.astype(blocks.dtype))
    inputs, outputs = kernel.shape[2:]
    taps = blocks @ kernel.transpose(2, 0, 1, 3).reshape(inputs, -1)
    taps = taps.reshape(*blocks.shape[:3], 2, 2, outputs)
    ends = [(y, x) for y in (0, 1) for x in (0, 1)]
    parts = [jnp.pad(taps[:, :, :, y, x], ((0, 0), (y, 1 - y), (x, 1 - x), (0, 0))) for y, x in ends]
    return parts[0] + parts[1] + parts[2] + parts[3]


def decoder_layers(sizes: Sizes) -> Cases:
    whole = ("plain", "conv", "patches", "shifts", "band")
    forms: dict[str, Callable] = {form: partial(conv.grow, form=form) for form in whole}
    forms |= {
        f"{form}, in blocks": partial(conv.grow_blocks, form=form) for form in ("conv", "patches", "shifts")
    }
    forms |= {"band of inputs": grow_rows_of_inputs, "scattered, in blocks": grow_scattered}
    depth = sizes.depth
    layers = {4: (30, 6, depth, 3), 3: (13, 6, 2 * depth, depth), 2: (5, 5, 4 * depth, 2 * depth)}
    for number, shape in layers.items():
        for form, layer in forms.items():

            def build(layer: Any = layer, shape: tuple = shape) -> Any:
                side, kernel, inputs, outputs = shape
                x = normal(sizes.images, side, side, inputs, dtype=sizes.dtype)
                weight = normal(kernel, kernel, inputs, outputs) / (3 * inputs)
                return trained(lambda w, x: mean(layer(x, w)), weight, x)

            yield f"layer {number}, {form}", build
        if number == 4:
            yield from last_layer_of_blocks(sizes)


def last_layer_of_blocks(sizes: Sizes) -> Cases:
    for form in ("conv", "patches", "shifts", "scattered"):

        def build(form: str = form) -> Any:
            x = normal(sizes.images, 15, 15, 4 * sizes.depth, dtype=sizes.dtype)
            weight = normal(6, 6, sizes.depth, 3) / (3 * sizes.depth)
            return trained(lambda w, x: mean(grow_double_blocks(x, w, form)), weight, x)

        yield f"layer 4, from blocks to 4x4 blocks, {form}", build


def decode(
    decoder: ImageDecoder, features: jax.Array, pictures: jax.Array, sizes: Sizes, forms: tuple
) -> jax.Array:
    """The decoder's loss with a form for each of the layers 2, 3 and 4."""

    def ready(made: jax.Array, bias: jax.Array, pixels: int = 1) -> jax.Array:
        return jax.nn.relu(made + jnp.tile(bias, pixels).astype(made.dtype))

    first, second, third, last = decoder.layers
    x = decoder.linear(features)[:, None, None]
    x = ready(conv.grow(x, first.weight, "plain" if forms[0] == "plain" else "shifts"), first.bias)
    x = ready(conv.grow(x, second.weight, forms[0]), second.bias)
    target = centered(pictures, sizes)
    kind, _, form = forms[2].rpartition(" ")
    if kind == "double":
        x = ready(conv.grow_blocks(x, third.weight, forms[1]), third.bias, 4)
        made, target, pixels = grow_double_blocks(x, last.weight, form), conv.image_blocks(target, 4), 16
    else:
        x = ready(conv.grow(x, third.weight, forms[1]), third.bias)
        if kind == "blocks":
            made, target, pixels = conv.grow_blocks(x, last.weight, form), conv.image_blocks(target), 4
        else:
            made, pixels = conv.grow(x, last.weight, form), 1
    made = made + jnp.tile(last.bias, pixels).astype(made.dtype)
    return mean(made.astype(jnp.float32) - target.astype(jnp.float32))


def decoder_whole(sizes: Sizes) -> Cases:
    combinations = [
        ("conv", "conv", "double conv"),
        ("conv", "shifts", "double conv"),
        ("shifts", "shifts", "double conv"),
        ("patches", "patches", "double conv"),
        ("conv", "conv", "double patches"),
        ("conv", "conv", "double shifts"),
        ("conv", "conv", "double scattered"),
        ("shifts", "shifts", "double shifts"),
        ("conv", "conv", "blocks shifts"),
        ("shifts", "shifts", "blocks shifts"),
        ("conv", "conv", "band"),
        ("shifts", "shifts", "band"),
        ("conv", "band", "band"),
        ("plain", "plain", "plain"),
    ]
    for forms in combinations:

        def build(forms: tuple = forms) -> Any:
            features = normal(sizes.images, sizes.deter + sizes.stoch, dtype=sizes.dtype)
            pictures = jax.random.randint(root(), (sizes.images, 64, 64, 3), 0, 255, jnp.uint8)
            decoder = ImageDecoder(sizes.deter + sizes.stoch, 64, sizes.depth, root())
            return trained(lambda d, f, p: decode(d, f, p, sizes, forms), decoder, features, pictures)

        yield " + ".join(forms), build


# --- The latent dynamics ---


class Dynamics(eqx.Module):
    """The layers of the recurrent state-space model."""

    enter: Linear
    cell: GRUCell
    prior_hidden: Linear
    prior_out: Linear
    posterior_hidden: Linear
    posterior_out: Linear

    def __init__(self, sizes: Sizes):
        keys = jax.random.split(root(), 6)
        self.enter = Linear(sizes.stoch + sizes.action, sizes.hidden, keys[0])
        self.cell = GRUCell(sizes.hidden, sizes.deter, keys[1])
        self.prior_hidden = Linear(sizes.deter, sizes.hidden, keys[2])
        self.prior_out = Linear(sizes.hidden, 2 * sizes.stoch, keys[3])
        self.posterior_hidden = Linear(sizes.deter + sizes.embedding, sizes.hidden, keys[4])
        self.posterior_out = Linear(sizes.hidden, 2 * sizes.stoch, keys[5])


def cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


def gaussian(out: jax.Array) -> tuple[jax.Array, jax.Array]:
    location, raw = jnp.split(out.astype(jnp.float32), 2, -1)
    return location, jax.nn.softplus(raw) + 0.1


def divergence(posterior: tuple, prior: tuple) -> jax.Array:
    ratio, gap = posterior[1] / prior[1], (posterior[0] - prior[0]) / prior[1]
    return jnp.mean(jnp.sum(0.5 * (ratio**2 + gap**2 - 1) - jnp.log(ratio), -1))


def observe(
    dynamics: Dynamics, actions: jax.Array, embeddings: jax.Array, noise: jax.Array, unroll: int, hoist: bool
) -> Any:
    """Posterior states of sequences. Hoisted: the actions' and embeddings' shares come before the loop."""
    stoch, deter = noise.shape[-1], dynamics.cell.reset_bias.size
    dtype = embeddings.dtype
    enter_stoch, enter_action = jnp.split(dynamics.enter.weight, [stoch])
    hidden_deter, hidden_embedding = jnp.split(dynamics.posterior_hidden.weight, [deter])

    def step(state: Any, now: Any) -> Any:
        action, embedding, noise = now
        if not hoist:
            action = action @ enter_action + dynamics.enter.bias
            embedding = embedding @ hidden_embedding + dynamics.posterior_hidden.bias
        h = dynamics.cell(jax.nn.elu(state[1] @ enter_stoch + action), state[0])
        posterior = gaussian(dynamics.posterior_out(jax.nn.elu(h @ hidden_deter + embedding)))
        state = h, (posterior[0] + posterior[1] * noise).astype(dtype)
        return state, (state, posterior)

    if hoist:
        actions = actions @ enter_action + dynamics.enter.bias
        embeddings = embeddings @ hidden_embedding + dynamics.posterior_hidden.bias
    start = jnp.zeros((actions.shape[1], deter), dtype), jnp.zeros((actions.shape[1], stoch), dtype)
    return lax.scan(step, start, (actions, embeddings, noise), unroll=unroll)[1]


def observe_apart(
    dynamics: Dynamics, actions: jax.Array, embeddings: jax.Array, noise: jax.Array, unroll: int
) -> Any:
    """The same with weight gradients after the backward loop: one product per layer for all steps.

    Inside the loop weights are constants and each layer's result gets a nudge of zero. The gradient of
    the nudges is what the loop's backward pass computes; a layer's weight gradient is its inputs times
    that.
    """
    stoch, deter = noise.shape[-1], dynamics.cell.reset_bias.size
    dtype, batch = embeddings.dtype, actions.shape[1]
    enter_stoch, enter_action = jnp.split(dynamics.enter.weight, [stoch])
    hidden_deter, hidden_embedding = jnp.split(dynamics.posterior_hidden.weight, [deter])
    cell, out = dynamics.cell, dynamics.posterior_out
    weights = (enter_stoch, cell.input_weight, cell.state_weight, hidden_deter, out.weight)

    def loop(weights: tuple, nudges: tuple, reset_bias: jax.Array, shares: tuple) -> Any:
        enter, into, recurrent, hidden, last = weights

        def step(state: Any, now: Any) -> Any:
            (action, embedding, noise), nudge = now
            h, s = state
            x = jax.nn.elu(s @ enter + action + nudge[0])
            rx, zx, cx = jnp.split(x @ into + nudge[1], 3, -1)
            rh, zh, ch = jnp.split(h @ recurrent + nudge[2], 3, -1)
            update = jax.nn.sigmoid(zx + zh)
            candidate = jnp.tanh(cx + jax.nn.sigmoid(rx + rh) * (ch + reset_bias))
            new = update * h + (1 - update) * candidate
            y = jax.nn.elu(new @ hidden + embedding + nudge[3])
            posterior = gaussian(y @ last + nudge[4])
            state = new, (posterior[0] + posterior[1] * noise).astype(dtype)
            return state, ((state, posterior), (s, x, h, new, y))

        start = jnp.zeros((batch, deter), dtype), jnp.zeros((batch, stoch), dtype)
        return lax.scan(step, start, (shares, nudges), unroll=unroll)[1]

    @jax.custom_vjp
    def run(weights: tuple, biases: tuple, reset_bias: jax.Array, shares: tuple) -> Any:
        return forward(weights, biases, reset_bias, shares)[0]

    def forward(weights: tuple, biases: tuple, reset_bias: jax.Array, shares: tuple) -> Any:
        nudges = tuple(jnp.broadcast_to(bias, (actions.shape[0], batch, bias.size)) for bias in biases)
        result, pull, inputs = jax.vjp(partial(loop, weights), nudges, reset_bias, shares, has_aux=True)
        return result, (pull, inputs)

    def backward(saved: Any, cotangent: Any) -> Any:
        pull, inputs = saved
        nudges, reset_bias, shares = pull(cotangent)
        products = [jnp.einsum("tbi,tbo->io", x, g) for x, g in zip(inputs, nudges, strict=True)]
        return tuple(products), tuple(jnp.sum(g, (0, 1)) for g in nudges), reset_bias, shares

    run.defvjp(forward, backward)
    actions = actions @ enter_action + dynamics.enter.bias
    embeddings = embeddings @ hidden_embedding + dynamics.posterior_hidden.bias
    zeros = (jnp.zeros(enter_stoch.shape[1], dtype), cell.bias, jnp.zeros(cell.bias.size, dtype))
    biases = (*zeros, jnp.zeros(hidden_deter.shape[1], dtype), out.bias)
    return run(weights, biases, cell.reset_bias, (actions, embeddings, noise))


def rssm(sizes: Sizes) -> Cases:
    variants: dict[str, Callable] = {"nothing hoisted, unroll 1": partial(observe, unroll=1, hoist=False)}
    unrolls = (1, 5, 10, 25)
    variants |= {f"hoisted, unroll {n}": partial(observe, unroll=n, hoist=True) for n in unrolls}
    variants |= {f"weight gradients outside, unroll {n}": partial(observe_apart, unroll=n) for n in unrolls}
    for name, function in variants.items():

        def build(function: Any = function) -> Any:
            actions = normal(sizes.length, sizes.batch, sizes.action, dtype=sizes.dtype)
            embeddings = normal(sizes.length, sizes.batch, sizes.embedding, dtype=sizes.dtype)
            noise = normal(sizes.length, sizes.batch, sizes.stoch)

            def loss(dynamics: Dynamics, embeddings: jax.Array) -> jax.Array:
                dynamics = cast(dynamics, sizes.dtype)
                (h, s), posterior = function(dynamics, actions, embeddings, noise)
                prior = gaussian(dynamics.prior_out(jax.nn.elu(dynamics.prior_hidden(h))))
                return divergence(posterior, prior) + mean(s) + mean(h)

            return trained(loss, Dynamics(sizes), embeddings)

        yield name, build


# --- Imagination ---


def widened(sizes: Sizes) -> Sizes:
    return replace(sizes, deter=512, hidden=512, stoch=64)


def imagine_step(dynamics: Dynamics, joint: bool) -> Callable:
    """One imagined step; the gates by two products, or by one with zeros where a gate sees one side only."""
    cell = dynamics.cell
    width = cell.reset_bias.size

    def gates_jointly(x: jax.Array, h: jax.Array) -> jax.Array:
        zeros = jnp.zeros((width, width), x.dtype)
        unseen = jnp.zeros((cell.input_weight.shape[0], width), x.dtype)
        top = jnp.concatenate([cell.input_weight, unseen], 1)
        bottom = jnp.concatenate(
            [cell.state_weight[:, : 2 * width], zeros, cell.state_weight[:, 2 * width :]], 1
        )
        gates = jnp.concatenate([x, h], -1) @ jnp.concatenate([top, bottom])
        reset, update, cx, ch = jnp.split(gates + jnp.concatenate([cell.bias, cell.reset_bias]), 4, -1)
        update = jax.nn.sigmoid(update)
        return update * h + (1 - update) * jnp.tanh(cx + jax.nn.sigmoid(reset) * ch)

    def step(state: tuple, action: jax.Array, noise: jax.Array) -> tuple:
        x = jax.nn.elu(dynamics.enter(jnp.concatenate([state[1], action.astype(state[1].dtype)], -1)))
        h = gates_jointly(x, state[0]) if joint else cell(x, state[0])
        location, scale = gaussian(dynamics.prior_out(jax.nn.elu(dynamics.prior_hidden(h))))
        return h, (location + scale * noise).astype(h.dtype)

    return step


def act(actors: MLP, features: jax.Array, noise: jax.Array) -> jax.Array:
    """Samples of stacked actors: rows of behaviours."""
    out = jax.vmap(lambda actor, x: actor(x))(actors, features).astype(jnp.float32)
    location, raw = jnp.split(out, 2, -1)
    return jnp.tanh(5 * jnp.tanh(location / 5) + (jax.nn.softplus(raw + 5) + 1e-4) * noise)


def imagination(sizes: Sizes) -> Cases:
    def variant(
        mode: str, unroll: int, sizes: Sizes = sizes, joint: bool = False, remat: bool = False
    ) -> Build:
        def build() -> Any:
            rows = sizes.behaviors, sizes.images
            features = sizes.deter + sizes.stoch
            make = partial(MLP, features, 2 * sizes.action, sizes.hidden, 4)
            actors = eqx.filter_vmap(lambda key: make(key=key))(jax.random.split(root(), sizes.behaviors))
            start = (
                normal(*rows, sizes.deter, dtype=sizes.dtype),
                normal(*rows, sizes.stoch, dtype=sizes.dtype),
            )
            noise = normal(sizes.horizon, *rows, sizes.action), normal(sizes.horizon, *rows, sizes.stoch)
            dynamics = Dynamics(sizes)

            def returns(actors: MLP, nudges: jax.Array, start: tuple, dynamics: Dynamics) -> Any:
                step = imagine_step(cast(dynamics, sizes.dtype), joint)

                def body(state: tuple, now: tuple) -> Any:
                    (action_noise, state_noise), nudge = now
                    seen = lax.stop_gradient(jnp.concatenate(state, -1))
                    action = act(actors, seen, action_noise)
                    action = (lax.stop_gradient(action) if mode == "nudge" else action) + nudge
                    after = step(state, action, state_noise)
                    return after, (after, seen)

                body = jax.checkpoint(body, policy=jax.checkpoint_policies.dots_saveable) if remat else body
                (h, s), seen = lax.scan(body, start, (noise, nudges), unroll=unroll)[1]
                return mean(h) + mean(s), seen

            def loss(actors: MLP, start: tuple, dynamics: Dynamics) -> jax.Array:
                half = cast(actors, sizes.dtype)
                nudges = jnp.zeros_like(noise[0])
                if mode != "all":
                    dynamics, start = lax.stop_gradient((dynamics, start))
                if mode != "nudge":
                    return returns(half, nudges, start, dynamics)[0]
                (value, seen), pull = jax.value_and_grad(returns, 1, has_aux=True)(
                    lax.stop_gradient(half), nudges, start, dynamics
                )
                actions = jax.vmap(act, (None, 0, 0))(half, lax.stop_gradient(seen), noise[0])
                return value + jnp.sum(lax.stop_gradient(pull) * actions)

            return trained(loss, actors, start, dynamics)

        return build

    yield "all weights' gradients, unroll 1", variant("all", 1)
    yield "actors' gradients in the loop, unroll 1", variant("actor", 1)
    yield "actors' gradients in the loop, unroll 15", variant("actor", sizes.horizon)
    for unroll in (1, 3, 5, sizes.horizon):
        yield f"nudges, unroll {unroll}", variant("nudge", unroll)
    yield "nudges, unroll 5, joint gates", variant("nudge", 5, joint=True)
    yield "nudges, unroll 5, remat", variant("nudge", 5, remat=True)
    yield "nudges, unroll 5, 512 wide, 64 stochastic", variant("nudge", 5, sizes=widened(sizes))
    yield "nudges, unroll 15, joint gates", variant("nudge", sizes.horizon, joint=True)


# --- The ensemble ---


def members_of(sizes: Sizes) -> MLP:
    inputs = sizes.deter + sizes.action
    make = partial(MLP, inputs, sizes.embedding, sizes.width, 2, "relu")
    return eqx.filter_vmap(lambda key: make(key=key))(jax.random.split(root(), sizes.members))


def predict_stacked(members: MLP, x: jax.Array) -> jax.Array:
    return eqx.filter_vmap(lambda member: member(x))(members)


def predict_concatenated(members: MLP, x: jax.Array) -> jax.Array:
    """The first layer as one product: its input is the same for all members."""
    first, second, last = cast(members.layers, x.dtype)
    count, inputs, width = first.weight.shape
    joint = first.weight.transpose(1, 0, 2).reshape(inputs, count * width)
    h = jax.nn.relu(x @ joint + first.bias.reshape(-1)).reshape(x.shape[0], count, width)
    h = jax.nn.relu(jnp.einsum("nki,kio->nko", h, second.weight) + second.bias)
    return (jnp.einsum("nki,kio->nko", h, last.weight) + last.bias).swapaxes(0, 1)


def predict_one_by_one(members: MLP, x: jax.Array) -> jax.Array:
    count = members.layers[0].bias.shape[0]
    return jnp.stack([jax.tree.map(lambda leaf, k=k: leaf[k], members)(x) for k in range(count)])


def predict_split(members: MLP, x: jax.Array) -> jax.Array:
    """The first layer as one product, then a product for each member."""
    first, second, last = cast(members.layers, x.dtype)
    count, inputs, _ = first.weight.shape
    h = jax.nn.relu(x @ first.weight.transpose(1, 0, 2).reshape(inputs, -1) + first.bias.reshape(-1))
    outs = []
    for k, part in enumerate(jnp.split(h, count, -1)):
        y = jax.nn.relu(part @ second.weight[k] + second.bias[k])
        outs.append(y @ last.weight[k] + last.bias[k])
    return jnp.stack(outs)


def variance(predictions: jax.Array, dtype: Any) -> jax.Array:
    predictions = predictions.astype(dtype)
    center = predictions.mean(0)
    squares = jnp.square(predictions - center).astype(jnp.float32)
    return squares.sum(0).mean(-1) / (predictions.shape[0] - 1)


def variance_of_list(predictions: jax.Array) -> jax.Array:
    """Sum of squares less the square of the sum: one pass, but it cancels."""
    predictions = predictions.astype(jnp.float32)
    count = predictions.shape[0]
    return ((jnp.square(predictions).sum(0) - jnp.square(predictions.sum(0)) / count) / (count - 1)).mean(-1)


def in_chunks(function: Callable, x: jax.Array, count: int) -> jax.Array:
    chunks = x.reshape(count, -1, x.shape[-1])
    return lax.map(function, chunks).reshape(-1)


def with_gradient(function: Callable) -> Callable:
    """A function from states to a number each, with its gradient computed along with it.

    Each number depends on its own state only, so the gradient is known up to a factor before
    the backward pass comes, and no activations need to be kept for it.
    """

    @jax.custom_vjp
    def run(x: jax.Array) -> jax.Array:
        return function(x)

    def forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, pull = jax.vjp(function, x)
        return values, pull(jnp.ones_like(values))[0]

    run.defvjp(forward, lambda slopes, factor: ((factor[:, None] * slopes).astype(slopes.dtype),))
    return run


def disagreement(sizes: Sizes) -> Cases:
    states = sizes.images * sizes.horizon
    full = partial(variance, dtype=jnp.float32)
    ways: dict[str, Callable] = {
        "stacked": lambda m, x: full(predict_stacked(m, x)),
        "stacked, half variance": lambda m, x: variance(predict_stacked(m, x), sizes.dtype),
        "stacked, one-pass variance": lambda m, x: variance_of_list(predict_stacked(m, x)),
        "first layer concatenated": lambda m, x: full(predict_concatenated(m, x)),
        "first layer concatenated, then one by one": lambda m, x: full(predict_split(m, x)),
        "one by one": lambda m, x: full(predict_one_by_one(m, x)),
    }
    chunks = {"5 chunks": 5, "chunk per step": sizes.horizon}
    variants = dict(ways)
    for way in ("stacked", "first layer concatenated, then one by one"):
        for name, count in chunks.items():
            function = ways[way]
            variants[f"{way}, {name}"] = lambda m, x, f=function, n=count: in_chunks(partial(f, m), x, n)
            variants[f"{way}, {name}, gradient along"] = lambda m, x, f=function, n=count: in_chunks(
                with_gradient(partial(f, m)), x, n
            )
    for name, function in variants.items():

        def build(function: Any = function) -> Any:
            members = cast(members_of(sizes), sizes.dtype)
            x = normal(states, sizes.deter + sizes.action, dtype=sizes.dtype)

            def step(x: jax.Array) -> jax.Array:
                gradient = jax.grad(lambda x: 1e4 * function(members, x).mean())(x)
                return x - (TINY_STEP * gradient).astype(x.dtype)

            return step, x

        yield name, build


def ensemble_training(sizes: Sizes) -> Cases:
    steps = sizes.images
    for name, predict in {
        "stacked (vmap)": predict_stacked,
        "first layer concatenated": predict_concatenated,
        "one by one": predict_one_by_one,
    }.items():

        def build(predict: Any = predict) -> Any:
            x = normal(steps, sizes.deter + sizes.action, dtype=sizes.dtype)
            target = normal(steps, sizes.embedding, dtype=sizes.dtype)
            return trained(lambda m, x: mean(predict(cast(m, sizes.dtype), x) - target), members_of(sizes), x)

        yield name, build


# --- Heads over all imagined states, and the optimiser ---


def heads(sizes: Sizes) -> Cases:
    states = sizes.images * sizes.horizon
    features = sizes.deter + sizes.stoch
    for name, depth, outputs in (("actors", 4, 2 * sizes.action), ("critics", 3, 1)):
        for way in ("stacked (vmap)", "one by one"):

            def build(depth: int = depth, outputs: int = outputs, way: str = way) -> Any:
                make = partial(MLP, features, outputs, sizes.hidden, depth)
                networks = eqx.filter_vmap(lambda key: make(key=key))(
                    jax.random.split(root(), sizes.behaviors)
                )
                x = normal(sizes.behaviors, states, features, dtype=sizes.dtype)

                def loss(networks: MLP) -> jax.Array:
                    half = cast(networks, sizes.dtype)
                    if way == "one by one":
                        each = [jax.tree.map(lambda leaf, i=i: leaf[i], half) for i in range(sizes.behaviors)]
                        return sum((mean(one(x[i])) for i, one in enumerate(each)), jnp.zeros(()))
                    return mean(jax.vmap(lambda network, x: network(x))(half, x))

                return trained(loss, networks)

            yield f"{name} on {states} states each, with weight gradients, {way}", build


def optimiser(sizes: Sizes) -> Cases:
    def parameters() -> Any:
        features = sizes.deter + sizes.stoch
        return {
            "encoder": ImageEncoder(64, sizes.depth, root()),
            "decoder": ImageDecoder(features, 64, sizes.depth, root()),
            "dynamics": Dynamics(sizes),
            "members": members_of(sizes),
            "actors": [
                MLP(features, 2 * sizes.action, sizes.hidden, 4, key=root()) for _ in range(sizes.behaviors)
            ],
            "critics": [MLP(features, 1, sizes.hidden, 3, key=root()) for _ in range(sizes.behaviors)],
        }

    adam = optax.chain(optax.clip_by_global_norm(100.0), optax.adam(6e-4, eps=1e-4))

    def gradient_of(parameters: Any) -> Any:
        return jax.tree.map(lambda p: 0.9 * p, parameters)

    def per_leaf() -> Any:
        start = eqx.filter(parameters(), eqx.is_array)

        def step(carry: Any) -> Any:
            parameters, state = carry
            updates, state = adam.update(gradient_of(parameters), state, parameters)
            return optax.apply_updates(parameters, updates), state

        return step, (start, adam.init(start))

    def flat() -> Any:
        start = ravel_pytree(eqx.filter(parameters(), eqx.is_array))[0]

        def step(carry: Any) -> Any:
            row, state = carry
            updates, state = adam.update(0.9 * row, state, row)
            return row + updates, state

        return step, (start, adam.init(start))

    def ravelled() -> Any:
        """A flat vector whose gradient comes from leaves: read out, and concatenated back."""
        start, unravel = ravel_pytree(eqx.filter(parameters(), eqx.is_array))

        def step(carry: Any) -> Any:
            row, state = carry

            def loss(row: jax.Array) -> jax.Array:
                leaves = jax.tree.leaves(unravel(row))
                return sum((jnp.sum(jnp.square(jnp.sin(leaf))) for leaf in leaves), jnp.zeros(()))

            updates, state = adam.update(jax.grad(loss)(row), state, row)
            return row + updates, state

        return step, (start, adam.init(start))

    yield "leaf by leaf", per_leaf
    yield "one flat vector", flat
    yield "one flat vector, gradients of its pieces joined", ravelled


GROUPS: dict[str, Callable[[Sizes], Cases]] = {
    "products": products,
    "decoder": decoder_whole,
    "rssm": rssm,
    "imagination": imagination,
    "disagreement": disagreement,
    "encoder": encoder_whole,
    "optimiser": optimiser,
    "heads": heads,
    "ensemble": ensemble_training,
    "decoder layers": decoder_layers,
    "encoder layers": encoder_layers,
}


# --- The compiler's settings ---

FLAGS = {
    "as is": "",
    "latency hiding": "--xla_gpu_enable_latency_hiding_scheduler=true",
    "no Triton products": "--xla_gpu_enable_triton_gemm=false",
    "autotune level 2": "--xla_gpu_autotune_level=2",
    "no command buffers": "--xla_gpu_enable_command_buffer=",
    "command buffers, loops too": "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,WHILE",
    "cuBLASLt": "--xla_gpu_enable_cublaslt=true",
    "exhaustive tiling": "--xla_gpu_exhaustive_tiling_search=true",
}


def time_flags(options: argparse.Namespace) -> None:
    """Times the whole update under each setting, each in a process of its own: they are read at its start."""
    preset = "tiny" if options.quick else "paper"
    results = []
    for name, flags in FLAGS.items():
        environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "update.json"
            command = [sys.executable, "-m", "plan2explore.bench.update", "--preset", preset]
            command += ["--only-whole", "--json", str(path)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            result = Result("flags", f"{name} {flags}".strip())
            if done.returncode or not path.exists():
                result.error = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:200]
            else:
                told = json.loads(path.read_text())
                result.ms, result.compile_s = told["whole_ms"], told["compile_s"]
        results.append(result)
        print(result, file=sys.stderr, flush=True)
    report(results, options.json)


# --- Running ---


def run(options: argparse.Namespace) -> None:
    """Times all cases of the chosen groups, as long as there is time. A case that fails is a line too."""
    sizes = QUICK if options.quick else Sizes()
    begin, results = time.perf_counter(), []
    for group in options.only or GROUPS:
        for name, build in GROUPS[group](sizes):
            if time.perf_counter() - begin > options.budget:
                results.append(Result(group, name, error="not timed: the budget is spent"))
                continue
            try:
                result = replace(measure(build, sizes.repeats), group=group, name=name)
            except Exception as error:  # one broken case must not stop the rest
                result = Result(group, name, error=f"{type(error).__name__}: {error}".splitlines()[0][:200])
            results.append(result)
            print(f"{time.perf_counter() - begin:6.1f} s  {result}", file=sys.stderr, flush=True)
    report(results, options.json)


def report(results: list[Result], path: Path | None) -> None:
    device = jax.devices()[0].device_kind
    if path is not None:
        told = {"device": device, "jax": jax.__version__, "results": [asdict(result) for result in results]}
        path.write_text(json.dumps(told, indent=1))
    title = f"{device}, jax {jax.__version__}"
    table = Table("group", "case", "ms", "compile s", "temporary MB", title=title)
    shown = "{:.3f}", "{:.1f}", "{:.0f}"
    for result in results:
        numbers = result.ms, result.compile_s, result.temporary_mb
        cells = [form.format(x) if x is not None else "" for form, x in zip(shown, numbers, strict=True)]
        name = f"{result.name}: {result.error}" if result.error else result.name
        table.add_row(result.group, name, *cells)
    Console(width=150).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--only", nargs="*", choices=list(GROUPS), help="groups to time; all by default")
    parser.add_argument("--budget", type=float, default=225.0, help="seconds after which no more cases start")
    parser.add_argument("--quick", action="store_true", help="very small sizes: checks the script itself")
    parser.add_argument("--flags", action="store_true", help="time the update under the compiler's settings")
    options = parser.parse_args()
    time_flags(options) if options.flags else run(options)


if __name__ == "__main__":
    main()
