"""dm_control's named indexing (`physics.named.data.xpos["torso", "z"]`), with each name looked up once.

The suite's rewards spend most of their time turning the same few names into the same few numbers. What they became is
remembered for each field; keys that are not made of plain names, whole numbers and slices go to dm_control every time.
"""

from typing import Any

from dm_control.mujoco import index

MOST = 10_000  # remembered keys: far more than the suite has
_original = index.FieldIndexer._convert_key
_known: dict[tuple[Any, Any], Any] = {}


def _fixed(item: Any) -> Any:
    """The item as something that a dictionary takes; None when it is of no known kind."""
    kind = type(item)
    if kind is str or kind is int:
        return item
    if kind is list and all(type(each) is str for each in item):
        return ("list", *item)
    if kind is slice and all(type(each) in (int, type(None)) for each in (item.start, item.stop, item.step)):
        return ("slice", item.start, item.stop, item.step)
    return None


def convert_key(field: Any, key: Any) -> Any:
    """A key with names, as NumPy takes it."""
    if type(key) is tuple:
        items = tuple([_fixed(item) for item in key])
        fixed: Any = None if None in items else ("tuple", items)
    else:
        fixed = _fixed(key)
    if fixed is None:
        return _original(field, key)
    place = (field._axes, fixed)  # the axes know the names; fields of the same axes have the same
    if place not in _known:
        if len(_known) >= MOST:
            _known.clear()
        _known[place] = _original(field, key)
    return _known[place]


def install() -> None:
    """Makes all named indexing of the process use it."""
    index.FieldIndexer._convert_key = convert_key
