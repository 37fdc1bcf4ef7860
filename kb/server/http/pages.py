"""The web page: its files, and the one document that stands at every address a person may open."""

from pathlib import Path

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PAGE = Path(__file__).resolve().parent.parent / "page"
"""Where the page's files lie."""

_SHELL = "index.html"
_VIEWS = frozenset({"", ".", "matrix", "targets", "campaigns"})
_BELOW = ("entry/", "target/")
_REVALIDATED = {"Cache-Control": "no-cache"}


class PageFiles(StaticFiles):
    """The page's files; a person who opens an address of the page gets its document, a program that errs a 404."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return one file, or the document.

        Args:
            path: Below the page's folder.
            scope: Of the request.
        """
        if ".." in scope["path"].replace("\\", "/").split("/"):
            raise HTTPException(404)  # nothing of ours is addressed upwards; a resolved path would be another page
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405)
        plain = path.replace("\\", "/").strip("/")
        if plain in _VIEWS or plain.startswith(_BELOW):
            return self._shell(200)
        try:
            answer = await super().get_response(path, scope)
        except HTTPException as error:
            wanted = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
            if error.status_code == 404 and "text/html" in wanted:
                return self._shell(404)
            raise
        answer.headers.update(_REVALIDATED)
        return answer

    def _shell(self, status: int) -> Response:
        return FileResponse(PAGE / _SHELL, status, headers=_REVALIDATED)


def mount(app: FastAPI) -> None:
    """Serve the page for everything that no other route answers.

    Args:
        app: Has all its other routes already.
    """
    app.mount("/", PageFiles(directory=PAGE))
