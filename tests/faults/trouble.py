"""What goes wrong, on purpose: damaged bytes from a seed, kills at a chosen rename, disks that fill up.

The suite has a short form, which is part of every run, and a long one: ``HEADCOUNT_FAULTS=long`` multiplies the cases (5 000 tables, 500
command lines, 1 000 bit flips).
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

LONG = os.environ.get("HEADCOUNT_FAULTS") == "long"


def cases(short: int, long: int) -> int:
    """How many cases this run tries."""
    return long if LONG else short


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The content with one kind of damage: bits flipped, bytes overwritten, cut, repeated, swapped or added."""
    data = bytearray(content)
    start = int(rng.integers(len(data)))
    stop = min(len(data), start + int(rng.integers(1, 40)))
    match int(rng.integers(7)):
        case 0:
            data[start] ^= 1 << int(rng.integers(8))
        case 1:
            data[start:stop] = rng.bytes(stop - start)
        case 2:
            del data[start:stop]
        case 3:
            del data[start:]
        case 4:
            data[start:start] = data[start:stop]
        case 5:
            data[start:stop] = b"\xff" * (stop - start)
        case _:
            data[start:stop] = data[start:stop][::-1]
    return bytes(data)


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    """The content with one bit flipped."""
    data = bytearray(content)
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(data)


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: the signal that killed it) and what it printed."""

    code: int
    out: str
    err: str


def forked(
    work: Callable[[], object], *, encoding: str = "utf-8", reader_leaves: bool = False, seconds: int = 120
) -> Ended:
    """Run `work` in a forked child whose output goes into pipes in an encoding; the reader of its standard output may leave first.

    The code is 99 for an error that `work` raised.
    """
    pipes = [os.pipe(), os.pipe()]  # not files, whose size some tests limit
    child = os.fork()
    if child == 0:
        _run_child(work, [write for _, write in pipes], encoding, seconds)
    for _, write in pipes:
        os.close(write)
    if reader_leaves:
        os.close(pipes[0][0])
    texts = []
    for read, _ in pipes[reader_leaves:]:
        with open(read, "rb") as stream:
            texts.append(stream.read().decode(encoding, errors="replace"))
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), *([""] if reader_leaves else []), *texts)


def _run_child(work: Callable[[], object], handles: list[int], encoding: str, seconds: int) -> NoReturn:
    code = 99
    try:
        signal.alarm(seconds)
        for number, handle in zip((1, 2), handles, strict=True):
            os.dup2(handle, number)
        sys.stdout, sys.stderr = (open(n, "w", encoding=encoding, closefd=False) for n in (1, 2))  # noqa: SIM115
        try:
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException as error:
            print(f"raw {type(error).__name__}: {error}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def killed_at(rename: int, work: Callable[[], object]) -> Ended:
    """Run `work` in a child that is killed (SIGKILL) just before its rename number `rename`."""

    def deadly() -> None:
        seen = 0

        def wrap(original: Callable[..., None]) -> Callable[..., None]:
            def replace(*arguments: object, **options: object) -> None:
                nonlocal seen
                if seen == rename:
                    os.kill(os.getpid(), signal.SIGKILL)
                seen += 1
                original(*arguments, **options)

            return replace

        os.replace, os.rename = wrap(os.replace), wrap(os.rename)  # type: ignore[assignment]
        work()

    return forked(deadly)
