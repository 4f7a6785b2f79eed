"""A small world as tables, which the tests spoil one cell at a time."""

from pathlib import Path

COUNTS = """time,cell,count
0,pond,40
0,hill,20
1,pond,33
1,hill,25
2,pond,30
2,hill,28
"""
TRANSITIONS = """from,to,probability
pond,pond,0.9
pond,hill,0.1
hill,pond,0.25
hill,hill,0.75
"""


def write(folder: Path, **files: str) -> dict[str, Path]:
    """Write texts as ``<name>.csv`` and return their paths."""
    paths = {}
    for name, text in files.items():
        paths[name] = folder / f"{name}.csv"
        paths[name].write_text(text, encoding="utf-8")
    return paths
