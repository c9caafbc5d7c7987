"""The golden rows: each is a function that plays one scene, and a line that says what it shows."""

import importlib
from collections import OrderedDict
from pathlib import Path

ROWS = OrderedDict()


def row(title):
    """Makes a function a row; its name becomes the row's."""

    def add(function):
        assert function.__name__ not in ROWS, function.__name__
        ROWS[function.__name__] = (title, function.__module__.split(".")[-1], function)
        return function

    return add


def load():
    """Imports every file of rows, in the order of the documentation."""
    for path in sorted(Path(__file__).parent.glob("[0-9]*_*.py")):
        importlib.import_module(f"rows.{path.stem}")
    return ROWS
