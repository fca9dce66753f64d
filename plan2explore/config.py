"""Every knob of the agent, once: its type, its value in the paper and the reason beside it.

Defaults are the paper's. Presets are plain values of these types: `dataclasses.replace` (or a command-line
flag) changes any field of any preset. Where the paper and the program behind its published results differ,
the field says so.
"""

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

Config = TypeVar("Config")


@dataclass(frozen=True)
class Spaces:
    """What the agent sees and does: the sizes that come from the environment, not from a preset."""

    action: int
    """Numbers in an action: each in [-1, 1], or the one-hot vectors of discrete choices side by side."""
    image: int | None = 64
    """Side of the square RGB picture in pixels; none when the agent does not see pictures."""
    proprio: int | None = None
    """Numbers in the proprioceptive observation; none in the paper, which works from pixels alone."""
    tasks: int = 1
    """Task probes trained beside exploration: columns of the batch's reward."""
    discrete: tuple[int, ...] = ()
    """Choices of each discrete action, whose one-hot vectors make up the action; empty for continuous actions."""
    terminates: bool = False
    """Whether episodes may terminate: the agent then has a continue head."""

    def __post_init__(self) -> None:
        if self.image is None and self.proprio is None:
            raise ValueError(
                "The agent would see nothing: give Spaces an image size, a proprio size, or both."
            )


@dataclass(frozen=True)
class ModelConfig:
    """The world model: PlaNet's recurrent state-space model."""

    deter: int = 400
    """Units of the recurrent (GRU) state. The paper's "deterministic and stochastic components" of 60 is a
    slip: the program had 400 and 60."""
    stoch: int = 60
    """Dimensions of the stochastic state, a diagonal Gaussian."""
    hidden: int = 400
    """Width of the layers around the recurrent cell."""
    conv_depth: int = 32
    """Channels of the encoder's first convolution. Those of the others, and the embedding, grow with it."""
    proprio_width: int = 400
    """Width of the proprioceptive encoder and decoder (not in the paper; Dreamer's dense width)."""
    proprio_depth: int = 2
    """Hidden layers of the proprioceptive encoder and decoder (not in the paper)."""
    reward_width: int = 400
    """Width of the reward head."""
    reward_depth: int = 2
    """Hidden layers of the reward head, as in Dreamer."""
    min_std: float = 0.1
    """Floor of the state's standard deviation, added to a softplus."""
    free_nats: float = 3.0
    """Divergence per step that costs nothing, as in PlaNet: each step's KL is raised to at least this."""
    image_scale: float = 1.0
    """Weight of the picture's negative log-likelihood (summed over pixels)."""
    proprio_scale: float = 1.0
    """Weight of the proprioceptive negative log-likelihood."""
    reward_scale: float = 1.0
    """Weight of the reward head's negative log-likelihood."""
    kl_scale: float = 1.0
    """Weight of the divergence of the posterior from the prior."""
    dequantise: bool = False
    """Add uniform noise of one grey level to the pictures. The program did; it changes little with 8 bits."""
    learning_rate: float = 6e-4
    """Adam's step size for the world model and the reward heads (Dreamer's)."""
    unroll: int = 10
    """Time steps per iteration of the compiled loop over a sequence. Changes speed only."""


@dataclass(frozen=True)
class NoveltyConfig:
    """What the explorer seeks."""

    objective: Annotated[str, tyro.conf.arg(aliases=["--method"])] = "plan2explore"
    """plan2explore, retrospective, max, curiosity, random, dreamer, or an objective of one's own."""
    gradient: Literal["through", "stopped"] = "through"
    """Does the objective's gradient reach the actor through imagined states (the paper), or does the actor
    learn of it through the critic alone (the program)?"""
    members: int = 5
    """One-step models in the ensemble (K)."""
    width: int = 1024
    """Width of a one-step model: the program's; the paper does not say."""
    depth: int = 2
    """Hidden layers of a one-step model."""
    inputs: Literal["deter", "state"] = "deter"
    """What a one-step model sees beside the action: the recurrent state after the action was taken (the
    appendix's "RNN-state"), or the whole state that it was taken from (the main text)."""
    target: Literal["embedding", "stoch", "deter", "state"] = "embedding"
    """What a one-step model predicts: the next encoder features, or one of the appendix's three variants."""
    bootstrap: bool = True
    """Whether every member resamples the batch's sequences with replacement (a bootstrap ensemble)."""
    loss: Literal["sum", "mean"] = "sum"
    """Is a member's squared error halved and summed over dimensions (equation 3's log-likelihood), or averaged (the
    program)? Beside Adam's epsilon a mean over 1024 is small: members learn, and disagreement falls, far more slowly."""
    scale: float = 10_000.0
    """Factor on the disagreement, since no reward is normalised: it helps in some environments."""
    max_variance: Literal["trained", "untrained"] = "trained"
    """Objective `max`: are the members' variances fitted, or left as initialised (the program)?"""
    max_log_variance: tuple[float, float] = (-10.0, 2.0)
    """Objective `max`: bounds of the members' log-variance, which unseen inputs could make anything."""
    curiosity_scale: float = 1e-3
    """Objective `curiosity`: factor on the model's loss, which is summed over thousands of pixels."""
    learning_rate: float = 6e-4
    """Adam's step size for the ensemble: the paper names none, so the world model's."""


