"""Modules that are imported without being run until something of them is used."""

import importlib
import importlib.util
import sys


def import_late(name: str) -> None:
    """Makes `from package import module` of the module `name` cost nothing until the module is used."""
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    package, _, own = name.rpartition(".")
    # Python looks at a package's attribute first; to look a module up in sys.modules would run it.
    setattr(importlib.import_module(package), own, module)
    sys.modules[name] = module
    spec.loader.exec_module(module)


import_late("scipy.ndimage")  # a third of the time to import the suite, for quadruped escape's terrain alone
