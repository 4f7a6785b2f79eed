"""Whole files or none: write beside the target, flush to the disk, then put it in place by one rename.

A kill, a full disk or an error in between leaves the old file as it was and no rubbish behind.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path in the folder of `path`; what was written there replaces `path` when the block ends well.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [p.name for p in folder.iterdir()]
    ['a.txt']
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile: its files are readable by their owner only, and a result should follow the umask.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield temporary
        _flush(temporary, os.O_RDWR)
        os.replace(temporary, target)
    except BaseException:  # a Ctrl-C too must leave nothing half-written
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    with suppress(OSError):  # some systems cannot flush a folder; the rename itself has happened
        _flush(target.parent, os.O_RDONLY)


def _flush(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
