"""A method registers itself by its key, and an incomplete one is refused with a sentence that says what to add."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from gpexplorer.methods.base import Method, registry
from gpexplorer.problem import channel, channels_of
from toy_method import Toy


@pytest.fixture(autouse=True)
def guests() -> Iterator[None]:
    """Methods that a test registers are removed after it."""
    before = dict(registry)
    yield
    registry.clear()
    registry.update(before)


class Complete(Method):
    """A method without a key, so that each test can give it one and leave something out."""

    title, family = "Guest", "tests"
    steps, posterior, cost = Toy.steps, Toy.posterior, Toy.cost


class Info(NamedTuple):
    objective: float


def test_a_complete_method_is_registered():
    guest = type("Guest", (Complete,), {"key": "guest", "State": Toy.State, "Info": Info})

    assert registry["guest"] is guest


@pytest.mark.parametrize(
    ("base", "fields", "says"),
    [
        (
            Complete,
            {},
            r"method 'guest' \(Guest\) has no State: .* add the class attribute State: ClassVar\[type\] = State",
        ),
        (Complete, {"State": Toy.State}, "has no Info: a stored run is rebuilt from it"),
        (Complete, {"State": dict, "Info": Info}, "has no State"),
        (Complete, {"State": Toy.State, "Info": Info, "title": ""}, "has no title; add the class attribute title = "),
        (
            Complete,
            {"State": Toy.State, "Info": Info, "family": ""},
            "has no family; add the class attribute family = ",
        ),
        (
            Complete,
            {"State": Toy.State, "Info": Info, "channels": channels_of(Info, objetive=channel("F"))},
            "channels that are not fields of its Info: objetive",
        ),
        (Method, {}, "does not define steps, posterior, cost; define it as .* or leave out the key"),
        (Complete, {"key": "cholqr"}, "method key 'cholqr' is taken by CholQR; choose another key for Guest"),
    ],
)
def test_an_incomplete_method_is_refused_with_what_to_add(base: type[Method], fields: dict[str, Any], says: str):
    before = dict(registry)

    with pytest.raises(TypeError, match=says):
        type("Guest", (base,), {"key": "guest", **fields})

    assert registry == before
