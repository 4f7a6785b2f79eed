"""A Dask cluster, where one is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """A Dask client: the given one, or one for an address, closed at the end."""
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("running on a cluster needs Dask: pip install 'headcount[cluster]'") from None
    if not isinstance(client, str):
        yield client
        return
    try:
        made = Client(client, timeout="10s")
    except (OSError, ValueError) as error:
        raise ValueError(f"client is {client!r}, and no scheduler answers there: {error}") from None
    with made:
        yield made
