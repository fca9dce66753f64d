"""Mazes for a point that is pushed around, or an ant: where exploration can be seen, and tasks that random actions rarely
solve.

One cell is one metre, the middle of the maze is the origin, x points east and y north. The point is damped so much that
it goes at most `SPEED` cells a second and rolls for less than a cell when it is no longer pushed. The ant has four legs of
two joints each, and walks.
"""

import functools
import math
import re

import numpy as np

# `#` is wall, `S` the start. Digits are goals and lie as on a numeric keypad: 9 is north-east, 5 the centre.
LAYOUTS = {
    "maze_u": """
##########
#7   8  9#
####### 6#
#S   2  3#
##########
""",
    "maze_rooms": """
###########
#7   #   9#
#    #    #
#    8    #
#    #    #
##4###    #
#    ###6##
#    #    #
#    2    #
#S   #   3#
###########
""",
    "maze_large": """
###############
#7    #   8  9#
# ### # ##### #
#   # # #   # #
### # #   # # #
#4  #  5# #   #
# ### ### ### #
# #   #   #  6#
# # # # # # ###
#S  # 2 #    3#
###############
""",
}
LAYOUTS["antmaze_u"] = LAYOUTS["maze_u"]
ANTS = ("antmaze_u",)
PLACES = dict(zip("789456123", ("nw", "n", "ne", "w", "centre", "e", "sw", "s", "se"), strict=True))

SPEED = 6.25  # cells a second along each axis: four actions of two env steps a cell
TIME_CONSTANT = 0.12  # seconds in which a ball that is not pushed loses all but 1/e of its speed
TIMESTEP, SUBSTEPS = 0.01, 2
RADIUS, WALL_HEIGHT = 0.15, 0.4
CAMERA = 4 * math.tan(math.radians(15))  # half of what the camera sees, in halves of the maze
MARKER = 0.4  # radius of the ball as it is drawn: seen well in 64 x 64 pixels
START_NOISE = 0.1  # cells, either way
ANT_TIMESTEP, ANT_SUBSTEPS = 0.005, 4
ANT_HEIGHT, ANT_KNEES = 0.15, 1.0  # where an episode begins: metres, radians
QPOS = slice(1, 3)  # in a snapshot: time comes first
Cell = tuple[int, int]


@functools.cache
def rows_of(domain: str) -> tuple[str, ...]:
    """The maze as rows of characters, north first."""
    return tuple(LAYOUTS[domain].strip().splitlines())


@functools.cache
def free_cells(domain: str) -> tuple[Cell, ...]:
    """(row, column) of every cell that is no wall; row 0 is the northern wall."""
    return tuple((i, j) for i, row in enumerate(rows_of(domain)) for j, mark in enumerate(row) if mark != "#")


@functools.cache
def goals(domain: str) -> dict[str, Cell]:
    """The cell of each task's goal, such as `goal_ne`."""
    marks = {rows_of(domain)[i][j]: (i, j) for i, j in free_cells(domain)}
    return {f"goal_{place}": marks[mark] for mark, place in PLACES.items() if mark in marks}


@functools.cache
def start_cell(domain: str) -> Cell:
    """Where every episode begins."""
    return next((i, j) for i, j in free_cells(domain) if rows_of(domain)[i][j] == "S")


def centre_of(domain: str, cell: Cell) -> np.ndarray:
    """Position (x, y) of a cell's centre."""
    rows = rows_of(domain)
    return np.array([cell[1] - (len(rows[0]) - 1) / 2, (len(rows) - 1) / 2 - cell[0]])


def cell_of(domain: str, states: np.ndarray) -> np.ndarray:
    """(row, column) of each state, int (..., 2): of positions (..., 2) or of whole snapshots (..., n).

    Rows of NaN, as stored for env steps that were not taken, must be left out before.
    """
    x, y = np.moveaxis(states if states.shape[-1] == 2 else states[..., QPOS], -1, 0)
    rows = rows_of(domain)
    found = np.stack([(len(rows) - 1) / 2 - y, x + (len(rows[0]) - 1) / 2], -1)
    return np.rint(found).astype(int)


class Coverage:
    """Which cells of a maze have been visited so far."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._free, self._visited = set(free_cells(domain)), set[Cell]()

    def add(self, states: np.ndarray) -> None:
        """Counts the cells of states, (..., n); rows of NaN, of env steps that were not taken, are left out."""
        states = states.reshape(-1, states.shape[-1])
        cells = cell_of(self._domain, states[~np.isnan(states[:, QPOS]).any(-1)])
        self._visited |= self._free & set(map(tuple, cells.tolist()))

    def __str__(self) -> str:
        """The maze as text: walls, and cells that were visited."""
        marks = {cell: "··" if cell in self._visited else "  " for cell in self._free}
        rows = rows_of(self._domain)
        return "\n".join("".join(marks.get((i, j), "██") for j in range(len(row))) for i, row in enumerate(rows))

    @property
    def share(self) -> float:
        """Fraction of the free cells that were visited."""
        return len(self._visited) / len(self._free)


def coverage(domain: str, states: np.ndarray) -> float:
    """Fraction of the free cells that were visited in the states of one or many episodes, (..., n)."""
    visited = Coverage(domain)
    visited.add(states)
    return visited.share


def half_size(domain: str) -> float:
    """Cells from the middle to the farther walls."""
    rows = rows_of(domain)
    return max(len(rows), len(rows[0])) / 2


@functools.cache
def model_xml(domain: str) -> str:
    """The MuJoCo model: boxes as walls, a camera above, and a ball or an ant."""
    half, ant = half_size(domain), domain in ANTS
    option = f'timestep="{ANT_TIMESTEP}"' if ant else f'timestep="{TIMESTEP}" gravity="0 0 0"'
    collides = "" if ant else 'contype="0" conaffinity="0"'
    body, actuators = (ANT, ANT_MOTORS) if ant else (BALL, BALL_MOTORS)
    return f"""
