"""By which a reward function is known again: its source, and all that it takes from elsewhere.

That is what it closes over, its default arguments, the arguments of a `partial`, the attributes of an object that is
called or whose method it is, and the globals that it names, functions of the user's own among them, and so on. What
belongs to Python or to an installed package is known by its name.
"""

import ast
import contextlib
import copyreg
import dis
import functools
import hashlib
import inspect
import site
import sysconfig
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), range, slice)
INSTALLED = (
    *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), *site.getsitepackages(),
    site.getusersitepackages(),
)  # fmt: skip
OURS = __name__.partition(".")[0]


class NoIdentity(ValueError):
    """Something that cannot be told from others of its kind."""


def source_of(function: Callable[..., Any]) -> str | None:
    """A function's source without comments and layout, if there is one to be read."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):  # typed into a console, compiled, or an object that can be called
        return None
    with contextlib.suppress(SyntaxError):  # of a lambda in the middle of something
        source = ast.unparse(ast.parse(source))
    return source


def digest_of(value: Any) -> str:
    """16 hexadecimal digits that differ wherever functions or values do. Raises `NoIdentity`."""
    found = hashlib.sha256()
    try:
        for piece in _pieces(value, {}):
            found.update(b"%d:" % len(piece) + piece)
    except RecursionError:
        raise NoIdentity(f"{type(value).__name__}: it is nested too deeply") from None
    return found.hexdigest()[:16]


def _pieces(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[bytes]:
    """A value as a sequence of bytes. `seen` holds objects that were met before: by their number, and so they stay alive."""
    if isinstance(value, PLAIN):
        yield f"{type(value).__name__} {value!r}".encode()
        return
    yield type(value).__qualname__.encode()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield f"{value.dtype.str} {value.shape}".encode()
        yield value.tobytes()
    elif isinstance(value, set | frozenset):
        yield from sorted(digest_of(each).encode() for each in value)
    elif type(value) in (list, tuple, dict):
        for each in value.items() if isinstance(value, dict) else value:
            yield from _pieces(each, seen)
    elif id(value) in seen:
        yield b"again %d" % seen[id(value)][0]
    else:
        seen[id(value)] = len(seen), value
        for part in _parts(value):
            yield from _pieces(part, seen)
    yield b"end"


def _parts(value: Any) -> list[Any]:
    """What a function, a class or another object consists of."""
    if isinstance(value, ModuleType):
        return [value.__name__]  # what is read of it is among the globals of the function
    if isinstance(value, FunctionType | type) and _is_installed(value):
        return [value.__module__, value.__qualname__]
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | None):
        return [value.__module__, value.__qualname__]
    if isinstance(value, FunctionType):
        source = None if value.__name__ == "<lambda>" else source_of(value)  # a line may hold several lambdas
        cells = [_content(cell) for cell in value.__closure__ or ()]
        named = _globals_read(value.__code__, value.__globals__)
        return [source or value.__code__, value.__defaults__, value.__kwdefaults__, cells, named]
    if isinstance(value, CodeType):
        return [value.co_code, value.co_consts, value.co_names, value.co_varnames]
    if isinstance(value, type):
        kept = {name: each for name, each in vars(value).items() if isinstance(each, FunctionType) or name[:1] != "_"}
        return [value.__qualname__, value.__bases__, kept]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget]
    if inspect.ismemberdescriptor(value) or inspect.isgetsetdescriptor(value):
        return [value.__name__]
    if hasattr(value, "__wrapped__"):  # compiled or cached: the function behind it
        return [value.__wrapped__]
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = reduce(value) if reduce else value.__reduce_ex__(4)  # as for pickle: class, arguments, attributes, items
    except Exception as error:
        raise NoIdentity(f"{type(value).__name__}: {error}") from None
    if isinstance(reduced, str):
        return [type(value).__module__, reduced]
    return [*reduced[:3], *(list(each) for each in reduced[3:5] if each is not None)]


def _is_installed(value: Any) -> bool:
    """Whether a function or class comes with Python, this package or another one, and not from the user's own files."""
    name = getattr(value, "__module__", None)
    if name is None or name.partition(".")[0] == OURS:
        return True
    if name == "__main__":
        return False
    module = inspect.getmodule(value)
    file = getattr(module, "__file__", None)
    if module is None or file is None or file.startswith(INSTALLED):
        return module is not None
    path = Path(file).absolute()
    depth = name.count(".") + (path.stem == "__init__")  # of the file below the folder on Python's path
    return _has_packages([*path.parents][: depth + 1][-1])


@functools.cache
def _has_packages(folder: Path) -> bool:
    """Whether pip has installed packages here: a folder of another environment, or of `pip install --target`."""
    return any(folder.glob("*.dist-info"))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def _globals_read(code: CodeType, names: dict[str, Any]) -> dict[str, Any]:
    """The globals that code reads, and of modules what is read of them: `constants.SPEED`."""
    found: dict[str, Any] = {}
    path, value = "", None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in names:
            path, value = step.argval, names[step.argval]
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, ModuleType):
            path, value = f"{path}.{step.argval}", getattr(value, step.argval, None)
        elif step.opname not in ("CACHE", "EXTENDED_ARG", "PUSH_NULL"):
            value = None
            continue
        if not isinstance(value, ModuleType):
            found[path] = value
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _globals_read(inner, names)
    return dict(sorted(found.items()))
