"""Every knob of the agent, once: its type, its value in the paper and the reason beside it.

Defaults are the paper's. Presets are plain values of these types: `dataclasses.replace` (or a command-line
flag) changes any field of any preset. Where the paper and the authors' released code differ, the field says so.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

Config = TypeVar("Config")
Preset = Literal["paper", "small", "tiny", "modern", "modern-tiny"]
"""Names of `PRESETS`."""
LARGEST = 10**15
"""Of all numbers: what is larger only overflows somewhere."""


@dataclass(frozen=True)
class Limits:
    """What a number of a configuration may be; of one without them the least is 1 if it is whole, or else 0."""

    least: float = 0
    most: float = LARGEST
    above: bool = False
    """Whether it has to be above the least."""

    def check(self, name: str, value: float) -> None:
        """Refuses a number that is not within the limits."""
        if (self.least < value if self.above else self.least <= value) and value <= self.most:
            return
        expected = f"{'above' if self.above else 'at least'} {self.least}" + ", and finite" * isinstance(value, float)
        if self.most < LARGEST or (value > self.most and not self.above):
            expected = f"from {self.least} to {self.most}"
        raise ValueError(f"{name} must be {expected}; got {value!s:.40}.")


Natural = Annotated[int, Limits()]
Positive = Annotated[float, Limits(above=True)]
Fraction = Annotated[float, Limits(most=1)]
Seed = Annotated[int, Limits(most=2**32 - 1)]


@dataclass(frozen=True)
class Spaces:
    """What the agent observes and does: the sizes that come from the environment, not from a preset."""

    action: int
    """Numbers in an action: each in [-1, 1], or the one-hot vectors of discrete choices side by side."""
    image: int | None = 64
    """Side of the square RGB image in pixels; none when the agent does not observe images."""
    proprio: int | None = None
    """Numbers in the proprioceptive observation; none in the paper, which works from pixels alone."""
    tasks: int = 1
    """Task probes trained beside exploration: columns of the batch's reward."""
    discrete: tuple[int, ...] = ()
    """Choices of each discrete action, whose one-hot vectors make up the action; empty for continuous actions."""
    terminates: bool = False
    """Whether episodes may terminate: the agent then has a continue head."""
    features: int | None = None
    """Numbers in a frozen world model's features, where replay holds these in place of observations."""

    def __post_init__(self) -> None:
        if self.image is None and self.proprio is None and self.features is None:
            raise ValueError("The agent would observe nothing: give Spaces an image size, a proprio size, or both.")


