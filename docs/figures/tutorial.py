"""The names that a tutorial's own code leaves behind, so that pictures show exactly the numbers of the page."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def names_of(page: str, *, until: str | None = None) -> dict[str, Any]:
    """Run a page's Python blocks without prompts, up to the first that holds `until`."""
    names: dict[str, Any] = {"__name__": page}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(DOCS.parent / "examples")
        os.chdir(folder)  # pages write small files
        try:
            for block in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
                if until is not None and until in block:
                    break
                if ">>>" not in block:
                    exec(compile(block, page, "exec"), names)
        finally:
            os.chdir(here)
    return names
