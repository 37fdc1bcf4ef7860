"""``kb operators``: list the operator specs, or show one."""

from typing import Annotated

import typer

from kb.cli.output import Json, say, table, write, write_json


def operators(
    name: Annotated[str | None, typer.Argument(metavar="[OPERATOR]", help="One operator; all if left out.")] = None,
    json: Json = False,
) -> None:
    """List the operators that the judge knows, or show one: signature, axes, bound, workloads."""
    from kb.service.judging import describe_operator, operator_names

    if name is None:
        rows = operator_names()
        if json:
            write_json(rows)
        else:
            table(("operator", "what is computed"), [(one["name"], one["summary"]) for one in rows])
            if not any(one["summary"] for one in rows):
                say("note: what each computes needs torch: pip install 'kernel-kb[gpu]'")
        return
    found = describe_operator(name)
    if json:
        write_json(found)
        return
    for key, value in found.items():
        if isinstance(value, list):
            write(f"{key}:")
            for item in value:
                write(f"  {item}")
        else:
            write(f"{key}: {value}")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("operators")(operators)
