"""The golden rows: each is a function that plays one scene, and a line that says what it shows."""

import importlib
from collections import OrderedDict
from pathlib import Path

ROWS = OrderedDict()


def row(title, name=None):
    """Makes a function a row; its name becomes the row's."""

    def add(function):
        key = name or function.__name__
        assert key not in ROWS, key
        ROWS[key] = (title, function.__module__.split(".")[-1], function)
        return function

    return add


def rows_for(modes, title, prefix=""):
    """Makes a function of a scene and a mode a row for each mode, named after both."""

    def add(function):
        for mode in modes:

            def play(scene, mode=mode):
                function(scene, mode)

            play.__module__ = function.__module__
            name = f"{prefix}{mode.name}_{function.__name__}"
            row(f"{mode.title}: {title}", name)(play)
        return function

    return add


def load():
    """Imports every file of rows, in the order of the documentation."""
    for path in sorted(Path(__file__).parent.glob("[0-9]*_*.py")):
        importlib.import_module(f"rows.{path.stem}")
    return ROWS
