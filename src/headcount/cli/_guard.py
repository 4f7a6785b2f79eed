"""How a command ends: 0 well, 2 bad input, 3 too large, 4 not converged, 130 interrupted, 1 anything else.

Whatever the reason, it is said in one place, on standard error, without a traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

BAD_INPUT, TOO_LARGE, NOT_CONVERGED, INTERRUPTED = 2, 3, 4, 130


class TooLargeError(MemoryError):
    """A run that would take more memory than it may."""


@contextmanager
def guarded() -> Iterator[None]:
    """Turn errors that a user can mend into a report and an exit code; others keep their traceback."""
    try:
        yield
    except KeyboardInterrupt:
        _say("Interrupted; nothing was written.")
        raise typer.Exit(INTERRUPTED) from None
    except MemoryError as error:
        _say(str(error) or "The machine has no more memory to give: see headcount plan")
        raise typer.Exit(TOO_LARGE) from None
    except OSError as error:
        _say(f"{error.filename or 'The system'}: {error.strerror or error}")
        raise typer.Exit(1) from None
    except ValueError as error:
        problems = getattr(error, "problems", None) or (str(error),)
        _say_all(problems)
        raise typer.Exit(BAD_INPUT) from None


def _say(text: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]{escape(text)}[/]")


def _say_all(problems: tuple[str, ...]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    count = len(problems)
    console.print(f"[bold red]{count} problem{'s' if count > 1 else ''}; nothing was written.[/]")
    for problem in problems[:50]:
        console.print(f" [red]•[/] {escape(problem)}")
    if count > 50:
        console.print(f"   and {count - 50} more")
