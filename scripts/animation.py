"""Draws the README's animation from a demo's folder: `python scripts/animation.py runs/demo docs/pictures/explore.webp`.

First the cells that both explorations visit, then the four policies that were adapted afterwards.
"""

import sys
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from plan2explore import demo
from plan2explore.envs import maze
from plan2explore.phases.run import Run

WIDTH, HEIGHT, CELL = 720, 345, 22
GROWTH, PLAYED = 36, 60  # frames of the explorations and of the policies
FONT, SMALL = (
    ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), size) for size in (17, 14)
)


def caption(text: str) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A white frame with a line of text on top."""
    frame = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(frame)
    draw.text((12, 10), text, fill="black", font=FONT)
    return frame, draw


def explorations(folder: Path) -> list[Image.Image]:
    """Visited cells of both explorations, side by side, as they grow."""
    states = {method: demo.states_of(Run(folder / method)) for method in demo.METHODS}
    frames = []
    for share in np.linspace(0, 1, GROWTH) ** 2:  # most happens early
        frame, draw = caption(f"1. Explore without any reward: {share * demo.STEPS:,.0f} env steps")
        for number, (method, visited) in enumerate(states.items()):
            seen = visited[: max(1, int(share * len(visited)))]
            left, top = 60 + number * 340, 44
            for (i, j), count in np.ndenumerate(demo.visits_of(seen)):
                colour = (64, 64, 64) if np.isnan(count) else (70, 150, 110) if count else (235, 235, 235)
                box = (left + j * CELL, top + i * CELL, left + (j + 1) * CELL - 2, top + (i + 1) * CELL - 2)
                draw.rectangle(box, fill=colour)
            text = f"{demo.TITLES[method]}: {maze.coverage(demo.WORLD, seen):.0%} visited"
            draw.text((left, top + 11 * CELL + 8), text, fill="black", font=FONT)
        frames.append(frame)
    return frames


def policies(folder: Path) -> list[Image.Image]:
    """The policies that were adapted after each exploration, with the tasks' names."""
    video = demo.read_video(folder / "demo.mp4")
    panel = video.shape[1] // 2
    frames = []
    for index in np.linspace(0, min(len(video) - 1, 4 * PLAYED), PLAYED).astype(int):
        frame, draw = caption("2. Name tasks afterwards, solve them without another step in the maze")
        side = 138
        for row, method in enumerate(demo.METHODS):
            for column, task in enumerate(demo.TASKS):
                left, top = 150 + column * (side + 3), 40 + row * (side + 3)
                part = video[index, row * panel : (row + 1) * panel, column * panel : (column + 1) * panel]
                frame.paste(Image.fromarray(part).resize((side, side)), (left, top))
                if row == 0:
                    draw.text((left + 4, top + side * 2 + 4), task.name, fill="black", font=SMALL)
            draw.text((12, 40 + row * (side + 3) + side // 2), f"after\n{demo.TITLES[method]}", fill="black", font=SMALL)
        frames.append(frame)
    return frames


def main(folder: Path, out: Path) -> None:
    """Writes the animation, which repeats for ever."""
    frames = [*explorations(folder), *policies(folder)]
    times = [1500 if number == GROWTH - 1 else 90 for number in range(len(frames))]
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=times, loop=0, quality=60, method=6)
    print(f"{out}: {out.stat().st_size / 1e3:.0f} kB, {len(frames)} frames")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
