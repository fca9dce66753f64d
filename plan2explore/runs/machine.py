"""The machine that something was measured on, and the source's commit."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path


def machine() -> dict[str, str | int]:
    """Processor, cores, system, time and commit, to be kept beside every number."""
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
    }


def cpu_name() -> str:
    """The processor's name as Linux tells it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def commit() -> str:
    """The source's git commit, with + where files were changed since; `none` in an installed package."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True).stdout

    try:
        return git("rev-parse", "--short", "HEAD").strip() + ("+" if git("status", "--porcelain").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "none"