@dataclass(frozen=True)
class ModelConfig:
    """The world model: a recurrent state-space model, PlaNet's (the paper) or DreamerV3's."""

    latent: Literal["gaussian", "categorical"] = "gaussian"
    """The stochastic state: a diagonal Gaussian (the paper), or groups of one-hot classes (DreamerV2 and V3)."""
    core: Literal["gru", "block_gru"] = "gru"
    """The recurrent network: a GRU (the paper), or DreamerV3's block-diagonal GRU."""
    deter: int = 400
    """Units of the recurrent (deterministic) state. The paper's "deterministic and stochastic components" of 60 is a
    slip: the released code had 400 and 60."""
    stoch: int = 60
    """Dimensions of a Gaussian stochastic state, or groups of a categorical one."""
    classes: int = 16
    """Classes of each group of a categorical stochastic state."""
    unimix: Fraction = 0.01
    """Share of the uniform distribution in every categorical, so that no class has probability 0."""
    blocks: int = 8
    """Blocks of a block-diagonal GRU; they divide `deter`."""
    hidden: int = 400
    """Width of the layers around the recurrent core."""
    prior_depth: int = 1
    """Hidden layers between the recurrent state and the prior (DreamerV3: 2)."""
    norm: bool = False
    """RMSNorm and SiLU in dense layers (DreamerV3) instead of ELU alone."""
    conv_depth: int = 32
    """Channels of the encoder's first convolution. Those of the others, and the embedding, grow with it."""
    proprio_width: int = 400
    """Width of the encoder and decoder of vector observations (not in the paper; Dreamer's dense width)."""
    proprio_depth: Natural = 2
    """Hidden layers of the encoder and decoder of vector observations (not in the paper)."""
    symlog: bool = False
    """Vector observations pass symlog(x) = sign(x) ln(1 + |x|) before they are encoded and predicted (DreamerV3)."""
    reward_head: Literal["mse", "two_hot"] = "mse"
    """A reward head predicts a mean (the paper), or classes over 255 exponentially spaced bins (DreamerV3)."""
    reward_width: int = 400
    """Width of the reward and continue heads."""
    reward_depth: Natural = 2
    """Hidden layers of the reward and continue heads, as in Dreamer."""
    min_std: Positive = 0.1
    """Floor of a Gaussian state's standard deviation, added to a softplus."""
    free_nats: float = 3.0
    """KL divergence per step that costs nothing: each step's KL is raised to at least this."""
    image_scale: float = 1.0
    """Weight of the image's negative log-likelihood (summed over pixels)."""
    proprio_scale: float = 1.0
    """Weight of the vector's negative log-likelihood. With 1, differences of a tenth weigh less than the free nats."""
    reward_scale: float = 1.0
    """Weight of the reward heads' loss."""
    continue_scale: float = 1.0
    """Weight of the continue head's loss; only in environments that terminate."""
    continue_gradient: bool = True
    """Whether the continue head's gradient reaches the world model. It is no task reward."""
    kl_scale: float = 1.0
    """Weight of the KL divergence that trains the prior (DreamerV3: dynamics loss)."""
    rep_scale: float = 1.0
    """Weight of the KL divergence that trains the posterior (DreamerV3: representation loss, 0.1)."""
    dequantise: bool = False
    """Add uniform noise of one grey level to images. The released code did; it changes little with 8 bits."""
    learning_rate: Positive = 6e-4
    """Learning rate of the world model and the reward heads (Dreamer's)."""
    unroll: int = 10
    """Time steps per iteration of the compiled loop over a sequence. Changes speed only."""


@dataclass(frozen=True)
class IntrinsicConfig:
    """The exploration objective: the intrinsic reward and what predicts it."""

    objective: Annotated[str, tyro.conf.arg(aliases=["--method"])] = "plan2explore"
    """plan2explore, retrospective, max, curiosity, random, dreamer, or an objective of one's own."""
    gradient: Literal["through", "stopped"] = "through"
    """With `actor_gradient=through`: does the intrinsic reward's gradient reach the actor through imagined states (the
    paper), or does the actor learn of it through the critic alone (the released code)?"""
    members: Annotated[int, Limits(2)] = 5
    """One-step models in the ensemble (K), at least 2."""
    width: int = 1024
    """Width of a one-step model: the released code's; the paper does not say."""
    depth: Natural = 2
    """Hidden layers of a one-step model."""
    inputs: Literal["deter", "state"] = "deter"
    """Input of a one-step model beside the action: the recurrent state after the action was taken (the appendix's
    "RNN-state"), or the whole state that it was taken from (the main text)."""
    target: Literal["embedding", "stoch", "deter", "state"] = "embedding"
    """Target of a one-step model: the next encoder features, or one of the appendix's three variants."""
    bootstrap: bool = True
    """Whether every member resamples the batch's sequences with replacement (a bootstrap ensemble)."""
    loss: Literal["sum", "mean"] = "sum"
    """Is a member's squared error halved and summed over dimensions (equation 3's log-likelihood), or averaged (the
    released code)? Beside Adam's epsilon a mean over 1024 is small: members learn, and disagreement falls, more slowly."""
    scale: float = 10_000.0
    """Factor on the disagreement."""
    normalize: bool = False
    """Divide the intrinsic reward by its running mean, so that its scale is the same in every environment."""
    max_variance: Literal["trained", "untrained"] = "trained"
    """Objective `max`: are the members' variances fitted, or left as initialised (the released code)?"""
    max_log_variance: tuple[float, float] = (-10.0, 2.0)
    """Objective `max`: bounds of the members' log-variance, which unseen inputs could make anything."""
    max_reduce: Literal["mean", "sum"] = "mean"
    """Objective `max`: exponents averaged or summed (MAX's formula) over dimensions. Summed over 1024, every overlap of
    two members is 0, and the divergence is ln K everywhere, with no gradient."""
    curiosity_scale: float = 1e-3
    """Objective `curiosity`: factor on the model's loss, which is summed over thousands of pixels."""
    learning_rate: Positive = 6e-4
    """Learning rate of the ensemble: the paper names none, so the world model's."""


