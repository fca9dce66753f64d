"""Gymnasium's spaces as the agent takes them: an action is one float vector, an observation an image and a vector."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.random import Generator
from PIL import Image

CHANNELS = (1, 3)
SMALLEST_IMAGE = 16  # pixels: a smaller array of bytes is symbols, such as MiniGrid's view of 7 x 7 cells


class ActionVector:
    """Converts actions of a space from and to the float32 vectors of the agent.

    Continuous numbers are scaled to [-1, 1]. Each discrete choice is a one-hot vector; these lie side by side.
    """

    def __init__(self, space: spaces.Space[Any], name: str) -> None:
        self._space = _without_bits(space)
        choices = [_choices(leaf, name) for leaf in _leaves(self._space)]
        if len({bool(each) for each in choices}) > 1:
            raise ValueError(f"{name} mixes continuous and discrete actions ({space}); the agent takes one kind only")
        self.discrete: tuple[int, ...] = sum(choices, ())
        """Choices of each discrete action; empty for continuous actions."""
        flat: Any = spaces.flatten_space(self._space)
        self._low, self._high = np.asarray(flat.low, np.float64), np.asarray(flat.high, np.float64)
        self.size = self._low.size
        self._is_unit = bool(np.all(self._low == -1) and np.all(self._high == 1))
        self.space = spaces.Box(0.0 if self.discrete else -1.0, 1.0, (self.size,), np.float32)

    def to_native(self, vector: np.ndarray) -> Any:
        """The action that the environment takes. Of a discrete one the largest number counts."""
        vector = np.asarray(vector, np.float64)
        if self.discrete:
            flat = self._one_hot([int(part.argmax()) for part in np.split(vector, np.cumsum(self.discrete)[:-1])])
        else:
            flat = self._low + (np.clip(vector, -1.0, 1.0) + 1.0) / 2 * (self._high - self._low)
        return spaces.unflatten(self._space, flat)

    def to_vector(self, action: Any) -> np.ndarray:
        """The agent's vector for an action of the environment."""
        flat = self.flatten(action)
        if not self.discrete and not self._is_unit:
            flat = 2 * (flat - self._low) / (self._high - self._low) - 1
        return flat.astype(np.float32)

    def flatten(self, action: Any) -> np.ndarray:
        """The environment's action as numbers in its own units, for a snapshot."""
        return np.asarray(spaces.flatten(self._space, action), np.float64)

    def unflatten(self, numbers: np.ndarray) -> Any:
        """The inverse of `flatten`."""
        return spaces.unflatten(self._space, numbers)

    def sample(self, generator: Generator) -> np.ndarray:
        """A uniformly random action as a vector."""
        if self.discrete:
            return self._one_hot([int(generator.integers(count)) for count in self.discrete]).astype(np.float32)
        return generator.uniform(-1, 1, self.size).astype(np.float32)

    def _one_hot(self, chosen: list[int]) -> np.ndarray:
        hot = np.zeros(self.size)
        hot[np.cumsum((0, *self.discrete[:-1])) + chosen] = 1
        return hot


def _leaves(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [leaf for part in parts for leaf in _leaves(part)]
    return [space]


def _choices(leaf: spaces.Space[Any], name: str) -> tuple[int, ...]:
    """Choices of each discrete action of a space that has no parts; empty for a bounded Box."""
    if isinstance(leaf, spaces.Discrete):
        return (int(leaf.n),)
    if isinstance(leaf, spaces.MultiDiscrete):
        return tuple(leaf.nvec.ravel().tolist())
    if not isinstance(leaf, spaces.Box):
        raise ValueError(f"{name} has actions {leaf}; the agent takes Box, Discrete, MultiDiscrete and MultiBinary")
    if not leaf.is_bounded():
        raise ValueError(
            f"{name} has actions without bounds ({leaf}): wrap it in gymnasium.wrappers.TransformAction with a bounded "
            "action_space (RescaleAction and ClipAction need or remove bounds)"
        )
    return ()


def _without_bits(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """The space with every bit of a MultiBinary as a choice of two."""
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiDiscrete(np.full(space.shape, 2), dtype=np.int8)
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_without_bits(part) for part in space.spaces])
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _without_bits(part) for key, part in space.spaces.items()})
    return space


