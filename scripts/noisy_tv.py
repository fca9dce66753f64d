"""The noisy television: why disagreement, unlike prediction error, loses interest in noise.

A house of three rooms. In the hall, the next embedding is a fixed function of where the agent is and what
it does: it can be learned. In the television room it is pure noise: nothing can be learned. The cellar is
like the hall, but the agent first goes there halfway through. The package's own ensemble learns from what
the agent sees, with the paper's settings but for its width, and the two candidates for an intrinsic reward
are measured in each room on steps that were not trained on.

    python scripts/noisy_tv.py docs/pictures/noisy_tv.png
"""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from plan2explore.agent.intrinsic import Experience, Sizes, plan2explore
from plan2explore.agent.intrinsic.ensemble import disagreement, ensemble_loss, one_step_inputs
from plan2explore.agent.latents import draw_normal
from plan2explore.agent.optimizer import Adam, Layout, TrainState, apply_gradients, init_train_state
from plan2explore.agent.world_model import State
from plan2explore.config import IntrinsicConfig, paper

ROOMS = ("hall", "television", "cellar")
COLORS = {"hall": "#1b7f79", "television": "#d1495b", "cellar": "#30638e"}
PLACE, EMBEDDING, TIME, BATCH = 2, 8, 9, 16
CONFIG = IntrinsicConfig(width=64, inputs="state")
SIZES = Sizes(deter=len(ROOMS) + PLACE, stoch=1, embedding=EMBEDDING, action=1)


class Curves(NamedTuple):
    """Both measures in each room, after each update."""

    disagreement: np.ndarray
    error: np.ndarray


def visit(key: jax.Array, rooms: int | jax.Array) -> Experience:
    """Random steps in one of the first rooms, chosen for each sequence."""
    room_key, place_key, action_key, noise_key = jax.random.split(key, 4)
    room = jnp.broadcast_to(jax.random.randint(room_key, (BATCH,), 0, rooms), (TIME, BATCH))
    return walk(room, place_key, action_key, noise_key)


def walk(room: jax.Array, place_key: jax.Array, action_key: jax.Array, noise_key: jax.Array) -> Experience:
    """Random steps in the given rooms."""
    place = jax.random.uniform(place_key, (TIME * BATCH * PLACE,), minval=-1).reshape(TIME, BATCH, PLACE)
    action = jax.random.uniform(action_key, (TIME * BATCH,), minval=-1).reshape(TIME, BATCH, 1)
    waves = 1 + jnp.arange(EMBEDDING) / EMBEDDING
    # Stored action t + 1 was taken from state t, and led to embedding t + 1.
    lawful = jnp.sin(waves * (place.sum(-1, keepdims=True) + jnp.roll(action, -1, 0)))
    noise = draw_normal(noise_key, TIME, BATCH, EMBEDDING)
    embedding = jnp.where(room[..., None] == ROOMS.index("television"), noise, lawful)
    deter = jnp.concatenate([jax.nn.one_hot(room, len(ROOMS)), place], -1)
    states = State(deter, deter[..., :1] * 0)
    return Experience(states, action, jnp.roll(embedding, 1, 0), room * 0.0, jnp.zeros((TIME, BATCH), bool))


def measure(ensemble: plan2explore.Ensemble, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Disagreement and prediction error in each room."""

    def in_room(room: jax.Array) -> tuple[jax.Array, jax.Array]:
        experience = walk(jnp.broadcast_to(room, (TIME, BATCH)), *jax.random.split(key, 3))
        predictions = ensemble(one_step_inputs(experience.transitions(), CONFIG))
        errors = jnp.square(predictions - experience.embeddings[1:]).mean()
        return disagreement(predictions).mean(), errors

    return jax.vmap(in_room)(jnp.arange(len(ROOMS)))


def run(updates: int = 4000, seed: int = 0) -> Curves:
    """Trains the ensemble: on the hall and the television room, and from halfway on the cellar too."""
    layout = Layout(lambda key: plan2explore.init(CONFIG, SIZES, key))

    adam = Adam(CONFIG.learning_rate, paper.clip, paper.epsilon)

    def step(state: TrainState, now: tuple[jax.Array, jax.Array]) -> tuple[TrainState, tuple[jax.Array, jax.Array]]:
        update, key = now
        visit_key, loss_key, measure_key = jax.random.split(key, 3)
        experience = visit(visit_key, jnp.where(update < updates // 2, 2, 3))
        ensemble = layout.unflatten(state.params, jnp.float32)

        def loss(ensemble: plan2explore.Ensemble) -> jax.Array:
            return ensemble_loss(ensemble, experience, loss_key, CONFIG).sum()

        total, grads = jax.value_and_grad(loss)(ensemble)
        return apply_gradients(state, layout.flatten(grads), total[None], update, adam)[0], measure(ensemble, measure_key)

    @jax.jit
    def train(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        init_key, step_key = jax.random.split(key)
        steps = jnp.arange(updates), jax.random.split(step_key, updates)
        return jax.lax.scan(step, init_train_state(layout.init(init_key)), steps)[1]

    return Curves(*(np.asarray(curve) for curve in train(jax.random.key(seed))))


def smooth(curve: np.ndarray, window: int = 50) -> np.ndarray:
    """The mean of the last updates, where there are enough."""
    means = np.convolve(curve, np.ones(window) / window, mode="valid")
    return np.concatenate([np.full(window - 1, np.nan), means])


def draw(curves: Curves, path: str) -> None:
    """Both measures over updates, a line for each room."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    titles = "Disagreement (Plan2Explore)", "Prediction error (curiosity)"
    for axis, title, values in zip(axes, titles, curves, strict=True):
        for room, curve in zip(ROOMS, values.T, strict=True):
            axis.plot(smooth(curve), color=COLORS[room], label=room, lw=1.8)
        axis.axvline(len(values) // 2, color="0.6", lw=1, ls=":")
        axis.set(title=title, xlabel="updates", yscale="log")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.2)
    axes[0].set_ylabel("mean over dimensions")
    axes[1].legend(frameon=False, loc="lower left")
    axes[0].annotate(
        "the cellar opens", (len(curves.error) // 2, axes[0].get_ylim()[1]), xytext=(5, -10),
        textcoords="offset points", color="0.4", fontsize=8,
    )  # fmt: skip
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    curves = run()
    for name, values in curves._asdict().items():
        marks = {"first": 0, "before the cellar opens": len(values) // 2 - 1, "last": len(values) - 1}
        for mark, at in marks.items():
            window = values[max(at - 50, 0) : at + 1].mean(0)
            print(name, mark, {room: round(float(value), 4) for room, value in zip(ROOMS, window, strict=True)})
    draw(curves, sys.argv[1] if len(sys.argv) > 1 else "noisy_tv.png")