@dataclass(frozen=True)
class BehaviorConfig:
    """The actor-critics, learned in imagination as in Dreamer: one explorer, one for every task probe."""

    horizon: int = 15
    """Imagined steps (H)."""
    discount: float = 0.99
    """Discount per step (gamma)."""
    trace: float = 0.95
    """Mixing of n-step returns (lambda)."""
    actor_width: int = 400
    """Width of an actor."""
    actor_depth: int = 4
    """Hidden layers of an actor."""
    critic_width: int = 400
    """Width of a critic."""
    critic_depth: int = 3
    """Hidden layers of a critic."""
    actor_start_std: float = 5.0
    """Standard deviation of an untrained actor before the tanh (Dreamer's 5: nearly all actions at their bounds,
    which explores, but takes thousands of updates to narrow down)."""
    actor_learning_rate: float = 8e-5
    """Adam's step size for actors."""
    critic_learning_rate: float = 8e-5
    """Adam's step size for critics."""
    action_noise: float = 0.3
    """Standard deviation of the noise added to actions when collecting."""
    unroll: int = 15
    """Imagined steps per iteration of the compiled loop. Speed only."""


@dataclass(frozen=True)
class AgentConfig:
    """The agent: world model, exploration objective, behaviours and how they are trained."""

    model: ModelConfig = field(default_factory=ModelConfig)
    novelty: NoveltyConfig = field(default_factory=NoveltyConfig)
    behavior: BehaviorConfig = field(default_factory=BehaviorConfig)
    batch: int = 50
    """Sequences in a batch."""
    length: int = 50
    """Steps in a sequence."""
    clip: float = 100.0
    """Largest norm of a part's gradient; every part (and every probe) is clipped on its own."""
    epsilon: float = 1e-4
    """Adam's epsilon, the program's: gradients far below it move little."""
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """Number format inside the networks. Parameters, distributions and losses are float32 always."""
    learn_model: bool = True
    """Whether the world model and the ensemble learn. Zero-shot adaptation leaves them as they are."""


paper = AgentConfig()
"""The paper's sizes."""

small = AgentConfig(
    model=ModelConfig(deter=200, stoch=30, hidden=200, conv_depth=16, proprio_width=200, reward_width=200),
    novelty=NoveltyConfig(width=400),
    behavior=BehaviorConfig(actor_width=200, critic_width=200),
    batch=24,
)
"""About a tenth of the paper's cost."""

tiny = AgentConfig(

    model=ModelConfig(
        deter=64, stoch=16, hidden=64, conv_depth=8, proprio_width=64, reward_width=64, unroll=1
    ),
    novelty=NoveltyConfig(width=64),
    behavior=BehaviorConfig(
        horizon=10, actor_width=64, actor_depth=2, critic_width=64, critic_depth=2, unroll=1,
        actor_learning_rate=3e-4, critic_learning_rate=3e-4,
    ),
    batch=8,
    length=16,
    precision="float32",
)  # fmt: skip
"""For tests and demonstrations on a CPU, from 32x32 pictures or proprioception."""

PRESETS = {"paper": paper, "small": small, "tiny": tiny}


def preset_of(arguments: list[str]) -> AgentConfig:
    """The preset of a command line, looked up before that is parsed: the defaults of other flags depend on it."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    name = words[words.index("--preset") + 1] if "--preset" in words[:-1] else "paper"
    return PRESETS.get(name, paper)


@dataclass(frozen=True)
class WorldConfig:
    """What the agent lives in and what it sees of it."""

    world: Annotated[str, tyro.conf.Suppress] = "walker"
    """A bare domain (walker), a task (walker_walk), or gymnasium:ID."""
    see: Literal["pixels", "proprio", "both"] = "pixels"
    """What the agent observes: pictures (the paper), the suite's proprioception, or both."""
    size: int = 64
    """Side of the pictures in pixels (the paper: 64)."""
    action_repeat: int = 2
    """Env steps per action (the paper: 2)."""
    renderer: str = "auto"
    """auto, raycast or gl."""


