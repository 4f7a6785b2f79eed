"""List what is public: every name, its arguments and defaults, and every command with its options.

``python -m tools.public_api > tests/public_api.txt`` writes the list that a test keeps. A change of it is a deliberate commit with a
line in the changelog.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import headcount


def arguments(value: Any) -> str:
    """Names, kinds and defaults of the arguments, without annotations; the values of an enumeration; nothing of what is not called."""
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return f"({', '.join(value.__members__)})"
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(inspect.Signature(plain))
    return re.sub(r"<(?:function |built-in function )?([\w.]+)[^<>]*>", r"<\1>", text)  # no addresses


def members(name: str, value: type, known: set[type]) -> Iterator[str]:
    """Public members of a class; those that a `known` public class hands down are listed there."""
    handed = {base for parent in known & set(value.__mro__[1:]) for base in parent.__mro__}
    own = [base for base in value.__mro__ if base.__module__.startswith("headcount") and base not in handed]
    above = {key for base in handed for key in vars(base)}
    for member in sorted({key for base in own for key in vars(base) if not key.startswith("_")} - above):
        found = inspect.getattr_static(value, member)
        called = isinstance(found, staticmethod | classmethod) or inspect.isfunction(found)
        yield f"{name}.{member}{arguments(getattr(value, member)) if called else ''}"


def public(module: ModuleType) -> list[str]:
    """The names that a module promises: its ``__all__``, or what it defines itself."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def names() -> dict[str, Any]:
    """Everything that is public by its dotted name: the front door first, then what its packages promise beyond that."""
    front = {name: getattr(headcount, name) for name in public(headcount)}
    packages = {name: value for name, value in front.items() if isinstance(value, ModuleType)}
    inner = {
        f"{package}.{name}": getattr(module, name)
        for package, module in packages.items()
        for name in public(module)
        if name not in front
    }
    return {name: value for name, value in (front | inner).items() if not isinstance(value, ModuleType)}


def lines() -> Iterator[str]:
    """The whole list, one name per line; members of what stands at the front door only."""
    found = names()
    known = {value for value in found.values() if inspect.isclass(value)}
    for name, value in found.items():
        yield f"{name}{arguments(value)}"
        if inspect.isclass(value) and "." not in name:
            yield from members(name, value, known)
    yield from commands()


def commands() -> Iterator[str]:
    """Every command of the command line with its options and their defaults."""
    import typer

    from headcount.cli import app

    def walk(path: str, command: Any) -> Iterator[str]:
        inner = getattr(command, "commands", {})
        for name, part in sorted(inner.items()):
            yield from walk(f"{path} {name}", part)
        if not inner:
            for parameter in command.params:
                names = ", ".join([*parameter.opts, *parameter.secondary_opts])
                yield f"$ {path} {names} = {parameter.default}"

    yield from walk("headcount", typer.main.get_command(app))


if __name__ == "__main__":
    print(*lines(), sep="\n")
