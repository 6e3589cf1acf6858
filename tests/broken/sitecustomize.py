"""Breaks one law in every Python process that starts with this folder on its path: see `tests/broken_laws.py`.

Python imports a module of this name by itself when it starts. The environment variable BROKEN_LAW names a row as
`path/of/rows.py:function`; as soon as the module that it aims at has been imported, one attribute of it is exchanged.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module as ever, and has it loaded by a `Breaker`."""

    def __init__(self, target, row):
        self.module, _, self.path = target.partition(":")
        self.row = row

    def find_spec(self, fullname, path, target=None):
        if fullname != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        spec.loader.__class__ = type("Breaker", (Breaker, type(spec.loader)), {"path_in": self.path, "row": self})
        return spec


class Breaker:
    """A loader that, once a module has been executed, exchanges one of its attributes by what the row makes of it."""

    def exec_module(self, module):
        super().exec_module(module)
        *owners, name = self.path_in.split(".")
        owner = module
        for each in owners:
            owner = getattr(owner, each)
        original = vars(owner)[name]  # as it is written there: a function, a property, a classmethod, a constant
        setattr(owner, name, self.row.row(original))


if "BROKEN_LAW" in os.environ:
    _file, _, _name = os.environ["BROKEN_LAW"].rpartition(":")
    _spec = importlib.util.spec_from_file_location("broken_rows", _file)
    _rows = importlib.util.module_from_spec(_spec)
    sys.path.insert(0, str(Path(_file).parent))
    _spec.loader.exec_module(_rows)
    sys.path.pop(0)
    _row = getattr(_rows, _name)
    sys.meta_path.insert(0, Finder(_row.target, _row))
