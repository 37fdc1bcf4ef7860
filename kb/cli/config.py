"""``kb config``: the user's settings."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.output import Json, write, write_json

if TYPE_CHECKING:
    from kb.service.settings import Setting

app = typer.Typer(help="Show and change the settings of this user.", no_args_is_help=False, invoke_without_command=True)


@app.callback()
def show(context: typer.Context, json: Json = False) -> None:
    """Show all settings, with their defaults."""
    if context.invoked_subcommand is not None:
        return
    from kb.service.settings import all_settings, settings_file

    found = all_settings()
    if json:
        write_json({"file": str(settings_file()), "settings": {one.key: one.value for one in found}})
        return
    for one in found:
        write(f"{one.key} = {one.value!r}{'' if one.is_set else '  (default)'}   {one.meaning}")


_Key = Annotated[str, typer.Argument(metavar="KEY")]


def _print(text: str, one: "Setting", *, json: bool) -> None:
    if json:
        write_json(asdict(one))
    else:
        write(text)


@app.command("get")
def get(key: _Key, json: Json = False) -> None:
    """Print one setting."""
    from kb.service.settings import setting

    found = setting(key)
    _print(str(found.value), found, json=json)


@app.command("set")
def set_(key: _Key, value: Annotated[str, typer.Argument(metavar="VALUE")], json: Json = False) -> None:
    """Change one setting."""
    from kb.service.settings import change

    done = change(key, value)
    _print(f"{done.key} = {done.value!r}", done, json=json)


@app.command("unset")
def unset(key: _Key, json: Json = False) -> None:
    """Go back to the default of one setting."""
    from kb.service.settings import forget

    done = forget(key)
    _print(f"{done.key} = {done.value!r}  (default)", done, json=json)


@app.command("path")
def path(json: Json = False) -> None:
    """Print where the settings are."""
    from kb.service.settings import settings_file

    file = str(settings_file())
    if json:
        write_json({"file": file})
    else:
        write(file)


def register(parent: typer.Typer) -> None:
    """Add the commands to an application."""
    parent.add_typer(app, name="config")