@dataclass(frozen=True)
class ActorCriticConfig:
    """The actor-critics, trained in imagination as in Dreamer: one explorer, one for every task."""

    horizon: int = 15
    """Imagined steps (H)."""
    discount: Fraction = 0.99
    """Discount per step (gamma)."""
    lambda_: Annotated[Fraction, tyro.conf.arg(name="lambda")] = 0.95
    """Mixing of n-step returns (lambda)."""
    learn_from: Literal["imagination", "replay"] = "imagination"
    """Where the tasks of an adaptation are learned: in imagination (the paper), or off-policy from relabelled replay."""
    actor_gradient: Literal["through", "reinforce"] = "through"
    """The actor's gradient: through imagined states (the paper), or REINFORCE with a baseline (DreamerV3)."""
    actor_width: int = 400
    """Width of an actor."""
    actor_depth: Natural = 4
    """Hidden layers of an actor."""
    critic_width: int = 400
    """Width of a critic."""
    critic_depth: Natural = 3
    """Hidden layers of a critic."""
    critic_head: Literal["mse", "two_hot"] = "mse"
    """A critic predicts a mean (the paper), or classes over 255 exponentially spaced bins (DreamerV3)."""
    norm: bool = False
    """RMSNorm and SiLU in the layers of actors and critics (DreamerV3) instead of ELU alone."""
    mean_scale: Positive = 5.0
    """Largest mean of a continuous actor before the tanh: s tanh(m / s)."""
    start_std: Positive = 5.0
    """Standard deviation of an untrained actor before the tanh (Dreamer's 5: nearly all actions at their bounds)."""
    min_std: Positive = 1e-4
    """Floor of a continuous actor's standard deviation before the tanh."""
    max_std: Positive | None = None
    """Ceiling of a continuous actor's standard deviation; none: unbounded (the paper)."""
    unimix: Fraction = 0.01
    """Share of the uniform distribution in a discrete actor."""
    entropy: float = 0.0
    """Weight of a task policy's entropy in the actor's loss; at 0 a policy may become deterministic."""
    explorer_entropy: float = 0.0
    """Weight of the explorer's entropy."""
    normalize_returns: bool = False
    """Divide the actor's gradient by the 5 to 95 % range of returns (a running mean), as in DreamerV3."""
    slow_critic: Fraction = 0.0
    """Rate of the moving average of each critic's parameters that bootstraps returns; 0: the critic itself does."""
    bound_values: bool = True
    """Bound predicted rewards and bootstrapped values by the range of rewards so far. Inert while a critic is sound."""
    actor_learning_rate: Positive = 8e-5
    """Learning rate of actors."""
    critic_learning_rate: Positive = 8e-5
    """Learning rate of critics."""
    action_noise: float = 0.3
    """When collecting: standard deviation of the noise added to continuous actions, share of random discrete ones."""
    unroll: int = 15
    """Imagined steps per iteration of the compiled loop. Speed only."""


@dataclass(frozen=True)
class AgentConfig:
    """The agent: world model, exploration objective, actor-critics and how they are trained."""

    model: ModelConfig = field(default_factory=ModelConfig)
    intrinsic: IntrinsicConfig = field(default_factory=IntrinsicConfig)
    actor_critic: ActorCriticConfig = field(default_factory=ActorCriticConfig)
    batch: int = 50
    """Sequences in a batch."""
    length: int = 50
    """Steps in a sequence."""
    updates_per_episode: int = 100
    """Updates for every 1000 env steps (the paper: 100, an episode), unless the schedule says otherwise."""
    clip: Positive = 100.0
    """Largest norm of a network's gradient; every network (and every task's) is clipped on its own."""
    epsilon: Positive = 1e-4
    """Adam's epsilon, the released code's: gradients far below it change little."""
    warmup: Natural = 0
    """Updates over which learning rates rise from 0."""
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """Number format inside the networks. Parameters, distributions, losses and the last layers of heads are float32."""
    learn_model: bool = True
    """Whether the world model and the ensemble learn. In imagination a zero-shot adaptation leaves them as they are."""
    adapt_from: Literal["imagination", "replay"] = "imagination"
    """Where a task named afterwards is learned: in imagination (the paper), or from relabelled replay (TD3 on the world
    model's states)."""
    adapt_batch: int | None = None
    """Sequences in a batch of an adaptation, or as many single steps from replay; none: `batch`."""
    adapt_discount: Fraction | None = None
    """Discount per step of a task named afterwards; none: `actor_critic.discount`."""
    refine: Natural = 0
    """Updates of the world model on replay, at a fifth of its learning rate, at the start of a zero-shot adaptation."""


