"""What every compiled function here shares: the compiler's settings, and vectors of three numbers.

Vectors are tuples, which live in registers and cost no memory; matrices and tables are arrays. A table has
one row for each object (a geom, a light); its columns are named by constants, those of vectors by their first
column.
"""

import contextlib
import fcntl
import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.options import DefaultOptions

Vector = tuple[float, float, float]
Table = np.ndarray  # float64 (row, column)

OPTIONS: dict[str, Any] = {"fastmath": True, "nogil": True, "error_model": "numpy"}
if hasattr(DefaultOptions, "_nrt"):
    # Nothing here makes an array, and Python holds those that are given. To count references to them (atomically, at
    # every call, several times for each pixel) took almost half of a frame.
    OPTIONS["_nrt"] = False
# Functions that only compiled functions call need no way in from Python: without one they compile a third
# faster.
INTERNAL: dict[str, Any] = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Any:
    """Compiles a function for other compiled functions to call. Python must not: that ends the process."""
    return numba.njit(**INTERNAL)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compiles a function into each of its callers: for many arrays at once are slow to hand over."""
    return numba.njit(forceinline=True, **INTERNAL)(function)


def entry(function: Callable[..., Any]) -> Any:
    """Compiles a function that Python calls, with all that it calls, and keeps the result on disk if it can.

    numba looks at the function's own file and at its free variables to tell whether the kept result still
    holds, so a function that calls others must have `sources_digest()` as a free variable. It must be called
    with one set of argument types only: then processes that all start at once write the same file, in
    whatever order. The first call in a process belongs into `one_at_a_time`: then only one of them compiles.
    """
    try:
        return numba.njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # no folder can be written, neither the package's nor the user's cache
        return numba.njit(**OPTIONS)(function)


@contextlib.contextmanager
def one_at_a_time(function: Any) -> Iterator[None]:
    """Lets one process compile a function while the others wait, which then find it on disk.

    Sixteen workers that all compile take sixteen cores for half a minute, which an update's compiler could use. What
    was compiled before is said in the lock's file: then nobody waits.
    """
    mark = f"{sources_digest()} numba {numba.__version__}"
    with contextlib.ExitStack() as stack:
        file = None
        with contextlib.suppress(OSError, TypeError):  # nothing is kept on disk, or no lock can be there
            folder = Path(function.stats.cache_path)
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((folder / f"{function.__name__}.lock").open("a+"))
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, be it by the process' death
            file.seek(0)
            if file.read() == mark:
                fcntl.flock(file, fcntl.LOCK_UN)
                file = None
        yield
        if file:
            with contextlib.suppress(OSError):
                file.truncate(0)
                file.write(mark)


def sources_digest() -> int:
    """A number that changes with any source file of this renderer."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return zlib.crc32(b"".join(path.read_bytes() for path in sources))


@compiled
def vector(table: Table, row: int, column: int) -> Vector:
    """The three numbers of a table's row that start at a column."""
    return table[row, column], table[row, column + 1], table[row, column + 2]


@compiled
def store(table: Table, row: int, column: int, value: Vector) -> None:
    """Writes three numbers into a table's row from a column on."""
    table[row, column], table[row, column + 1], table[row, column + 2] = value


@compiled
def add(a: Vector, b: Vector) -> Vector:
    """Sum."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@compiled
def subtract(a: Vector, b: Vector) -> Vector:
    """Difference."""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


@compiled
def multiply(a: Vector, b: Vector) -> Vector:
    """Product of each pair of components."""
    return a[0] * b[0], a[1] * b[1], a[2] * b[2]


@compiled
def scale(a: Vector, factor: float) -> Vector:
    """A vector times a number."""
    return a[0] * factor, a[1] * factor, a[2] * factor


@compiled
def along(origin: Vector, distance: float, direction: Vector) -> Vector:
    """The point at a distance along a ray."""
    return add(origin, scale(direction, distance))


@compiled
def dot(a: Vector, b: Vector) -> float:
    """Inner product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@compiled
def cross(a: Vector, b: Vector) -> Vector:
    """Vector product."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@compiled
def normalized(a: Vector) -> Vector:
    """The vector at length 1; zero stays zero."""
    return scale(a, 1.0 / math.sqrt(dot(a, a) + 1e-30))


@compiled
def clamped(a: Vector) -> Vector:
    """A colour as the frame buffer keeps it: no component above 1."""
    return min(a[0], 1.0), min(a[1], 1.0), min(a[2], 1.0)


@compiled
def power(base: float, exponent: float) -> float:
    """base ** exponent for base >= 0, quick for the whole exponents that materials and lights have."""
    whole = int(exponent)
    if whole != exponent:
        return math.exp(exponent * math.log(max(base, 1e-30)))
    result = 1.0
    while whole > 0:
        if whole & 1:
            result *= base
        base *= base
        whole >>= 1
    return result
