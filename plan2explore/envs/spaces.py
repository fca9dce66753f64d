"""Gymnasium's spaces as the agent takes them: an action is one float vector, an observation an image and a vector."""

import functools
import itertools
import math
import operator
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.random import Generator
from PIL import Image

CHANNELS = (1, 3)
SMALLEST_IMAGE = 16  # pixels: a smaller array of bytes is symbols, such as MiniGrid's view of 7 x 7 cells
MOST_FRAMES = 16  # tiled into one image
EMPTY = spaces.Box(-np.inf, np.inf, (0,), np.float32)


class ActionVector:
    """Converts actions of a space from and to the float32 vectors of the agent.

    Continuous numbers are scaled to [-1, 1]. Each discrete choice is a one-hot vector; these lie side by side.
    """

    def __init__(self, space: spaces.Space[Any], name: str) -> None:
        self.native, self._space = space, _without_bits(space)
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

    Several images, and the frames of a stack, are tiled into one. Texts, and what has no fixed length, are left out.
    """

    def __init__(self, space: spaces.Space[Any], name: str) -> None:
        self._images: list[tuple[Any, ...]] = []
        self.vector_space = self._without_images(space, (), name) or EMPTY
        """Space of what rewards get: the observation without its images."""
        self.has_image = bool(self._images)
        self.size = spaces.flatdim(self.vector_space)
        if not self.size and not self.has_image:
            raise ValueError(f"{name} has observations {space}: no image, and nothing that gymnasium.spaces can flatten")

    def _without_images(self, space: spaces.Space[Any], path: tuple[Any, ...], name: str) -> spaces.Space[Any] | None:
        """The space without images, whose places are noted. In a tuple an empty vector stands for what is left out."""
        if isinstance(space, spaces.Dict):
            parts = {key: self._without_images(part, (*path, key), name) for key, part in space.spaces.items()}
            kept = {key: part for key, part in parts.items() if part is not None}
            return spaces.Dict(kept) if kept else None
        if isinstance(space, spaces.Tuple):
            return spaces.Tuple([self._without_images(part, (*path, at), name) or EMPTY for at, part in enumerate(space)])
        if is_image(space):
            self._images.append(path)
            return None
        if _is_bytes(space) and sum(length >= SMALLEST_IMAGE for length in space.shape or ()) > 1:
            raise ValueError(
                f"{name} observes uint8 of shape {space.shape}, neither an image nor a stack of at most {MOST_FRAMES}: wrap "
                "it in gymnasium.wrappers.TransformObservation, or in FlattenObservation if it is meant as a vector"
            )
        try:
            return space if not isinstance(space, spaces.Text) and spaces.flatdim(space) >= 0 else None
        except (NotImplementedError, ValueError):  # of no fixed length
            return None

    def rest(self, observation: Any) -> Any:
        """The observation without its images, as `vector_space` says."""
        return _select(self.vector_space, observation)

    def vector(self, observation: Any) -> np.ndarray:
        """Everything but the images, float64 (size,)."""
        return np.asarray(spaces.flatten(self.vector_space, self.rest(observation)), np.float64)

    def unflatten(self, vector: np.ndarray) -> Any:
        """What `rest` returned, from its `vector`."""
        return spaces.unflatten(self.vector_space, vector)

    def image(self, observation: Any, size: int) -> np.ndarray:
        """The image that is observed, uint8 (size, size, 3); several are tiled, row by row, on black."""
        found = [functools.reduce(operator.getitem, path, observation) for path in self._images]
        frames = [frame for image in found for frame in _frames(np.asarray(image))]
        side = math.ceil(math.sqrt(len(frames)))
        tile = size // side
        tiled = np.zeros((size, size, 3), np.uint8)
        for index, frame in enumerate(frames):
            row, column = np.multiply(divmod(index, side), tile)
            tiled[row : row + tile, column : column + tile] = resize(frame, tile)
        return tiled


def _select(space: spaces.Space[Any], observation: Any) -> Any:
    """The part of an observation that is in a space."""
    if isinstance(space, spaces.Dict):
        return {key: _select(part, observation[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(itertools.starmap(_select, zip(space, observation, strict=True)))
    return np.zeros(0, np.float32) if space.shape == EMPTY.shape else observation


def _is_bytes(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8


def is_image(space: spaces.Space[Any]) -> bool:
    """uint8 (height, width), or with 1 or 3 channels, last or first, and not tiny; or a stack of a few of these."""
    if not _is_bytes(space) or len(space.shape or ()) not in (2, 3, 4):
        return False
    frames = _frames(np.broadcast_to(np.uint8(0), space.shape or ()))
    return bool(frames) and min(frames[0].shape[:2]) >= SMALLEST_IMAGE


def _frames(image: np.ndarray) -> list[np.ndarray]:
    """The images (height, width) or (height, width, channels) in an array; none if there are too many.

    They lie along the first axis, or, grey ones, along a last one that is shorter.
    """
    if image.ndim == 2 or (image.ndim == 3 and image.shape[-1] in CHANNELS):
        return [image]
    if image.ndim == 3 and image.shape[0] in CHANNELS:
        return [np.moveaxis(image, 0, -1)]
    stack = np.moveaxis(image, -1, 0) if image.ndim == 3 and image.shape[-1] < image.shape[0] else image
    frames = [frame for part in stack for frame in _frames(part)]
    return frames if len(frames) <= MOST_FRAMES else []


def resize(image: np.ndarray, size: int) -> np.ndarray:
    """An image of any size, grey or coloured, channels first or last, as uint8 (size, size, 3); without transparency."""
    if image.ndim == 3 and image.shape[-1] not in CHANNELS:
        image = np.moveaxis(image, 0, -1) if image.shape[0] in CHANNELS else image[..., :3]
    if image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    resized = Image.fromarray(np.ascontiguousarray(image, np.uint8)).convert("RGB")
    return np.array(resized.resize((size, size), Image.Resampling.BOX))


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
