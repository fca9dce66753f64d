"""The world model: PlaNet's recurrent state-space model with its encoders and decoders (equation 1 of the
paper).

Sequences are time-major inside the agent: (time, batch, ...). Stored step t holds the observation o_t and the
action a_(t-1) that led to it, so the model's step t is: from s_(t-1), with that action, to the prior of s_t;
then, seeing o_t, to its posterior.
"""

from functools import partial
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Num, PRNGKeyArray

from plan2explore.agent.activations import elu
from plan2explore.agent.distributions import Normal, normal_kl, normal_sample
from plan2explore.agent.networks import MLP, GRUCell, ImageDecoder, ImageEncoder, Linear
from plan2explore.agent.products import plus, weights_apart
from plan2explore.config import ModelConfig, Spaces


class State(NamedTuple):
    """The latent state s: what the model remembers, and what it infers or guesses."""

    deter: Float[Array, "*batch deter"]
    stoch: Float[Array, "*batch stoch"]

    @property
    def features(self) -> Float[Array, "*batch features"]:
        """Both as one vector: what every head sees of a state."""
        return jnp.concatenate(self, -1)


class Observation(NamedTuple):
    """What the agent sees at each step; either may be missing."""

    image: Num[Array, "*batch height width 3"] | None = None
    proprio: Float[Array, "*batch proprio"] | None = None


class Observed(NamedTuple):
    """A sequence as the model sees it: states, the posteriors they came from, and the priors."""

    states: State
    posterior: Normal
    prior: Normal


def draw_normal(key: PRNGKeyArray, *shape: int) -> Float[Array, "..."]:
    """Standard Gaussian noise, drawn flat: a draw with several axes takes eight times longer to compile."""
    return jax.random.normal(key, (prod(shape),)).reshape(shape)