@dataclass(frozen=True)
class Schedule:
    """How collecting and learning take turns, and what is kept on the way. Steps are env steps."""

    seed_episodes: int = 5
    """Episodes of random actions before anything is learned (the paper: 5)."""
    updates_per_episode: int = 100
    """Updates for every 1000 env steps (the paper: 100, an episode)."""
    collect: Literal["overlap", "in-turn"] = "overlap"
    """overlap: environments step while the device trains, and running episodes are learned from. in-turn: whole
    episodes, then their updates, as in the paper; reproducible bit by bit on a CPU."""
    environments: int = 0
    """Environments that are stepped together; 0: overlap one for each core, at most 16, in short runs
    fewer; in-turn 1 (the paper)."""
    block: int = 0
    """Updates in one compiled loop; 0: as many as one step of all environments is due, from 1 to 25."""
    evaluate_every: int = 25_000
    """Env steps between evaluations of the probes (the program behind the paper: 10,000)."""
    evaluate_episodes: int = 10
    """Episodes of an evaluation (the program behind the paper: 1, and tables average the last 20)."""
    snapshot_every: int = 100_000
    """Env steps between snapshots, from which `adapt --at` can start."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints: what a kill can cost in time. Episodes are on disk at once."""
    memory: Literal["auto", "device", "host"] = "auto"
    """Where frames are kept for sampling; auto: on the accelerator if they fit."""


@dataclass(frozen=True)
class ExploreConfig:
    """Phase 1: explore without reward (Algorithm 1)."""

    world: WorldConfig = field(default_factory=WorldConfig)
    schedule: Schedule = field(default_factory=Schedule)
    agent: AgentConfig = field(default_factory=AgentConfig)
    probes: tuple[str, ...] = ()
    """Tasks that are trained beside exploration on stopped features, and evaluated on a schedule."""
    seed: int = 0
    """Of the networks, the environments and every chance in between."""


@dataclass(frozen=True)
class AdaptConfig:
    """Phase 2: adapt to a task (Algorithm 2)."""

    schedule: Schedule = field(default_factory=Schedule)
    updates: int = 10_000
    """Updates in imagination before any new interaction. The paper does not say how many; its program trained
    the task's behaviour throughout exploration (100,000 at 1M env steps)."""
    shots: int = 0
    """Episodes that the task's policy collects after that: 0 is zero-shot (the paper's few-shot: 150)."""
    at: int | None = None
    """Env steps of the snapshot to start from; none: the last one."""
    seed: int = 0
    """Of the new networks and environments."""


MAY_BE_0 = {
    "seed", "shots", "depth", "proprio_depth", "reward_depth", "actor_depth", "critic_depth",
    "updates_per_episode", "environments", "block", "evaluate_every", "evaluate_episodes",
}  # fmt: skip
"""Whole numbers that may be 0; all others count something that must be there."""
ABOVE_0 = {
    "min_std", "actor_start_std", "clip", "epsilon", "learning_rate", "actor_learning_rate", "critic_learning_rate",
}  # fmt: skip
"""Other numbers that cannot be 0: nothing would be learned, or something divided by it."""
AT_MOST = {"seed": 2**32 - 1, "discount": 1, "trace": 1}


def check_numbers(config: Any, where: str = "") -> None:
    """Finds numbers of a configuration that make no sense, such as a batch of no sequences."""
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            check_numbers(value, f"{where}{each.name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            _check_number(each, value, where + each.name)


def _check_number(setting: Field[Any], value: float, name: str) -> None:
    if setting.name in ABOVE_0:
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be above 0, and finite; got {value}.")
        return
    least = 1 if setting.type is int and setting.name not in MAY_BE_0 else 0
    most = AT_MOST.get(setting.name)
    if not math.isfinite(value) or value < least or (most is not None and value > most):
        real = "" if setting.type is int else ", and finite"
        expected = f"at least {least}{real}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {expected}; got {value}.")


def check_seed(seed: int) -> None:
    """Finds a seed that cannot be one."""
    check_numbers(AdaptConfig(seed=seed))


def whole_steps(steps: float) -> int:
    """A number of env steps as people write it: 1e6."""
    if not math.isfinite(steps):
        raise ValueError(f"A number of env steps is one such as 1e6; got {steps}.")
    return int(steps)


def read_config(kind: type[Config], values: Mapping[str, Any], where: str = "") -> Config:
    """A configuration from plain values, such as those of a file. Says which value is wrong, and what was expected."""
    hints = get_type_hints(kind)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ValueError(f"There is no setting {where}{unknown[0]}; known are {', '.join(hints)}")
    return kind(**{name: _read_value(hints[name], value, where + name) for name, value in values.items()})


def _read_value(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return read_config(kind, value, where + ".")
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(value, list | tuple):
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        if len(kinds) == len(value):
            return tuple(_read_value(one, each, where) for one, each in zip(kinds, value, strict=True))
    elif origin is Literal and value in inner:
        return value
    elif origin in (Union, UnionType):
        if value is None and type(None) in inner:
            return None
        return _read_value(next(one for one in inner if one is not type(None)), value, where)
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(kind, type) and type(value) is kind:
        return value
    expected = kind if origin else getattr(kind, "__name__", kind)
    raise ValueError(f"The setting {where} cannot be {value!r}; expected {expected}")


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Settings in which two configurations differ, each as `name: this, not that`."""
    found = []
    for each in fields(one):
        ours, theirs = getattr(one, each.name), getattr(other, each.name)
        if is_dataclass(ours):
            found += differences(ours, theirs, f"{where}{each.name}.")
        elif ours != theirs:
            found.append(f"{where}{each.name}: {ours!r}, not {theirs!r}")
    return found
