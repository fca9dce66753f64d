"""A nano agent, whose programs are compiled once in a process: compiling is what takes time in tests of whole runs."""

import contextlib
import functools
import os
from collections.abc import Iterator
from unittest import mock

from threads import in_threads

from plan2explore.agent.learner import Learner
from plan2explore.config import ActorCriticConfig, AgentConfig, IntrinsicConfig, ModelConfig
from plan2explore.phases import adapt, explore, learn, load

NANO = AgentConfig(
    model=ModelConfig(
        deter=8, stoch=4, hidden=8, conv_depth=2, proprio_width=8, proprio_depth=1, reward_width=8, reward_depth=1, unroll=1
    ),
    intrinsic=IntrinsicConfig(members=2, width=8, depth=1),
    actor_critic=ActorCriticConfig(horizon=3, actor_width=8, actor_depth=1, critic_width=8, critic_depth=1, unroll=1),
    batch=2,
    length=5,
    precision="float32",
)  # fmt: skip
one_learner = functools.cache(Learner)
"""Compiled once for each configuration in this process."""


@contextlib.contextmanager
def quick(processes: bool = False) -> Iterator[None]:
    """Learners are compiled once, and environments are in a thread, or in one process: starting processes takes time too."""
    with contextlib.ExitStack() as stack:
        if not processes:
            stack.enter_context(in_threads())
        for module in (explore, adapt, learn, load):
            stack.enter_context(mock.patch.object(module, "Learner", one_learner))
        stack.enter_context(mock.patch.object(os, "sched_getaffinity", lambda process: {0}))
        yield
