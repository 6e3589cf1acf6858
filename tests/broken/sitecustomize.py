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


class Breaker(importlib.abc.Loader):
    """A loader that, once a module has been executed, exchanges one of its attributes by what a row makes of it.

    It wraps the usual loader, so that a hook which takes the place of usual ones (jaxtyping's) leaves it alone.
    """

    def __init__(self, usual, path, row):
        self.usual, self.path_in, self.row = usual, path, row

    def create_module(self, spec):
        return self.usual.create_module(spec)

    def exec_module(self, module):
        self.usual.exec_module(module)
        *owners, name = self.path_in.split(".")
        owner = module
        for each in owners:
            owner = getattr(owner, each)
        original = vars(owner)[name]  # as it is written there: a function, a property, a classmethod, a constant
        setattr(owner, name, self.row(original))

    def __getattr__(self, name):
        return getattr(self.usual, name)


def break_with(row):
    """Have the module that a row aims at loaded by a `Breaker`, whoever looks for it on the path."""
    module, _, attribute = row.target.partition(":")
    usual = importlib.machinery.PathFinder.find_spec

    def find_spec(finder, fullname, path=None, target=None):
        spec = usual(fullname, path, target)
        if fullname == module and spec is not None:
            spec.loader = Breaker(spec.loader, attribute, row)
        return spec

    importlib.machinery.PathFinder.find_spec = classmethod(find_spec)


if "BROKEN_LAW" in os.environ:
    _file, _, _name = os.environ["BROKEN_LAW"].rpartition(":")
    _spec = importlib.util.spec_from_file_location("broken_rows", _file)
    _rows = importlib.util.module_from_spec(_spec)
    sys.path.insert(0, str(Path(_file).parent))
    _spec.loader.exec_module(_rows)
    sys.path.pop(0)
    break_with(getattr(_rows, _name))