<mujoco model="{domain}">
  <option {option}/>
  <size memory="{"4M" if ant else "1M"}"/>
  <default><joint damping=".02" armature=".002"/></default>
  <visual><headlight ambient=".4 .4 .4" diffuse=".5 .5 .5" specular="0 0 0"/></visual>
  <asset>
    <texture name="grid" type="2d" builtin="checker" rgb1=".35 .55 .75" rgb2=".30 .50 .70" width="64" height="64"/>
    <material name="floor" texture="grid" texrepeat="{half} {half}"/>
    <material name="wall" rgba=".85 .75 .45 1"/>
    <material name="ball" rgba="1 .1 .05 1" emission=".4"/>
    <material name="leg" rgba=".2 .05 .05 1"/>
  </asset>
  <worldbody>
    <camera name="top" pos="0 0 {4 * half}" fovy="30"/>
    <geom name="floor" type="plane" size="{half} {half} .1" material="floor" {collides}/>
    {"".join(_walls(domain))}
    {body}
  </worldbody>
  <actuator>{actuators}</actuator>
</mujoco>"""


BALL = f"""
    <body name="ball" pos="0 0 {RADIUS}">
      <joint name="x" type="slide" axis="1 0 0" damping="{1 / TIME_CONSTANT}"/>
      <joint name="y" type="slide" axis="0 1 0" damping="{1 / TIME_CONSTANT}"/>
      <geom name="ball" type="sphere" size="{RADIUS}" mass="1" condim="1" group="3"/>
      <geom name="marker" type="sphere" size="{MARKER}" mass="0" material="ball" contype="0" conaffinity="0"/>
    </body>"""
BALL_MOTORS = "".join(
    f'<motor name="{axis}" joint="{axis}" gear="{SPEED / TIME_CONSTANT}" ctrlrange="-1 1" ctrllimited="true"/>'
    for axis in "xy"
)
LEGS = {"front_left": 45, "back_left": 135, "back_right": 225, "front_right": 315}
"""Each leg's direction from the torso, in degrees."""


def _leg(name: str, angle: int) -> str:
    """A leg that points away from the torso: the hip swings it sideways, the knee lifts the foot."""
    return f"""
      <body name="{name}" euler="0 0 {angle}">
        <geom type="capsule" fromto="0 0 0 .09 0 0" size=".022" mass=".02" material="leg" contype="0" conaffinity="0"/>
        <body pos=".09 0 0">
          <joint name="{name}_hip" axis="0 0 1" range="-40 40"/>
          <geom type="capsule" fromto="0 0 0 .07 0 0" size=".022" mass=".03" material="leg"/>
          <body pos=".07 0 0">
            <joint name="{name}_knee" axis="0 1 0" range="20 100"/>
            <geom type="capsule" fromto="0 0 0 .15 0 0" size=".02" mass=".04" material="leg" friction="1.5"/>
          </body>
        </body>
      </body>"""


ANT = f"""
    <body name="ant" pos="0 0 {ANT_HEIGHT}">
      <freejoint name="root"/>
      <camera name="track" mode="trackcom" pos="0 -1.5 1.8" xyaxes="1 0 0 0 .77 .64"/>
      <geom name="torso" type="sphere" size=".09" mass=".35" material="ball"/>
      <geom name="marker" type="cylinder" size=".2 .01" pos="0 0 .1" mass="0" material="ball" contype="0" conaffinity="0"/>
      {"".join(_leg(name, angle) for name, angle in LEGS.items())}
    </body>"""
ANT_MOTORS = "".join(
    f'<motor name="{leg}_{joint}" joint="{leg}_{joint}" gear="{gear}" ctrlrange="-1 1" ctrllimited="true"/>'
    for leg in LEGS
    for joint, gear in (("hip", 1.0), ("knee", 1.2))
)


def _walls(domain: str) -> list[str]:
    """A box for each rectangle of wall cells: rows of them, and rows that lie below one of the same extent, joined."""
    boxes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, row in enumerate(rows_of(domain)):
        for wall in re.finditer("#+", row):
            spans = boxes.setdefault((wall.start(), wall.end() - 1), [])
            if spans and spans[-1][1] == i - 1:
                spans[-1] = spans[-1][0], i
            else:
                spans.append((i, i))
    return [_box(domain, (top, left), (bottom, right)) for (left, right), spans in boxes.items() for top, bottom in spans]


def _box(domain: str, first: Cell, last: Cell) -> str:
    (left, top), (right, bottom) = centre_of(domain, first), centre_of(domain, last)
    place = f"{(left + right) / 2} {(top + bottom) / 2} {WALL_HEIGHT / 2}"
    size = f"{(right - left + 1) / 2} {(top - bottom + 1) / 2} {WALL_HEIGHT / 2}"
    return f'<geom type="box" pos="{place}" size="{size}" material="wall" condim="1"/>'
