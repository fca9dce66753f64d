"""dm_control's named indexing (`physics.named.data.xpos["torso", "z"]`), with each name looked up once.

The suite's rewards spend most of their time turning the same few names into the same few numbers. What they became is
remembered for each field; keys that are not made of plain names, whole numbers and slices go to dm_control every time.
"""

from typing import Any, NamedTuple

import numpy as np
from dm_control.mujoco import index

MOST = 10_000  # remembered keys: far more than the suite has
_original = index.FieldIndexer._convert_key


class Place(NamedTuple):
    """Where a key leads in its field."""

    key: Any  # with numbers instead of names
    flat: np.ndarray | None  # the same elements counted through the whole field, where that is a quicker way to them


NUMBERS = {int, type(None)}
_known: dict[tuple[Any, Any], Place] = {}


def _fixed(item: Any) -> Any:
    """The item as something that a dictionary takes; None when it is of no known kind."""
    kind = type(item)
    if kind is str or kind is int:
        return item
    if kind is list and item:
        first = type(item[0])
        if first in (str, int) and {type(each) for each in item} == {first}:
            return ("list", *item)
    elif kind is slice and {type(item.start), type(item.stop), type(item.step)} <= NUMBERS:
        return ("slice", item.start, item.stop, item.step)
    return None


def _own(item: Any) -> Any:
    """A part of a converted key that nobody can change: dm_control may hand back the very list that it was given."""
    return np.array(item) if type(item) is list else item


def _find(field: Any, key: Any) -> Place:
    """Asks dm_control."""
    converted = _original(field, key)
    found = tuple(map(_own, converted)) if type(converted) is tuple else _own(converted)
    parts, array = found if type(found) is tuple else (found,), field._field
    flat = None
    if any(type(part) is np.ndarray for part in parts) and array.flags.c_contiguous:
        numbers = np.arange(array.size).reshape(array.shape)[found]
        if numbers.ndim == 1:  # with more dimensions, the copy's order in memory, and so of sums, could be another
            flat = numbers
    return Place(found, flat)


def _place(field: Any, key: Any) -> Place | None:
    """Where a key leads, looked up once; None for keys of unknown kinds."""
    kind = type(key)
    if kind is str:  # by far the most frequent keys first, without a further call
        fixed: Any = key
    elif kind is tuple:
        items = tuple([item if type(item) is str else _fixed(item) for item in key])
        fixed = None if None in items else ("tuple", items)
    else:
        fixed = _fixed(key)
    if fixed is None:
        return None
    try:
        return _known[field, fixed]
    except KeyError:
        place = _find(field, key)
        if len(_known) >= MOST:
            _known.clear()
        _known[field, fixed] = place
        return place


def convert_key(field: Any, key: Any) -> Any:
    """A key with names, as NumPy takes it."""
    place = _place(field, key)
    return _original(field, key) if place is None else place.key


def get_item(field: Any, key: Any) -> Any:
    """`field[key]`."""
    place = _place(field, key)
    if place is None:
        return field._field[_original(field, key)]
    known, flat = place
    return field._field[known] if flat is None else field._field.take(flat)


def install() -> None:
    """Makes all named indexing of the process use it."""
    index.FieldIndexer._convert_key = convert_key
    index.FieldIndexer.__getitem__ = get_item
