"""The world model: a recurrent state-space model with its encoders, decoders and losses (equation 1 of the paper).

Sequences are time-major inside the agent: (time, batch, ...). Stored step t holds the observation o_t and the action
a_(t-1) that led to it, so the model's step t is: from s_(t-1), with that action, to the prior of s_t; then, with o_t, to
its posterior. Where `is_first` marks the start of an episode, the state and the action before it are zero.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Num, PRNGKeyArray

from plan2explore.agent.fast.activations import elu
from plan2explore.agent.fast.rssm import observe_any, observe_gru
from plan2explore.agent.heads import ScalarHead, symlog
from plan2explore.agent.latents import make_latent
from plan2explore.agent.networks import MLP, BlockGRUCell, GRUCell, ImageDecoder, ImageEncoder, Linear
from plan2explore.config import ModelConfig, Spaces


class State(NamedTuple):
    """The latent state s: the recurrent (deterministic) and the stochastic part."""

    deter: Float[Array, "*batch deter"]
    stoch: Float[Array, "*batch stoch"]

    @property
    def features(self) -> Float[Array, "*batch features"]:
        """Both as one vector: the input of every head."""
        return jnp.concatenate(self, -1)


class Observation(NamedTuple):
    """What the agent observes at each step; either may be missing."""

    image: Num[Array, "*batch height width 3"] | None = None
    proprio: Float[Array, "*batch proprio"] | None = None


class Sequences(NamedTuple):
    """A batch as the networks take it: time first."""

    observation: Observation
    actions: Float[Array, "time batch action"]
    rewards: Float[Array, "time batch tasks"]
    is_first: Bool[Array, "time batch"]
    is_terminal: Bool[Array, "time batch"]
    features: Float[Array, "time batch features"] | None = None
    """Of a frozen model, in place of observations."""


class GRUCore(eqx.Module):
    """The paper's recurrent network: one dense layer and a GRU."""

    enter: Linear
    cell: GRUCell

    def __init__(self, config: ModelConfig, stoch: int, action: int, keys: PRNGKeyArray) -> None:
        self.enter = Linear(stoch + action, config.hidden, key=keys[0])
        self.cell = GRUCell(config.hidden, config.deter, key=keys[1])

    def __call__(self, deter: Array, stoch: Array, action: Array) -> Array:
        return self.cell(elu(self.enter(jnp.concatenate([stoch, action], -1))), deter)


class RSSM(eqx.Module):
    """The latent dynamics."""

    core: GRUCore | BlockGRUCell
    prior_net: MLP
    posterior_net: MLP
    latent: Any = eqx.field(static=True)
    deter: int = eqx.field(static=True)
    unroll: int = eqx.field(static=True)

    def __init__(self, config: ModelConfig, embedding: int, action: int, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 4)
        self.latent, self.deter, self.unroll = make_latent(config), config.deter, config.unroll
        if config.core == "gru":
            self.core = GRUCore(config, self.latent.size, action, keys[:2])
        else:
            self.core = BlockGRUCell(config.deter, self.latent.size, action, config.hidden, config.blocks, keys[0])
        outputs, hidden, norm = self.latent.outputs, config.hidden, config.norm
        self.prior_net = MLP(config.deter, outputs, hidden, config.prior_depth, key=keys[2], norm=norm)
        self.posterior_net = MLP(config.deter + embedding, outputs, hidden, 1, key=keys[3], norm=norm)

    @property
    def dtype(self) -> jnp.dtype:
        """The precision of computation: that of the parameters as they were read."""
        return self.prior_net.layers[0].weight.dtype

    def initial(self, *batch: int) -> State:
        """The state before an episode."""
        return State(*(jnp.zeros((*batch, size), self.dtype) for size in (self.deter, self.latent.size)))

    def prior(self, deter: Float[Array, "*batch deter"]) -> Any:
        """The stochastic state as the recurrent one predicts it."""
        return self.latent.dist(self.prior_net(deter))

    def posterior(self, deter: Float[Array, "*batch deter"], embedding: Float[Array, "*batch embedding"]) -> Any:
        """The stochastic state given the observation."""
        return self.latent.dist(self.posterior_net(jnp.concatenate([deter, embedding], -1)))

    def imagine(self, state: State, action: Float[Array, "*batch action"], noise: Array | None) -> State:
        """The next state without an observation: a sample of the prior, or its mode without noise."""
        deter = self.core(*state, action)
        return self.state(deter, self.prior(deter), noise)

    def infer(self, state: State, action: Array, embedding: Array, noise: Array) -> tuple[State, Any]:
        """The next state given its observation, and the posterior that it was sampled from."""
        deter = self.core(*state, action)
        posterior = self.posterior(deter, embedding)
        return self.state(deter, posterior, noise), posterior

    def state(self, deter: Array, dist: Any, noise: Array | None) -> State:
        """The state of a recurrent part and a distribution's sample, or its mode without noise."""
        stoch = self.latent.mode(dist) if noise is None else self.latent.sample(dist, noise)
        return State(deter, stoch.astype(deter.dtype))

    def observe(
        self,
        actions: Float[Array, "time batch action"],
        embeddings: Float[Array, "time batch embedding"],
        is_first: Bool[Array, "time batch"],
        key: PRNGKeyArray,
    ) -> tuple[State, Any]:
        """Infers the states of whole sequences from the zero state, by `infer` at each step, and their posteriors."""
        noise = self.latent.noise(key, *actions.shape[:2])
        keep = ~is_first[..., None]
        actions = jnp.where(keep, actions, 0)
        fast = observe_gru if isinstance(self.core, GRUCore) and not self.posterior_net.norms else observe_any
        return fast(self, actions, embeddings, keep, noise)


