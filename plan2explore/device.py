"""JAX as all of the package uses it: compiled programs are kept between runs."""

import os
from pathlib import Path

import jax


def prepare_device() -> None:
    """Keeps compiled programs in the user's cache folder, unless JAX was told another place."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plan2explore" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
