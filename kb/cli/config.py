"""``kb config``: the user's settings."""

from typing import Annotated

import typer

from kb.cli.output import Json, write, write_json

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


@app.command("get")
def get(key: Annotated[str, typer.Argument()]) -> None:
    """Print one setting."""
    from kb.service.settings import setting

    write(str(setting(key).value))


@app.command("set")
def set_(key: Annotated[str, typer.Argument()], value: Annotated[str, typer.Argument()]) -> None:
    """Change one setting."""
    from kb.service.settings import change

    done = change(key, value)
    write(f"{done.key} = {done.value!r}")


@app.command("unset")
def unset(key: Annotated[str, typer.Argument()]) -> None:
    """Go back to the default of one setting."""
    from kb.service.settings import forget

    done = forget(key)
    write(f"{done.key} = {done.value!r}  (default)")


@app.command("path")
def path() -> None:
    """Print where the settings are."""
    from kb.service.settings import settings_file

    write(str(settings_file()))


def register(parent: typer.Typer) -> None:
    """Add the commands to an application."""
    parent.add_typer(app, name="config")