class WorldModel(eqx.Module):
    """Encoders, latent dynamics and decoders. Reward heads are apart: exploration must not learn from a reward."""

    rssm: RSSM
    image_encoder: ImageEncoder | None
    image_decoder: ImageDecoder | None
    proprio_encoder: MLP | None
    proprio_decoder: MLP | None
    continue_head: ScalarHead | None
    embedding: int = eqx.field(static=True)
    config: ModelConfig = eqx.field(static=True)

    def __init__(self, config: ModelConfig, spaces: Spaces, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 6)
        features, width, depth = config.deter + make_latent(config).size, config.proprio_width, config.proprio_depth
        self.config, self.embedding = config, 0
        self.image_encoder = self.image_decoder = self.proprio_encoder = self.proprio_decoder = self.continue_head = None
        if spaces.image is not None:
            self.image_encoder = ImageEncoder(spaces.image, config.conv_depth, key=keys[0])
            self.image_decoder = ImageDecoder(features, spaces.image, config.conv_depth, key=keys[1])
            self.embedding += self.image_encoder.features
        if spaces.proprio is not None:
            self.proprio_encoder = MLP(spaces.proprio, width, width, depth, key=keys[2], norm=config.norm)
            self.proprio_decoder = MLP(features, spaces.proprio, width, depth, key=keys[3], norm=config.norm)
            self.embedding += width
        self.rssm = RSSM(config, self.embedding, spaces.action, keys[4])
        if spaces.terminates:
            width, depth = config.reward_width, config.reward_depth
            self.continue_head = ScalarHead(features, width, depth, keys[5], "bernoulli", config.norm)

    def encode(self, observation: Observation) -> Float[Array, "*batch embedding"]:
        """The embedding h: features of the image and of the vector, side by side."""
        dtype, features = self.rssm.dtype, []
        if self.image_encoder is not None:
            assert observation.image is not None
            features.append(self.image_encoder(center(observation.image).astype(dtype)))
        if self.proprio_encoder is not None:
            assert observation.proprio is not None
            features.append(self.proprio_encoder(self.transform(observation.proprio).astype(dtype)))
        return jnp.concatenate(features, -1)

    def decode(self, features: Float[Array, "*batch features"]) -> Observation:
        """The observation that is expected in a state; images around -0.5 to 0.5, as `center` makes them."""
        decoders = self.image_decoder, self.proprio_decoder
        image, proprio = (None if net is None else net(features).astype(jnp.float32) for net in decoders)
        if proprio is not None and self.config.symlog:
            proprio = jnp.sign(proprio) * jnp.expm1(jnp.abs(proprio))
        return Observation(image, proprio)

    def transform(self, vector: Float[Array, "*batch proprio"]) -> Float[Array, "*batch proprio"]:
        """A vector as it is encoded and predicted."""
        return symlog(vector.astype(jnp.float32)) if self.config.symlog else vector

    def reconstruction_losses(self, states: State, observation: Observation) -> dict[str, Float[Array, "time batch"]]:
        """Negative log-likelihoods of the observations, less their constants."""
        losses = {}
        if self.image_decoder is not None:
            assert observation.image is not None
            losses["image"] = self.image_decoder.gaussian_nll(states.features, center(observation.image))
        if self.proprio_decoder is not None:
            assert observation.proprio is not None
            losses["proprio"] = gaussian_nll(self.proprio_decoder(states.features), self.transform(observation.proprio))
        return losses


