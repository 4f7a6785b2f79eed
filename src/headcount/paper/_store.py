"""Where results live: one small file a task while running, one Parquet table and a manifest at the end.

``cache/<key>.json`` holds a task's numbers and ``cache/<key>.npz`` its arrays; ``results.parquet`` holds all numbers,
one row each, and is
enough to draw every table and figure again, or to find that nothing needs computing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headcount._atomic import replacing
from headcount.paper._task import Result, Task

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "key",
    "kind",
    "cells",
    "population",
    "weight",
    "data_set",
    "engine",
    "options",
    "quantity",
    "step",
    "value",
)


class Store:
    """The results in one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.cache = self.folder / "cache"
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._read_table()

    def _read_table(self) -> None:
        """Numbers of earlier runs; the files of the cache are read when asked for."""
        path = self.folder / "results.parquet"
        if not path.exists():
            return
        import pandas as pd

        frame = pd.read_parquet(path)
        for key, part in frame.groupby("key", sort=False):
            self._rows[str(key)] = part[["quantity", "value", "step"]].to_dict("records")

    def has(self, task: Task) -> bool:
        """Whether the task's numbers are known."""
        return task.key in self._rows or (self.cache / f"{task.key}.json").exists()

    def has_arrays(self, task: Task) -> bool:
        """Whether the task's arrays are at hand."""
        return (self.cache / f"{task.key}.npz").exists()

    def rows(self, task: Task) -> list[dict[str, Any]]:
        """The task's numbers."""
        if task.key not in self._rows:
            text = (self.cache / f"{task.key}.json").read_text(encoding="utf-8")
            self._rows[task.key] = json.loads(text)["rows"]
        return self._rows[task.key]

    def arrays(self, task: Task) -> dict[str, NDArray[np.float64]]:
        """The task's arrays."""
        with np.load(self.cache / f"{task.key}.npz", allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    def put(self, task: Task, result: Result) -> None:
        """Keep a result; arrays first, so that a task with numbers has its arrays too."""
        self.cache.mkdir(parents=True, exist_ok=True)
        if result.arrays:
            with (
                replacing(self.cache / f"{task.key}.npz") as temporary,
                temporary.open("wb") as file,
            ):
                np.savez_compressed(file, **result.arrays)  # type: ignore[arg-type]
        rows = [asdict(row) for row in result.rows]
        write_json(self.cache / f"{task.key}.json", {"task": task.plain(), "rows": rows})
        self._rows[task.key] = rows

    def forget(self, tasks: Iterable[Task]) -> None:
        """Drop what is known of these tasks, so that they are computed again."""
        for task in tasks:
            self._rows.pop(task.key, None)
            for kind in ("json", "npz"):
                (self.cache / f"{task.key}.{kind}").unlink(missing_ok=True)

    def frame(self, tasks: Iterable[Task]) -> pd.DataFrame:
        """All numbers of these tasks, one row each; tasks without results leave none."""
        import pandas as pd

        records = []
        for task in tasks:
            if not self.has(task):
                continue
            head = {
                "key": task.key,
                "kind": task.kind,
                "cells": task.setting.cells,
                "population": task.setting.population,
                "weight": task.setting.weight,
                "data_set": task.data_set,
                "engine": task.engine,
                "options": json.dumps(dict(task.options), sort_keys=True),
            }
            records += [{**head, **row} for row in self.rows(task)]
        return pd.DataFrame(records, columns=list(COLUMNS))

    def write_table(self, tasks: Iterable[Task]) -> Path:
        """Write ``results.parquet`` with the numbers of these tasks."""
        frame = self.frame(tasks)
        for name in ("key", "kind", "engine", "options", "quantity"):
            frame[name] = frame[name].astype("category")
        path = self.folder / "results.parquet"
        with replacing(path) as temporary:
            frame.to_parquet(temporary, index=False, compression="zstd")
        return path


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write atomically, readable by people."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_text(path: Path, text: str) -> None:
    """Write atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