class ObservationParts:
    """Splits observations of a space into an image, if there is one, and everything else, flattened into a vector.

    Several images are tiled into one. Entries of a Dict that cannot be flattened (a text without a fixed length, say) are
    left out.
    """

    def __init__(self, space: spaces.Space[Any], name: str) -> None:
        self._images: list[str] = []
        self.vector_space: spaces.Space[Any] = space
        """Space of what rewards get: the observation without its image."""
        self.has_image = is_image(space)
        self._keys: list[str] | None = None
        if self.has_image:
            self.vector_space = spaces.Box(-np.inf, np.inf, (0,), np.float32)
        elif isinstance(space, spaces.Dict):
            self._images = [key for key, part in space.spaces.items() if is_image(part)]
            self._keys = [key for key, part in space.spaces.items() if not is_image(part) and _can_be_flat(part)]
            self.vector_space = spaces.Dict({key: space.spaces[key] for key in self._keys})
            self.has_image = bool(self._images)
        if not _can_be_flat(self.vector_space):
            raise ValueError(f"{name} has observations {space}, which gymnasium.spaces.flatten cannot flatten")
        self.size = spaces.flatdim(self.vector_space)
        if not self.size and not self.has_image:
            raise ValueError(f"{name} has observations {space}, with nothing in them for the agent")

    def rest(self, observation: Any) -> Any:
        """The observation without its image, as `vector_space` says."""
        if self._keys is not None:
            return {key: observation[key] for key in self._keys}
        return np.zeros(0, np.float32) if self.has_image else observation

    def vector(self, observation: Any) -> np.ndarray:
        """Everything but the image, float64 (size,)."""
        if not self.size:
            return np.zeros(0)
        return np.asarray(spaces.flatten(self.vector_space, self.rest(observation)), np.float64)

    def unflatten(self, vector: np.ndarray) -> Any:
        """What `rest` returned, from its `vector`."""
        if isinstance(self.vector_space, spaces.Box):
            vector = vector.astype(self.vector_space.dtype)
        return spaces.unflatten(self.vector_space, vector)

    def image(self, observation: Any, size: int) -> np.ndarray:
        """The image that is observed, uint8 (size, size, 3); several are tiled, row by row, on black."""
        if not self._images:
            return resize(np.asarray(observation), size)
        side = math.ceil(math.sqrt(len(self._images)))
        tile = size // side
        image = np.zeros((size, size, 3), np.uint8)
        for index, key in enumerate(self._images):
            row, column = np.multiply(divmod(index, side), tile)
            image[row : row + tile, column : column + tile] = resize(np.asarray(observation[key]), tile)
        return image


def is_image(space: spaces.Space[Any]) -> bool:
    """uint8 (height, width), or with 1 or 3 channels, last or first, and not tiny."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    shape = space.shape
    if len(shape) == 3:
        shape = shape[:-1] if shape[-1] in CHANNELS else shape[1:] if shape[0] in CHANNELS else ()
    return len(shape) == 2 and min(shape) >= SMALLEST_IMAGE


def _can_be_flat(space: spaces.Space[Any]) -> bool:
    try:
        spaces.flatdim(space)
    except (NotImplementedError, ValueError):
        return False
    return True


def resize(image: np.ndarray, size: int) -> np.ndarray:
    """An image of any size, grey or coloured, channels first or last, as uint8 (size, size, 3)."""
    if image.ndim == 3 and image.shape[-1] not in CHANNELS:
        image = np.moveaxis(image, 0, -1)
    if image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    picture = Image.fromarray(np.ascontiguousarray(image, np.uint8)).convert("RGB")
    return np.array(picture.resize((size, size), Image.Resampling.BOX))


# --- Spaces in files ---


def discrete_space(choices: tuple[int, ...]) -> spaces.Space[Any]:
    """The space of one choice, or of several."""
    return spaces.Discrete(choices[0]) if len(choices) == 1 else spaces.MultiDiscrete(list(choices))


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as JSON can hold it: bounds are texts, since they may be infinite, and one where all are the same."""
    if isinstance(space, spaces.Box):
        low, high = (sorted(set(ends)) if len(set(ends)) == 1 else ends for ends in map(_texts, (space.low, space.high)))
        return {"kind": "Box", "low": low, "high": high, "shape": list(space.shape), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "parts": {key: space_to_json(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [space_to_json(part) for part in space.spaces]}
    known = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
    raise ValueError(f"{space} cannot be kept with a data set: it can have {known}")


def _texts(numbers: np.ndarray) -> list[str]:
    return [repr(float(each)) for each in numbers.flat]


def space_from_json(content: Any) -> spaces.Space[Any]:
    """The inverse of `space_to_json`; anything else is a `ValueError`."""
    try:
        return _from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError, OverflowError) as error:
        raise ValueError(f"{str(content)[:100]!r} does not describe a space: {error!r}") from None


def _from_json(content: Any) -> spaces.Space[Any]:
    kind = content["kind"]
    if kind == "Box":
        shape, dtype = tuple(map(int, content["shape"])), np.dtype(content["dtype"])
        ends = (np.array(content[end], np.float64) for end in ("low", "high"))
        low, high = (np.broadcast_to(end, math.prod(shape)).reshape(shape).astype(dtype) for end in ends)
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(int(content["n"]), start=int(content["start"]))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(content["nvec"], np.int64))
    if kind == "MultiBinary":
        bits = list(map(int, content["shape"]))
        return spaces.MultiBinary(bits if len(bits) > 1 else bits[0])
    if kind == "Dict":
        return spaces.Dict({str(key): _from_json(part) for key, part in content["parts"].items()})
    if kind == "Tuple":
        return spaces.Tuple([_from_json(part) for part in content["parts"]])
    raise ValueError(f"there is no kind {kind!r}")
