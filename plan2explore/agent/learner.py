"""The learner: everything that training changes as one pytree, and one compiled function that improves it."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from plan2explore.agent import policy
from plan2explore.agent.agent import Agent
from plan2explore.agent.gradients import (
    BatchArrays,
    Lesson,
    Metrics,
    learn_behaviors,
    learn_model,
    learn_novelty,
    open_batch,
)
from plan2explore.agent.parts import Part, train_part
from plan2explore.agent.policy import Carried, Mode
from plan2explore.agent.world_model import Observation
from plan2explore.config import AgentConfig, Spaces

CAUSES = ("model", "novelty", "reward", "critic", "actor")
"""Parts in the order in which trouble spreads."""


class LearnerState(NamedTuple):
    """All that training changes. Save it, and training goes on as if nothing had happened."""

    parts: dict[str, Part]
    update: Int[Array, ""]
    key: PRNGKeyArray


def compiler_options() -> dict[str, Any] | None:
    """What XLA is told when it compiles for the default device.

    On a GPU: not to merge products that share a matrix. Each member of the ensemble is trained on 2,450 steps and
    asked about 37,500, and putting these together for one product moves more memory than the product.
    """
    return {"xla_gpu_dot_merger_threshold_mb": 0} if jax.default_backend() == "gpu" else None


class Learner:
    """Trains an agent on batches of sequences, and acts. All methods are pure functions of the state.

    They are compiled with options of their own, which JAX allows at the outermost level only: to call one inside another
    compiled function, take its `__wrapped__`.
    """

    def __init__(self, config: AgentConfig, spaces: Spaces) -> None:
        self.agent = Agent(config, spaces)
        self.init = self._compile(_init)
        """`init(key)`: the state of a learner that knows nothing."""
        self.update = self._compile(_update, donate_argnums=0)
        """`update(state, batch)`: the next state, and metrics. The old state's buffers are reused."""
        self.update_block = self._compile(_update_block, donate_argnums=0)
        """`update_block(state, batches)`: many updates, on stacked batches, in one compiled loop. Metrics have a
        leading axis of updates and stay on the device. The old state's buffers are reused."""
        self._act = self._compile(policy.act, static_argnames="mode")

    def _compile(self, function: Callable[..., Any], **options: Any) -> Any:
        """Compiles a function of the agent. With float32, products are so too, not a GPU's shorter format."""
        precision = "highest" if self.agent.config.precision == "float32" else None

        def run(*args: Any, **kwargs: Any) -> Any:
            with jax.default_matmul_precision(precision) if precision else nullcontext():
                return function(self.agent, *args, **kwargs)

        return jax.jit(run, compiler_options=compiler_options(), **options)

    def compile_block(self, state: LearnerState, batches: PyTree) -> None:
        """Compiles `update_block` for batches of this form, so that its first call need not."""
        self.update_block.lower(state, batches).compile()

    def carry(self, environments: int) -> Carried:
        """What to give to the first call of `act`."""
        return policy.carry(self.agent, environments)

    def act(
        self,
        state: LearnerState,
        carried: Carried,
        observation: Observation,
        first: Bool[Array | np.ndarray, " environments"],
        key: PRNGKeyArray,
        mode: Mode = "noise",
        task: int | None = None,
    ) -> tuple[Float[Array, "environments action"], Carried]:
        """Actions for a batch of environments, and what to carry to their next step.

        `first` marks environments at the start of an episode: what was carried of them is forgotten. The
        policy is that of a task, or of whoever collects for the objective. Modes: a `sample` of the policy, a
        sample with exploration `noise` (to collect), or the policy's `mode` (to evaluate).
        """
        row = policy.choose_row(self.agent, task)
        if row is None:
            return policy.act_uniformly(carried, key)
        rows = {name: state.parts[name].rows for name in ("model", "actor")}
        return self._act(rows, row, carried, observation, first, key, mode=mode)


def _init(agent: Agent, key: PRNGKeyArray) -> LearnerState:
    key, part_key = jax.random.split(key)
    return LearnerState(agent.init(part_key), jnp.zeros((), jnp.int32), key)


def _update(agent: Agent, state: LearnerState, batch: BatchArrays) -> tuple[LearnerState, Metrics]:
    """Trains every part once. All gradients are taken at the same parameters, those before the update."""
    key, model_key, novelty_key, behavior_key = jax.random.split(state.key, 4)
    rows = {name: part.rows for name, part in state.parts.items()}
    with jax.named_scope("world_model"):
        model, experience = learn_model(agent, rows, open_batch(agent, batch), model_key)
    with jax.named_scope("novelty"):
        novelty = learn_novelty(agent, rows, experience, novelty_key)
    with jax.named_scope("behavior"):
        behavior = learn_behaviors(agent, rows, experience.states, behavior_key)
    metrics: Metrics = {"update": state.update}
    parts = state.parts
    with jax.named_scope("optimisers"):
        for lesson in (model, novelty, behavior):
            parts, checks = _train(agent, parts, lesson)
            metrics |= lesson.metrics | checks
    return LearnerState(parts, state.update + 1, key), metrics


def _train(agent: Agent, parts: dict[str, Part], lesson: Lesson) -> tuple[dict[str, Part], Metrics]:
    """Takes a step with each part of a lesson. Metrics: the gradients' norms, and whether all was finite."""
    metrics = {}
    for name, gradient in lesson.gradients.items():
        trained, norms, finite = train_part(parts[name], gradient, lesson.losses[name], agent.adam(name))
        parts = parts | {name: trained}
        for row, label in enumerate(agent.labels(name)):
            metrics[f"{label}/gradient"] = norms[row]
            metrics[f"{label}/finite"] = finite[row].astype(jnp.float32)
    return parts, metrics


def _update_block(agent: Agent, state: LearnerState, batches: BatchArrays) -> tuple[LearnerState, Metrics]:
    names: list[str] = []

    def step(state: LearnerState, batch: BatchArrays) -> tuple[LearnerState, Float[Array, " metrics"]]:
        state, metrics = _update(agent, state, batch)
        names[:] = metrics
        # One vector instead of dozens of numbers, each of which would be written to its own place every time.
        return state, jnp.stack([metrics[name].astype(jnp.float32) for name in names])

    state, values = lax.scan(step, state, batches)
    return state, {name: values[:, i] for i, name in enumerate(names)}


class NotFiniteError(FloatingPointError):
    """A loss or a gradient became infinite or undefined."""


def check_finite(metrics: Mapping[str, Any]) -> None:
    """Raises a `NotFiniteError` that names the first part and update that went wrong."""
    metrics = jax.device_get(dict(metrics))
    flags = {name: np.atleast_1d(flag) for name, flag in metrics.items() if name.endswith("/finite")}
    faults = {name: int(np.argmin(flag)) for name, flag in flags.items() if not np.all(flag)}
    if not faults:
        return
    earliest = min(faults.values())
    guilty = [name.removesuffix("/finite") for name, index in faults.items() if index == earliest]
    first, *others = sorted(guilty, key=lambda name: CAUSES.index(name.split("/")[-1]))
    also = f" (and then of {', '.join(others)})" if others else ""
    raise NotFiniteError(
        f"The loss or the gradient of {first!r}{also} was not finite at update "
        f"{int(np.atleast_1d(metrics['update'])[earliest])}. Its parameters were kept as they were before. "
        "Start again with a smaller learning rate, or with precision=float32."
    )
