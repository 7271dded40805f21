"""Commands that are imported when they are called, and modules that do their work.

`towline --help` and completion need the names and summaries of all commands, the help of one command its options alone.
So an overview has the summaries beside the names of modules (a test compares them with the commands' own words), and a
module of commands imports nothing but typer: what it calls stands in a module that `load_module` brings.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from towline.errors import MissingPackage
from towline.start import loading

Command = TyperCommand | TyperGroup


def load_module(module: str, extra: str) -> Any:
    """A module that needs the packages of an extra, loaded when a command asks for it. Raises MissingPackage."""
    try:
        with loading():
            return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingPackage(error.name or module, extra) from None


class Pending(TyperCommand):
    """What a group knows of a command before `load` has made it."""

    def __init__(self, name: str, summary: str, load: Callable[[], Command]) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None)
        self.load = load


class Group(TyperGroup):
    """A group that has `pending` commands beside those that are registered."""

    pending: ClassVar[Sequence[Pending]] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for each in self.pending:
            self.add_command(each)

    def get_params(self, ctx: Any) -> list[Any]:
        """A flag that nobody gives is false. Of none at all typer makes that by pydantic, which it loads for it."""
        found = super().get_params(ctx)
        for each in found:
            if isinstance(each, TyperOption) and each.is_flag and each.default is None:
                each.default = False
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, loaded(command), rest


def group(help: str, kind: type[Group] = Group) -> typer.Typer:
    """To which commands are added; called alone it shows its help."""
    return typer.Typer(cls=kind, help=help, no_args_is_help=True, rich_markup_mode=None)


def command_of(name: str, made: typer.Typer | Callable[..., Any]) -> Command:
    """The command of a function, or the group of an app."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(made, typer.Typer):
        alone.add_typer(made, name=name)
    else:
        alone.command(name)(made)
    found = typer.main.get_group(alone).commands[name]
    assert isinstance(found, Command)
    return found


def every_command(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Each command and group below a group, loaded, with the words that call it; a group before its commands."""
    for name, known in group.commands.items():
        command = loaded(known)
        yield (*path, name), command
        if isinstance(command, TyperGroup):
            yield from every_command(command, (*path, name))


def loaded(command: Any) -> Any:
    """The command itself, where its module was not asked for yet."""
    return command.load() if isinstance(command, Pending) else command