def center(image: Num[Array, "*batch height width 3"]) -> Float[Array, "*batch height width 3"]:
    """Pixels between -0.5 and 0.5. Images of floats are taken to be so already."""
    return image.astype(jnp.float32) / 255 - 0.5 if image.dtype == jnp.uint8 else image


def gaussian_nll(mean: Float[Array, "*batch event"], target: Float[Array, "*batch event"]) -> Float[Array, "*batch"]:
    """A unit Gaussian's negative log-likelihood, less its constant: half the squared error, summed."""
    return 0.5 * jnp.square(mean.astype(jnp.float32) - target.astype(jnp.float32)).sum(-1)


class ModelOutput(NamedTuple):
    """A batch as the world model infers it."""

    states: State
    embeddings: Float[Array, "time batch embedding"]
    losses: dict[str, Float[Array, "time batch"]]
    """Each term of the loss at each step, unweighted; the KL divergence without free nats."""


def infer_states(model: WorldModel, batch: Sequences, key: PRNGKeyArray) -> tuple[State, Any, Array]:
    """The states of a batch, their posteriors, and the embeddings."""
    with jax.named_scope("encoder"):
        embeddings = model.encode(batch.observation)
    with jax.named_scope("rssm"):
        states, posterior = model.rssm.observe(batch.actions.astype(embeddings.dtype), embeddings, batch.is_first, key)
    return states, posterior, embeddings


def known_states(model: WorldModel, batch: Sequences) -> ModelOutput:
    """The states of a batch of features that the model inferred before."""
    assert batch.features is not None
    features = batch.features.astype(model.rssm.dtype)
    states = State(features[..., : model.rssm.deter], features[..., model.rssm.deter :])
    return ModelOutput(states, features[..., :0], {})


def kl_loss(model: WorldModel, posterior: Any, prior: Any) -> tuple[Float[Array, "time batch"], Float[Array, "time batch"]]:
    """The weighted KL divergence with free nats, and the divergence itself.

    With equal weights it is one term that trains prior and posterior alike (the paper); with other weights it is
    DreamerV3's dynamics loss, which trains the prior, and representation loss, which trains the posterior.
    """
    config, kl = model.config, model.rssm.latent.kl
    divergence = kl(posterior, prior)
    if config.kl_scale == config.rep_scale:
        return config.kl_scale * jnp.maximum(divergence, config.free_nats), divergence
    dynamics = jnp.maximum(kl(lax.stop_gradient(posterior), prior), config.free_nats)
    representation = jnp.maximum(kl(posterior, lax.stop_gradient(prior)), config.free_nats)
    return config.kl_scale * dynamics + config.rep_scale * representation, divergence


def model_loss(model: WorldModel, batch: Sequences, key: PRNGKeyArray) -> tuple[Float[Array, ""], ModelOutput]:
    """The negative evidence bound, plus the continue head's loss in environments that terminate."""
    config, observation = model.config, batch.observation
    noise_key, state_key = jax.random.split(key)
    if observation.image is not None:
        image = center(observation.image)
        if config.dequantise:
            image = image + jax.random.uniform(noise_key, (image.size,), maxval=1 / 255).reshape(image.shape)
        observation = observation._replace(image=image)
    states, posterior, embeddings = infer_states(model, batch._replace(observation=observation), state_key)
    with jax.named_scope("rssm"):
        prior = model.rssm.prior(states.deter)
    with jax.named_scope("decoder"):
        losses = model.reconstruction_losses(states, observation)
    loss_kl, divergence = kl_loss(model, posterior, prior)
    scales = {"image": config.image_scale, "proprio": config.proprio_scale}
    loss = sum((scales[name] * each.mean() for name, each in losses.items()), loss_kl.mean())
    losses["kl"] = divergence
    if model.continue_head is not None:
        features = states.features if config.continue_gradient else lax.stop_gradient(states.features)
        target = 1.0 - batch.is_terminal
        losses["continue"] = model.continue_head.loss(model.continue_head.mlp(features), target)
        loss = loss + config.continue_scale * losses["continue"].mean()
    return loss, ModelOutput(states, embeddings, losses)