class RSSM(eqx.Module):
    """The latent dynamics: a recurrent state and a stochastic one."""

    enter: Linear
    cell: GRUCell
    prior_hidden: Linear
    prior_out: Linear
    posterior_hidden: Linear
    posterior_out: Linear
    deter: int = eqx.field(static=True)
    stoch: int = eqx.field(static=True)
    min_std: float = eqx.field(static=True)
    unroll: int = eqx.field(static=True)

    def __init__(self, config: ModelConfig, embedding: int, action: int, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 6)
        self.deter, self.stoch, self.min_std, self.unroll = (
            config.deter,
            config.stoch,
            config.min_std,
            config.unroll,
        )
        self.enter = Linear(config.stoch + action, config.hidden, key=keys[0])
        self.cell = GRUCell(config.hidden, config.deter, key=keys[1])
        self.prior_hidden = Linear(config.deter, config.hidden, key=keys[2])
        self.prior_out = Linear(config.hidden, 2 * config.stoch, key=keys[3])
        self.posterior_hidden = Linear(config.deter + embedding, config.hidden, key=keys[4])
        self.posterior_out = Linear(config.hidden, 2 * config.stoch, key=keys[5])

    def start(self, *batch: int) -> State:
        """The state before anything was seen."""
        return State(*(jnp.zeros((*batch, size), self.dtype) for size in (self.deter, self.stoch)))

    @property
    def dtype(self) -> jnp.dtype:
        """The precision of computation: that of the parameters as they were read."""
        return self.enter.weight.dtype

    def recur(self, state: State, action: Float[Array, "*batch action"]) -> Float[Array, "*batch deter"]:
        """The recurrent state after an action: f(s_t, a_t)."""
        return self.cell(elu(self.enter(jnp.concatenate([state.stoch, action], -1))), state.deter)

    def prior(self, deter: Float[Array, "*batch deter"]) -> Normal:
        """The stochastic state as the recurrent one predicts it."""
        return self._normal(self.prior_out(elu(self.prior_hidden(deter))))

    def posterior(
        self, deter: Float[Array, "*batch deter"], embedding: Float[Array, "*batch embedding"]
    ) -> Normal:
        """The stochastic state once the observation is seen."""
        return self._normal(
            self.posterior_out(elu(self.posterior_hidden(jnp.concatenate([deter, embedding], -1))))
        )

    def imagine(
        self, state: State, action: Float[Array, "*batch action"], noise: Float[Array, "*batch stoch"]
    ) -> State:
        """The next state without looking: a sample of the prior."""
        deter = self.recur(state, action)
        return State(deter, normal_sample(self.prior(deter), noise).astype(deter.dtype))

    def infer(
        self,
        state: State,
        action: Float[Array, "*batch action"],
        embedding: Float[Array, "*batch embedding"],
        noise: Float[Array, "*batch stoch"],
    ) -> State:
        """The next state with its observation: a sample of the posterior."""
        deter = self.recur(state, action)
        return State(deter, normal_sample(self.posterior(deter, embedding), noise).astype(deter.dtype))

    def observe(
        self,
        actions: Float[Array, "time batch action"],
        embeddings: Float[Array, "time batch embedding"],
        key: PRNGKeyArray,
    ) -> Observed:
        """Infers the states of whole sequences, from the zero state: `infer` at each step, and the priors.

        What does not depend on the state is computed for all steps at once: the actions' and the embeddings'
        shares of their layers before the loop, the priors and the weights' gradients after it.
        """

        def spread(bias: Float[Array, " size"]) -> Float[Array, "time batch size"]:
            return plus(jnp.zeros((*actions.shape[:2], bias.size), self.dtype), bias)

        enter, enter_action = jnp.split(self.enter.weight, [self.stoch])
        hidden, hidden_embedding = jnp.split(self.posterior_hidden.weight, [self.deter])
        # One product of the recurrent state serves this step's posterior and the next step's cell, whose bias comes
        # in later: as that of a product with nothing.
        both = jnp.concatenate([hidden, self.cell.state_weight], 1)
        nothing = jnp.zeros((0, self.cell.bias.size), self.dtype)
        weights = enter, self.cell.input_weight, both, self.posterior_out.weight, nothing
        to_hidden = plus(embeddings @ hidden_embedding, self.posterior_hidden.bias)
        biases = (
            plus(actions @ enter_action, self.enter.bias),
            spread(self.cell.bias),
            jnp.concatenate([to_hidden, spread(jnp.zeros_like(self.cell.bias))], -1),
            spread(self.posterior_out.bias),
            spread(self.cell.state_bias),
        )
        noise = draw_normal(key, *actions.shape[:2], self.stoch)
        states, posterior = weights_apart(partial(self._observe_loop, noise), weights, biases)
        return Observed(states, posterior, self.prior(states.deter))

    def _observe_loop(
        self, noise: Float[Array, "time batch stoch"], weights: tuple[Array, ...], biases: tuple[Array, ...]
    ) -> tuple[tuple[State, Normal], tuple[Array, ...]]:
        """The states and posteriors of all steps, and what each weight was multiplied with."""
        enter, gates, both, out, _ = weights

        def step(carried: tuple[State, Array], now: tuple[Array, tuple[Array, ...]]) -> tuple[tuple[State, Array], Any]:
            (state, remembered), (noise, (to_enter, to_gates, to_both, to_out, to_memory)) = carried, now
            entered = elu(state.stoch @ enter + to_enter)
            deter = self.cell.gate(entered @ gates + to_gates, remembered + to_memory, state.deter)
            to_hidden, remembered = jnp.split(deter @ both + to_both, [enter.shape[-1]], -1)
            seen = elu(to_hidden)
            posterior = self._normal(seen @ out + to_out)
            after = State(deter, normal_sample(posterior, noise).astype(deter.dtype))
            return (after, remembered), (after, posterior, entered, seen)

        start = self.start(noise.shape[1])
        carried = start, jnp.zeros_like(biases[-1][0])
        states, posterior, entered, seen = lax.scan(step, carried, (noise, biases), unroll=self.unroll)[1]
        before = jnp.concatenate([start.stoch[None], states.stoch[:-1]])
        return (states, posterior), (before, entered, states.deter, seen, states.deter[..., :0])

    def _normal(self, out: Float[Array, "*batch two_stoch"]) -> Normal:
        mean, raw = jnp.split(out.astype(jnp.float32), 2, -1)
        return Normal(mean, jax.nn.softplus(raw) + self.min_std)


