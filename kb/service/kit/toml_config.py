"""The table ``[mcp_servers.kb]`` of Codex' configuration, put in and taken out without touching anything else."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from kb.errors import ConfigError
from kb.service.kit.ours import NAME, is_ours
from kb.service.kit.splices import Insert, State

CONTAINER = "mcp_servers"


@dataclass(frozen=True)
class TomlConfig:
    """The table of the server in a TOML file."""

    file: str
    """For errors."""

    def state(self, text: str, value: object | None) -> State:
        """See :class:`kb.service.kit.splices.Editor`."""
        found = self.servers(text).get(NAME)
        if found is None:
            return "absent"
        if value is not None and found == value:
            return "same"
        return "ours" if is_ours(found) else "foreign"

    @property
    def whole(self) -> bool:
        """See :class:`kb.service.kit.splices.Editor`."""
        return False

    def holds(self, text: str) -> bool:
        """See :class:`kb.service.kit.splices.Editor`."""
        return CONTAINER in self._data(text)

    def add(self, text: str, value: object) -> tuple[Insert, ...]:
        """See :class:`kb.service.kit.splices.Editor`."""
        newline = "\r\n" if "\r\n" in text else "\n"
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        table = tomlkit.dumps({CONTAINER: {NAME: value}}).strip()
        made = Insert(len(text), f"{gap}{table}\n".replace("\n", newline))
        expected = self._data(text)
        expected[CONTAINER] = {**self.servers(text), NAME: value}
        try:
            if tomllib.loads(text + made.text) == expected:
                return (made,)
        except tomllib.TOMLDecodeError:
            pass
        hint = f"write it as tables, [{CONTAINER}.NAME]; nothing was changed"
        raise ConfigError(f"{self.file}: {CONTAINER} is written so that no server can be added after it", hint=hint)

    def replace(self, text: str, value: object) -> str:
        """See :class:`kb.service.kit.splices.Editor`."""
        document = self._document(text)
        table = document[CONTAINER][NAME]
        given = dict(value) if isinstance(value, Mapping) else {}
        for key in [one for one in table if one not in given]:
            del table[key]
        for key, one in given.items():
            if table.get(key) != one:
                table[key] = one
        return self._checked(tomlkit.dumps(document), {**self.servers(text), NAME: value}, text)

    def remove(self, text: str, *, container: bool) -> str:
        """See :class:`kb.service.kit.splices.Editor`."""
        servers = dict(self.servers(text))
        if servers.pop(NAME, None) is None:
            return text
        document = self._document(text)
        document[CONTAINER].remove(NAME)
        if not servers and container:
            document.remove(CONTAINER)
        return self._checked(tomlkit.dumps(document), servers, text)

    def servers(self, text: str) -> Mapping[str, Any]:
        """See :class:`kb.service.kit.splices.Editor`."""
        found = self._data(text).get(CONTAINER, {})
        if not isinstance(found, Mapping):
            hint = "mend the file; nothing was changed"
            raise ConfigError(f"{self.file}: expected {CONTAINER} to be a table", hint=hint)
        return found

    def _data(self, text: str) -> dict[str, Any]:
        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(
                f"{self.file}: this is no TOML: {error}", hint="mend the file; nothing was changed"
            ) from error

    def _document(self, text: str) -> Any:  # noqa: ANN401 - tomlkit's containers are of many types
        try:
            return tomlkit.parse(text)
        except TOMLKitError as error:
            hint = f"change [{CONTAINER}.{NAME}] by hand"
            raise ConfigError(f"{self.file}: {error}", hint=hint) from error

    def _checked(self, made: str, servers: Mapping[str, Any], before: str) -> str:
        """Return a text if nothing but the servers changed in it.

        Raises:
            ConfigError: Something else did.
        """
        expected, found = self._data(before), self._data(made)
        old, new = expected.pop(CONTAINER, {}), found.pop(CONTAINER, {})
        del old
        if expected != found or dict(new) != dict(servers):
            hint = f"change [{CONTAINER}.{NAME}] by hand; nothing was changed"
            raise ConfigError(f"{self.file}: the server cannot be changed without changing more", hint=hint)
        return made