paper = AgentConfig()
"""The paper's sizes and pieces."""

ROBUST = ActorCriticConfig(
    mean_scale=3.0, start_std=0.9, min_std=0.1, max_std=1.0, entropy=3e-4, explorer_entropy=1e-2, normalize_returns=True,
    slow_critic=0.02, action_noise=0.0,
)  # fmt: skip
"""Actor-critics that neither diverge nor become deterministic, whatever the scale of rewards."""

small = AgentConfig(
    ModelConfig(deter=200, stoch=30, hidden=200, conv_depth=16, proprio_width=200, reward_width=200),
    IntrinsicConfig(width=400), replace(ROBUST, actor_width=200, critic_width=200), batch=24, epsilon=1e-7,
)  # fmt: skip
"""About a tenth of the paper's cost, with robust actor-critics."""

TINY_MODEL: dict[str, Any] = dict(
    hidden=64, conv_depth=8, proprio_width=64, proprio_depth=2, reward_width=64, learning_rate=1e-3, unroll=1
)
TINY_ACTOR_CRITIC: dict[str, Any] = dict(
    actor_gradient="reinforce", actor_width=64, actor_depth=2, critic_width=64, critic_depth=2, actor_learning_rate=1e-3,
    critic_learning_rate=1e-3, unroll=1,
)  # fmt: skip
TINY: dict[str, Any] = dict(batch=8, length=16, precision="float32")
"""What presets for CPUs have in common."""

tiny = AgentConfig(
    ModelConfig(deter=64, stoch=16, proprio_scale=1000.0, rep_scale=0.1, free_nats=1.0, **TINY_MODEL),
    IntrinsicConfig(width=64, normalize=True, scale=1.0, learning_rate=1e-3),
    replace(ROBUST, horizon=10, **TINY_ACTOR_CRITIC), updates_per_episode=500, epsilon=1e-7, **TINY,
)  # fmt: skip
"""The paper's pieces on CPUs, from 32x32 images or vectors."""

modern = AgentConfig(
    ModelConfig(
        latent="categorical", core="block_gru", deter=2048, stoch=32, hidden=256, prior_depth=2, norm=True, symlog=True,
        proprio_scale=1000.0, reward_head="two_hot", proprio_width=256, proprio_depth=3, reward_width=256, reward_depth=1,
        free_nats=1.0, rep_scale=0.1, learning_rate=3e-4,
    ),
    IntrinsicConfig(width=512, normalize=True, scale=1.0, learning_rate=3e-4),
    replace(
        ROBUST, actor_gradient="reinforce", critic_head="two_hot", norm=True, explorer_entropy=1e-3, actor_width=256,
        actor_depth=3, critic_width=256, actor_learning_rate=1e-4, critic_learning_rate=1e-4, discount=1 - 1 / 333, unroll=5,
    ),
    updates_per_episode=50, epsilon=1e-8, warmup=1000,
)  # fmt: skip
"""Plan2Explore on a world model of DreamerV3's kind, 12M parameters."""

modern_tiny = replace(
    modern, model=replace(modern.model, deter=128, stoch=8, classes=8, blocks=4, **TINY_MODEL),
    intrinsic=replace(modern.intrinsic, width=64, learning_rate=1e-3),
    actor_critic=replace(modern.actor_critic, horizon=5, discount=0.97, explorer_entropy=1e-2, **TINY_ACTOR_CRITIC),
    updates_per_episode=250, warmup=100, adapt_from="replay", adapt_batch=32, adapt_discount=0.98, refine=3000, **TINY,
)  # fmt: skip
"""The modern pieces on CPUs."""

