"""Frozen values behave as frozen dataclasses do, for less time at the start."""

import dataclasses
import hashlib
import pickle

import pytest

from kb.values import Frozen, plain, sha256


class Point(Frozen):
    """A value with a default."""

    x: int
    y: int = 0


class Named(Point):
    """A value that adds a field."""

    name: str = "origin"


def test_fields_are_given_by_place_or_name_and_defaults_fill_in() -> None:
    assert Point(1) == Point(x=1, y=0)
    assert Named(1, name="p") == Named(1, 0, "p")


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_a_wrong_construction_is_a_type_error(args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        Point(*args, **kwargs)


def test_nothing_can_be_changed() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match="frozen"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen"):
        del point.x


def test_equal_values_have_one_hash_and_other_classes_are_not_equal() -> None:
    assert len({Point(1, 2), Point(1, 2), Named(1, 2)}) == 2
    assert Point(1) != (1, 0)


def test_copies_and_pickles_keep_the_value() -> None:
    assert Point(1).with_(y=5) == Point(1, 5)
    assert pickle.loads(pickle.dumps(Named(3))) == Named(3)  # noqa: S301


def test_named_fields_may_come_in_any_order_and_stand_in_that_of_the_class() -> None:
    assert list(Point(y=5, x=1).__dict__) == ["x", "y"]
    assert hash(Point(y=5, x=1)) == hash(Point(1, 5)) == hash(Point(1).with_(y=5))


def test_a_copy_has_the_fields_of_its_class_alone_and_leaves_the_original() -> None:
    point = Point(1)
    with pytest.raises(TypeError, match="no field"):
        point.with_(z=1)
    assert (point.with_(x=2), point) == (Point(2), Point(1))
    assert type(Named(1).with_(x=2)) is Named


def test_the_dataclasses_module_takes_them() -> None:
    assert dataclasses.is_dataclass(Point)
    assert dataclasses.replace(Named(1), y=7) == Named(1, 7)
    assert dataclasses.asdict(Named(1)) == {"x": 1, "y": 0, "name": "origin"}
    assert [field.name for field in dataclasses.fields(Named)] == ["x", "y", "name"]


def test_its_representation_names_the_fields() -> None:
    assert repr(Point(1)) == "Point(x=1, y=0)"


def test_plain_values_are_json_values_all_the_way_down() -> None:
    assert plain({"a": (Point(1), None)}) == {"a": [{"x": 1, "y": 0}, None]}


def test_the_checksum_is_sha256() -> None:
    assert sha256(b"kb").hexdigest() == hashlib.sha256(b"kb").hexdigest()
