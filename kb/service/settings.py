"""The user's settings: a TOML file of mode 0600 that only knows these keys."""

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kb.config import config_folder, read_settings
from kb.errors import ConfigError

Value = str | float | bool


@dataclass(frozen=True)
class Setting:
    """One setting and where its value comes from."""

    key: str
    value: Value
    is_set: bool
    meaning: str


def _text(given: str) -> Value:
    if not given.strip() or len(given) > 500 or not given.isprintable():
        raise ValueError("expected a line of text")
    return given


def _embedder(given: str) -> Value:
    if given != "onnx-minilm" and not re.fullmatch(r"(onnx-minilm|sentence-transformers):\S.*", given):
        raise ValueError("expected onnx-minilm, onnx-minilm:FOLDER or sentence-transformers:NAME_OR_PATH")
    return _text(given)


def _share(given: str) -> Value:
    value = float(given)
    if not 0 <= value <= 1:
        raise ValueError("expected a number from 0 to 1")
    return value


def _days(given: str) -> Value:
    value = float(given)
    if not 0 <= value <= 100_000:
        raise ValueError("expected a number of days, or 0 for no limit")
    return value


def _flag(given: str) -> Value:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if given.lower() not in words:
        raise ValueError("expected true or false")
    return words[given.lower()]


_KNOWN: dict[str, tuple[Value, Callable[[str], Value], str]] = {
    "embedder": ("onnx-minilm", _embedder, "what embeds: onnx-minilm, or sentence-transformers:NAME_OR_PATH"),
    "dense_weight": (0.0, _share, "share of the embedding in a semantic score, 0 to 1; 0 takes the measured default"),
    "timing_days": (0.0, _days, "days after which measured times are stale; 0 for no limit"),
    "query_log": (False, _flag, "keep a log of your own queries, to tune search with; never leaves this machine"),
}


def settings_file() -> Path:
    """Return where the settings are kept."""
    return config_folder() / "config.toml"


def all_settings() -> tuple[Setting, ...]:
    """Return every setting with its value or default."""
    return tuple(setting(key) for key in _KNOWN)


def setting(key: str) -> Setting:
    """Return one setting.

    Raises:
        ConfigError: No setting has this key, or the file is broken.
    """
    default, _, meaning = _row(key)
    stored = read_settings().get(key)
    if stored is None:
        return Setting(key, default, False, meaning)
    if isinstance(stored, str | float | bool | int):
        return Setting(key, stored, True, meaning)
    raise ConfigError(f"{settings_file()}: {key} has a value of the wrong kind", hint=f"kb config unset {key}")


def change(key: str, value: str) -> Setting:
    """Set one setting.

    Args:
        key: Its key.
        value: Its value as text.

    Raises:
        ConfigError: Unknown key, a value it cannot have, or a file that cannot be written.
    """
    _, read, meaning = _row(key)
    try:
        made = read(value)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}, found {value[:80]!r}", hint=meaning) from error
    _store(key, made)
    return setting(key)


def forget(key: str) -> Setting:
    """Go back to the default of one setting."""
    _row(key)
    _store(key, None)
    return setting(key)


def _row(key: str) -> tuple[Value, Callable[[str], Value], str]:
    if key not in _KNOWN:
        near = difflib.get_close_matches(key, _KNOWN, n=1)
        raise ConfigError(f"no setting is called {key[:80]!r}", hint=f"known: {', '.join(near or _KNOWN)}")
    return _KNOWN[key]


def _store(key: str, value: Value | None) -> None:
    import tomlkit

    read_settings()
    file = settings_file()
    try:
        document = tomlkit.parse(file.read_text(encoding="utf-8")) if file.is_file() else tomlkit.document()
        if value is None:
            document.pop(key, None)
        else:
            document[key] = value
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        staged = file.with_suffix(".new")
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(tomlkit.dumps(document))
        staged.replace(file)
    except OSError as error:
        message = f"cannot write {error.filename or file}: {error.strerror}"
        raise ConfigError(message, hint="set KB_CONFIG_DIR to a folder that can be written") from error
