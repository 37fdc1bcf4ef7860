"""``kb token``: who may use the HTTP endpoint, and for what."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kb.cli.output import Json, say, table, write, write_json

if TYPE_CHECKING:
    from kb.service.tokens import Token

app = typer.Typer(help="Make, list and revoke tokens of the HTTP endpoint.", no_args_is_help=True)


def _shown(token: "Token") -> dict[str, Any]:
    """Return what may be seen of a token; its digest is of no use to anybody."""
    seen = {name: value for name, value in asdict(token).items() if name != "sha256"}
    return {**seen, "expired": not token.is_valid(datetime.now(UTC))}


def _until(token: "Token") -> str:
    ends = token.expires_utc or "never"
    return ends if token.is_valid(datetime.now(UTC)) else f"EXPIRED {ends}"


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who holds it; author of what is submitted with it.")],
    scope: Annotated[list[str], typer.Option("--scope", help="read, write or judge; may be repeated.")],
    days: Annotated[float | None, typer.Option(help="Days after which it runs out; never if left out.")] = None,
    json: Json = False,
) -> None:
    """Make a token and print it, once."""
    from kb.service.tokens import new_token

    made = new_token(name, scope, days=days)
    if json:
        write_json({**_shown(made.token), "token": made.text})
        return
    write(made.text)
    say(f"{name} may {', '.join(made.token.scopes)}; only a digest is kept, so note the token now")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the tokens: names, scopes and dates; those that have run out are marked, with what replaces them."""
    from kb.service.tokens import all_tokens, renewal_of

    known = all_tokens()
    if json:
        write_json([_shown(one) for one in known])
        return
    rows = [(one.name, one.id, ", ".join(one.scopes), one.created_utc, _until(one)) for one in known]
    table(("name", "id", "scopes", "made", "runs out"), rows)
    for one in known:
        if not one.is_valid(datetime.now(UTC)):
            say(f"{one.name} ran out on {str(one.expires_utc)[:10]} and is refused; to renew it: {renewal_of(one)}")
    if not known:
        say("there are no tokens: the HTTP endpoint serves reading alone, to this machine alone")


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")], json: Json = False) -> None:
    """Forget a token; a running server refuses it from the next request on."""
    from kb.service.tokens import revoke as forget

    gone = forget(name)
    if json:
        write_json(_shown(gone))
    else:
        write(f"{gone.name} is revoked")


def register(parent: typer.Typer) -> None:
    """Add the command to an application."""
    parent.add_typer(app, name="token")
