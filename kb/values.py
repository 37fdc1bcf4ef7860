"""Frozen values for the path that must start fast, and checksums without OpenSSL. Standard library only.

Why not ``dataclasses``: with ``@dataclass(frozen=True, slots=True)`` on the same nineteen classes a whole search took
6.2 times as long as ``python -c pass``, with :class:`Frozen` 4.4 times (medians of three runs of 31 turns each, Python
3.11); at most 5 is promised. What costs that is the module, which loads ``inspect``, and the code it compiles for
every class.
"""

from __future__ import annotations

from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
    from typing import Any, ClassVar, Self, dataclass_transform
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256  # Python 3.11; hashlib would load OpenSSL first
        except ImportError:
            from hashlib import sha256

    def dataclass_transform(**_: object) -> object:  # the one of typing is slow to import
        return lambda decorated: decorated


__all__ = ["Frozen", "sha256"]


class _Fields:
    """Makes what ``dataclasses.replace``, ``asdict`` and ``fields`` look for, when they look."""

    def __get__(self, instance: object, owner: type[Frozen]) -> Mapping[str, object]:
        import dataclasses

        made: dict[str, Any] = {}
        for name in owner._names:
            field: Any = dataclasses.field()
            field.name, field.type, field.kw_only = name, owner.__annotations__.get(name), False
            field._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
            if name in owner._defaults:
                field.default = owner._defaults[name]
            made[name] = field
        return made


@dataclass_transform(frozen_default=True)
class Frozen:
    """Base of immutable values: fields are the annotated names of the class, in order, with their defaults.

    Raises:
        TypeError: On construction, if a field is missing, unknown or given twice.
    """

    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = {}
    __dataclass_fields__ = _Fields()

    def __init_subclass__(cls) -> None:
        own = [name for name in cls.__annotations__ if name not in cls._names]
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}
        cls._names = (*cls._names, *own)

    def __init__(self, *args: object, **kwargs: object) -> None:
        # Whoever names all fields, in whatever order, is nearly everybody, and a search makes hundreds of values.
        if not args and len(kwargs) == len(self._names) and all(name in kwargs for name in self._names):
            self.__dict__.update({name: kwargs[name] for name in self._names})
            return
        if len(args) > len(self._names):
            raise TypeError(f"{type(self).__name__} has {len(self._names)} fields, not {len(args)}")
        given: dict[str, object] = dict(zip(self._names, args, strict=False))
        for name, value in kwargs.items():
            if name in given or name not in self._names:
                raise TypeError(f"{type(self).__name__}: {name!r} is given twice or is no field")
            given[name] = value
        for name in self._names:
            if name in given:
                continue
            if name not in self._defaults:
                raise TypeError(f"{type(self).__name__}: field {name!r} is missing")
            given[name] = self._defaults[name]
        self.__dict__.update({name: given[name] for name in self._names})

    def with_(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        if not all(name in self._names for name in changes):
            return type(self)(**{**self.__dict__, **changes})  # which says what is wrong
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, **changes)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self).__name__, *self.__dict__.values()))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__qualname__}({inner})"


def plain(value: object) -> object:
    """Return a value as plain JSON values: mappings, lists, texts, numbers."""
    if isinstance(value, Frozen):
        return {name: plain(inner) for name, inner in value.__dict__.items()}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value
