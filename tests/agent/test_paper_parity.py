"""The paper preset's values and gradients are those of version 0.1.0: arrays stored with that version's code."""

import os
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.actor_critic import init_stats
from plan2explore.agent.agent import Agent
from plan2explore.agent.learner import behavior_gradients, intrinsic_gradients, model_gradients, open_batch
from plan2explore.config import ActorCriticConfig, AgentConfig, IntrinsicConfig, ModelConfig, Spaces

STORED = np.load(Path(__file__).parent / "data" / "paper_gradients.npz")
CONFIG = AgentConfig(
    model=ModelConfig(
        deter=8, stoch=4, hidden=8, conv_depth=2, proprio_width=6, reward_width=8, reward_depth=1, free_nats=0.1, unroll=1
    ),
    intrinsic=IntrinsicConfig(members=3, width=8, max_reduce="sum"),
    actor_critic=ActorCriticConfig(
        horizon=3, actor_width=8, actor_depth=1, critic_width=8, critic_depth=1, unroll=1, bound_values=False
    ),
    batch=3,
    length=4,
    precision="float32",
)  # fmt: skip
RENAMED = {"novelty": "intrinsic"}
AS_USERS = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
if "xla_cpu_use_fusion_emitters" in os.environ.get("XLA_FLAGS", ""):
    AS_USERS["xla_cpu_use_fusion_emitters"] = True
"""What XLA does by itself; other tests are compiled more quickly (conftest.py)."""


def stored(case: str, kind: str) -> dict[str, np.ndarray]:
    """Arrays of a case by their names of today."""
    start = f"{case}/{kind}/"
    found = {name.removeprefix(start): STORED[name] for name in STORED if name.startswith(start)}
    return {"/".join(RENAMED.get(part, part) for part in name.split("/")): array for name, array in found.items()}


def gradients(agent: Agent, params, batch, key):
    _, model_key, intrinsic_key, behavior_key = jax.random.split(key, 4)
    nets, sequences = agent.networks(params), open_batch(agent, batch)
    model, experience = model_gradients(agent, nets, sequences, model_key)
    intrinsic = intrinsic_gradients(agent, nets, experience, intrinsic_key)
    stats, alive = init_stats(len(agent.behaviors)), ~sequences.is_terminal
    behavior, _ = behavior_gradients(
        agent, nets, nets.critic, experience.states, alive, stats, jnp.zeros((), int), behavior_key
    )
    grads = model.grads | intrinsic.grads | behavior.grads
    flat = {name: agent.layouts[name].flatten(each) for name, each in grads.items()}
    return flat, model.metrics | intrinsic.metrics | behavior.metrics


@pytest.mark.parametrize("case", ["plan2explore", "stopped", "retrospective", "max", "curiosity", "dreamer"])
def test_values_and_gradients_are_those_of_the_first_version(case):
    batch, params = stored(case, "batch"), stored(case, "params")
    objective, gradient = ("plan2explore", "stopped") if case == "stopped" else (case, "through")
    config = replace(CONFIG, intrinsic=replace(CONFIG.intrinsic, objective=objective, gradient=gradient))
    agent = Agent(config, Spaces(action=2, image=16, proprio=5, tasks=batch["reward"].shape[-1]))
    batch |= {name: np.zeros(batch["action"].shape[:2], bool) for name in ("is_first", "is_terminal")}
    compiled = jax.jit(lambda *args: gradients(agent, *args), compiler_options=AS_USERS)
    grads, metrics = compiled(params, batch, jax.random.key(7))
    for name, expected in stored(case, "grads").items():
        scale = np.abs(expected).max() + 1e-12
        np.testing.assert_allclose(grads[name] / scale, expected / scale, atol=2e-5, err_msg=name)
    for name, expected in stored(case, "metrics").items():
        if name != "intrinsic/surprise":  # renamed, and curiosity's own
            np.testing.assert_allclose(metrics[name], expected, rtol=2e-5, err_msg=name)
