"""Makes what shows that the ray-caster draws OpenGL's pictures: references for tests, pictures for docs.

    MUJOCO_GL=osmesa python scripts/render_references.py

needs OSMesa (Debian: apt-get install libosmesa6). It writes mjraycast/tests/references.npz and models.npz,
docs/pictures/render_*.png and the table in docs/rendering.md.
"""

import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "mjraycast" / "tests"))

import model_worlds  # noqa: E402
import suite_worlds as worlds  # noqa: E402
from opengl import OpenGLRenderer  # noqa: E402

STORED = {64: 6, 84: 3}  # pictures a world and size in the references
MEASURED = 24  # pictures a world and size in the table
SHOWN_SIZE, ZOOM, AMPLIFIED = 84, 3, 8
SEED_STORED, SEED_MEASURED = 1, 2
TABLE_START, TABLE_END = "<!-- table: start -->", "<!-- table: end -->"


def compare(world: worlds.World, size: int, states: list) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pictures of states: ours and OSMesa's."""
    ours = worlds.pictures(world, states, size)
    theirs = worlds.pictures(world, states, size, OpenGLRenderer)
    return list(zip(ours, theirs, strict=True))


def triptych(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """OpenGL's picture, ours, and their difference, amplified."""
    difference = np.abs(ours.astype(int) - theirs.astype(int)) * AMPLIFIED
    panels = [theirs, ours, np.clip(difference, 0, 255).astype(np.uint8)]
    gap = np.full((ours.shape[0], 1, 3), 255, np.uint8)
    row = np.concatenate([panels[0], gap, panels[1], gap, panels[2]], axis=1)
    return row.repeat(ZOOM, axis=0).repeat(ZOOM, axis=1)


def table_row(world: worlds.World, pictures: dict[int, list[tuple[np.ndarray, np.ndarray]]]) -> str:
    """A world's line of the table: mean and worst PSNR and SSIM at each size."""
    cells = [f"{world.domain} {world.task}" + (f", camera {world.camera}" if world.camera else "")]
    for size in worlds.SIZES:
        decibels = [worlds.psnr(*pair) for pair in pictures[size]]
        similarity = [worlds.ssim(*pair) for pair in pictures[size]]
        cells += [f"{np.mean(decibels):.1f} ({min(decibels):.1f})", f"{np.mean(similarity):.4f}"]
    return "| " + " | ".join(cells) + " |"


def write_table(rows: list[str]) -> None:
    """Puts the table into docs/rendering.md, in place of the one that is there."""
    page = ROOT / "docs" / "rendering.md"
    before, rest = page.read_text().split(TABLE_START)
    _, after = rest.split(TABLE_END)
    columns = "| world | PSNR at 64 (worst) | SSIM at 64 | PSNR at 84 (worst) | SSIM at 84 |"
    table = [TABLE_START, columns, "|---|---|---|---|---|", *rows, TABLE_END]
    page.write_text(before + "\n".join(table) + after)


def main() -> None:
    """Goes through all worlds."""
    if os.environ.get("MUJOCO_GL") != "osmesa":
        sys.exit("The references are made with OSMesa: set MUJOCO_GL=osmesa.")
    references, rows = {}, []
    for world in worlds.WORLDS:
        measured = list(worlds.random_states(world, MEASURED, SEED_MEASURED))
        pictures = {size: compare(world, size, measured) for size in worlds.SIZES}
        rows.append(table_row(world, pictures))
        print(rows[-1], flush=True)
        last = triptych(*pictures[SHOWN_SIZE][-1])
        Image.fromarray(last).save(ROOT / "docs" / "pictures" / f"render_{world.domain}.png", optimize=True)
        for size, count in STORED.items():
            states = list(worlds.random_states(world, count, SEED_STORED + size))
            drawn = worlds.pictures(world, states, size, OpenGLRenderer)
            references[world.domain, size] = list(zip(states, drawn, strict=True))
    worlds.store_references(references)
    model_worlds.store_references(OpenGLRenderer)
    write_table(rows)


if __name__ == "__main__":
    main()