PRESETS = {"paper": paper, "small": small, "tiny": tiny, "modern": modern, "modern-tiny": modern_tiny}

RENAMED = {
    "novelty": "intrinsic", "behavior": "actor_critic", "trace": "lambda_", "actor_start_std": "start_std", "see": "obs",
}  # fmt: skip
"""Settings of version 0.1 by their names of today: runs on disk, flags and keyword arguments keep working."""


def rename_flags(arguments: list[str]) -> list[str]:
    """Command-line arguments with flags of version 0.1 by their names of today."""

    def renamed(word: str) -> str:
        flag, equals, value = word.partition("=")
        parts = flag.removeprefix("--").replace("-", "_").split(".")
        today = ".".join(RENAMED.get(part, part).rstrip("_") for part in parts).replace("_", "-")
        return f"--{today}{equals}{value}"

    return [renamed(word) if re.match(r"--(agent\.|see($|=))", word) else word for word in arguments]


def preset_of(arguments: list[str]) -> AgentConfig:
    """The preset of a command line, looked up before that is parsed: the defaults of other flags depend on it."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    names = [name for flag, name in pairwise(words) if flag == "--preset"]
    return PRESETS.get(names[-1], paper) if names else paper


@dataclass(frozen=True)
class WorldConfig:
    """The environment, and what the agent observes of it."""

    world: Annotated[str, tyro.conf.Suppress] = "walker"
    """A bare domain (walker), a task (walker_walk), gymnasium:ID, or mjcf:FILE.xml."""
    obs: Literal["pixels", "proprio", "both"] = "pixels"
    """What the agent observes: images (the paper), vectors (the suite's proprioception), or both."""
    size: int = 64
    """Side of the images in pixels (the paper: 64)."""
    action_repeat: int = 2
    """Env steps per action (the paper: 2)."""
    renderer: str = "auto"
    """auto, raycast or gl."""
    camera: str | None = None
    """Name or number of a camera of the model, or free; none: the one chosen for the world."""
    env_arg: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """An argument of a gymnasium: or mjcf: world. It becomes part of the world's name. May be repeated."""


@dataclass(frozen=True)
class Schedule:
    """How collecting and learning take turns, and what is kept on the way. Steps are env steps."""

    seed_episodes: int = 5
    """Episodes of random actions before anything is learned (the paper: 5)."""
    updates_per_episode: Natural | None = None
    """Updates for every 1000 env steps; none: as many as the preset says (the paper: 100, an episode)."""
    collect: Literal["overlap", "in-turn"] = "overlap"
    """overlap: environments step while the device trains, and running episodes are learned from. in-turn: whole
    episodes, then their updates, as in the paper; reproducible bit by bit on a CPU."""
    environments: Natural = 0
    """Environments that are stepped together; 0: overlap one for each core, at most 16, in short runs
    fewer; in-turn 1 (the paper)."""
    block: Natural = 0
    """Updates in one compiled loop; 0: as many as one step of all environments is due, from 1 to 25."""
    evaluate_every: Natural = 25_000
    """Env steps between evaluations of the probes (the authors' released code: 10,000)."""
    evaluate_episodes: Natural = 10
    """Episodes of an evaluation (the authors' released code: 1, and tables average the last 20)."""
    snapshot_every: int = 100_000
    """Env steps between snapshots, from which `adapt --at` can start."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints: what a kill can cost in time. Episodes are on disk at once."""
    memory: Literal["auto", "device", "host"] = "auto"
    """Where frames are kept for sampling; auto: on the accelerator if they fit."""
    devices: int = 1
    """Devices that share the batch of every update; they divide it. One of them acts."""

    def resolved(self, agent: AgentConfig) -> "Schedule":
        """The schedule with the agent's own number of updates where none is given."""
        given = self.updates_per_episode
        return replace(self, updates_per_episode=agent.updates_per_episode if given is None else given)


@dataclass(frozen=True)
class ExploreConfig:
    """Phase 1: explore without reward (Algorithm 1)."""

    world: Annotated[WorldConfig, tyro.conf.arg(name="")] = field(default_factory=WorldConfig)
    schedule: Annotated[Schedule, tyro.conf.arg(name="")] = field(default_factory=Schedule)
    agent: AgentConfig = field(default_factory=AgentConfig)
    probes: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Tasks that are trained beside exploration on stopped features, and evaluated on a schedule."""
    seed: Seed = 0
    """Random seed."""

    def resolved(self) -> "ExploreConfig":
        """The configuration with every setting that follows from another one filled in."""
        return replace(self, schedule=self.schedule.resolved(self.agent))


@dataclass(frozen=True)
class AdaptConfig:
    """Phase 2: adapt to a task (Algorithm 2)."""

    schedule: Annotated[Schedule, tyro.conf.arg(name="")] = field(default_factory=Schedule)
    updates: int = 10_000
    """Updates before any new interaction: in imagination, or from replay (modern-tiny). The paper does not say how
    many; the authors' released code trained the task's behaviour throughout exploration (100,000 at 1M env steps)."""
    shots: Natural = 0
    """Episodes that the task's policy collects after that: 0 is zero-shot (the paper's few-shot: 150)."""
    at: tyro.conf.Suppress[Natural | None] = None
    """Env steps of the snapshot to start from; none: the last one."""
    seed: Seed = 0
    """Of the new networks and environments."""
    agent: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="SETTING=VALUE")] = ()
    """A setting of the agent that differs from the exploration's: adapt_from=replay, or actor_critic.discount=0.99. May
    be repeated."""


def check_numbers(config: Any, where: str = "") -> None:
    """Refuses numbers of a configuration that make no sense, such as a batch of no sequences."""
    for name, kind in get_type_hints(type(config), include_extras=True).items():
        value = getattr(config, name)
        if is_dataclass(value):
            check_numbers(value, f"{where}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            kind = get_args(kind)[0] if get_origin(kind) in (Union, UnionType) else kind
            given = [extra for extra in getattr(kind, "__metadata__", ()) if isinstance(extra, Limits)]
            (given[0] if given else Limits(1 if kind is int else 0)).check(where + name, value)
        elif isinstance(value, tuple) and not all(abs(each) <= LARGEST for each in value if isinstance(each, float)):
            raise ValueError(f"{where}{name} must be finite; got {value}.")


def check_counts(**values: int) -> None:
    """Refuses numbers of something that are less than 1."""
    for name, value in values.items():
        Limits(1).check(name, value)


def check_seed(seed: int) -> None:
    """Refuses a seed that NumPy would not take."""
    check_numbers(AdaptConfig(seed=seed))


def whole_steps(steps: float) -> int:
    """A number of env steps as people write it: 1e6."""
    if not abs(steps) <= LARGEST:
        raise ValueError(f"A number of env steps is one such as 1e6; got {steps}.")
    return int(steps)


def read_config(kind: type[Config], values: Mapping[str, Any], where: str = "") -> Config:
    """A configuration from plain values, such as those of a file. Says which value is wrong, and what was expected."""
    hints = get_type_hints(kind)
    values = {RENAMED.get(name, name) if name not in hints else name: value for name, value in values.items()}
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ValueError(f"There is no setting {where}{unknown[0]}; known are {', '.join(hints)}")
    return kind(**{name: _read_value(hints[name], value, where + name) for name, value in values.items()})


def with_settings(agent: AgentConfig, settings: Iterable[str]) -> AgentConfig:
    """An agent in which single settings are others: actor_critic.discount=0.99."""
    values = asdict(agent)
    for text in settings:
        name, equals, value = text.partition("=")
        part, _, last = name.rpartition(".")
        place = values.get(part) if part else values
        if not (equals and isinstance(place, dict)) or isinstance(place.get(last), dict):
            raise ValueError(f"A setting of the agent is one such as actor_critic.discount=0.99; got {text!r:.100}.")
        try:
            place[last] = json.loads(value)
        except ValueError:
            place[last] = value
    changed = read_config(AgentConfig, values, "agent.")
    check_numbers(changed, "agent.")
    return changed


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
    elif kind is float and (isinstance(value, float) or (type(value) is int and abs(value) <= LARGEST)):
        return float(value)
    elif isinstance(kind, type) and type(value) is kind:
        return value
    expected = kind if origin else getattr(kind, "__name__", kind)
    raise ValueError(f"The setting {where} cannot be {value!r:.100}; expected {expected}")


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
