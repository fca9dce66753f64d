"""JAX as all of the package uses it: compiled programs are kept between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where this package keeps what can be made anew."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plan2explore"


def prepare_device() -> None:
    """Keeps compiled programs in the user's cache folder, unless JAX has another place already."""
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