class WorldModel(eqx.Module):
    """Encoders, latent dynamics and decoders. Reward heads are apart: exploration must not see a reward."""

    rssm: RSSM
    image_encoder: ImageEncoder | None
    image_decoder: ImageDecoder | None
    proprio_encoder: MLP | None
    proprio_decoder: MLP | None
    embedding: int = eqx.field(static=True)
    config: ModelConfig = eqx.field(static=True)

    def __init__(self, config: ModelConfig, spaces: Spaces, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 5)
        features, width, depth = config.deter + config.stoch, config.proprio_width, config.proprio_depth
        self.config, self.embedding = config, 0
        self.image_encoder = self.image_decoder = self.proprio_encoder = self.proprio_decoder = None
        if spaces.image is not None:
            self.image_encoder = ImageEncoder(spaces.image, config.conv_depth, key=keys[0])
            self.image_decoder = ImageDecoder(features, spaces.image, config.conv_depth, key=keys[1])
            self.embedding += self.image_encoder.features
        if spaces.proprio is not None:
            self.proprio_encoder = MLP(spaces.proprio, width, width, depth, key=keys[2])
            self.proprio_decoder = MLP(features, spaces.proprio, width, depth, key=keys[3])
            self.embedding += width
        self.rssm = RSSM(config, self.embedding, spaces.action, keys[4])

    def encode(self, observation: Observation) -> Float[Array, "*batch embedding"]:
        """The embedding h: features of the picture and of proprioception, side by side."""
        dtype, features = self.rssm.dtype, []
        if self.image_encoder is not None:
            assert observation.image is not None
            features.append(self.image_encoder(center(observation.image).astype(dtype)))
        if self.proprio_encoder is not None:
            assert observation.proprio is not None
            features.append(self.proprio_encoder(observation.proprio.astype(dtype)))
        return jnp.concatenate(features, -1)

    def likelihood_costs(
        self, states: State, observation: Observation
    ) -> dict[str, Float[Array, "time batch"]]:
        """What the decoders miss at each step: see `squared_miss`."""
        costs = {}
        if self.image_decoder is not None:
            assert observation.image is not None
            costs["image"] = self.image_decoder.squared_miss(states.features, center(observation.image))
        if self.proprio_decoder is not None:
            assert observation.proprio is not None
            costs["proprio"] = squared_miss(self.proprio_decoder(states.features), observation.proprio)
        return costs


def center(image: Num[Array, "*batch height width 3"]) -> Float[Array, "*batch height width 3"]:
    """Pixels between -0.5 and 0.5. Pictures of floats are taken to be so already."""
    return image.astype(jnp.float32) / 255 - 0.5 if image.dtype == jnp.uint8 else image


def squared_miss(
    guess: Float[Array, "*batch event"], truth: Float[Array, "*batch event"]
) -> Float[Array, "*batch"]:
    """Half the squared error, summed: a unit Gaussian's negative log-likelihood, less its constant."""
    return 0.5 * jnp.square(guess.astype(jnp.float32) - truth.astype(jnp.float32)).sum(-1)


class Seen(NamedTuple):
    """A batch as the world model sees it."""

    observed: Observed
    embeddings: Float[Array, "time batch embedding"]
    costs: dict[str, Float[Array, "time batch"]]
    """Each term of the loss at each step; the divergence is here without free nats."""


def infer_states(
    model: WorldModel, observation: Observation, actions: Float[Array, "time batch action"], key: PRNGKeyArray
) -> Seen:
    """What the model makes of a batch, without any loss."""
    with jax.named_scope("encoder"):
        embeddings = model.encode(observation)
    with jax.named_scope("rssm"):
        observed = model.rssm.observe(actions.astype(embeddings.dtype), embeddings, key)
    return Seen(observed, embeddings, {})


def model_loss(
    model: WorldModel, observation: Observation, actions: Float[Array, "time batch action"], key: PRNGKeyArray
) -> tuple[Float[Array, ""], Seen]:
    """The negative evidence bound: what the decoders miss, and how far posteriors are from priors."""
    config = model.config
    noise_key, state_key = jax.random.split(key)
    if observation.image is not None:
        image = center(observation.image)
        if config.dequantise:
            image = image + jax.random.uniform(noise_key, (image.size,), maxval=1 / 255).reshape(image.shape)
        observation = observation._replace(image=image)
    seen = infer_states(model, observation, actions, state_key)
    with jax.named_scope("decoder"):
        costs = model.likelihood_costs(seen.observed.states, observation)
    costs["kl"] = normal_kl(seen.observed.posterior, seen.observed.prior)
    scales = {"image": config.image_scale, "proprio": config.proprio_scale, "kl": config.kl_scale}
    paid = costs | {"kl": jnp.maximum(costs["kl"], config.free_nats)}
    loss = sum((scales[name] * cost.mean() for name, cost in paid.items()), jnp.zeros(()))
    return loss, seen._replace(costs=costs)
