"""Hostile texts and files from Hypothesis: valid ones with a part exchanged, torn, repeated, nested or enlarged.

Hypothesis is imported when a strategy is asked for, because only `benchmarks hammer` and the tests need it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpexplorer.errors import SettingError
from gpexplorer.methods.base import registry

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NUMBERS = (0, -1, 3, 2**53, 2**53 + 1, 10**400, -(10**30), 0.5, 1e308, 1e-320, -0.0)
WORDS = (
    "", "\0", "\n", "../../etc/passwd", "/dev/zero", "CON", "a" * 300, "<script>alert(1)</script>", "NaN", "1e999",
    "cuda:0", "meta", "__class__", "{0.__class__}", "'; DROP TABLE runs; --", "\u202e", "\ud800", "𝔘𝔫𝔦", "%00", "nan",
)  # fmt: skip
BRACKETS = ("[" * 5_000, '{"a":' * 2_000, "(" * 5_000, "[" * 900 + "]" * 900)
SPEC = {
    "gpexplorer": 1, "method": "cholqr", "settings": {"num_inducing": 16}, "data": {"name": "friedman1", "n": 200},
    "split": {"test": 0.1, "seed": 2}, "kernel": {"name": "se-ard", "theta": [0.0] * 7}, "seed": 3, "device": "cpu",
    "dtype": "float64", "budget": {"steps": 5, "seconds": 1.5},
}  # fmt: skip
DATA = ("friedman1", "snelson-like", "hypercube", "gp-draw", "poses", "kin40k", "concrete")


def strategies() -> Any:
    """The module `hypothesis.strategies`; SettingError if Hypothesis is not installed."""
    try:
        from hypothesis import strategies as st
    except ImportError:
        raise SettingError("Hypothesis is not installed: pip install hypothesis.") from None
    return st


def json_values() -> SearchStrategy[Any]:
    """Values that JSON can represent, with numbers and words that readers often get wrong."""
    st = strategies()
    leaves = st.one_of(
        st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.integers(), st.floats(),
        st.text(max_size=20), st.sampled_from(sorted(registry)), st.sampled_from(DATA),
    )  # fmt: skip
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | names(), inner, max_size=4)
        ),
        max_leaves=8,
    )


def names() -> SearchStrategy[str]:
    """Names of fields, of settings and of their entries, and other short texts."""
    st = strategies()
    settings = {name for method in registry.values() for name in method.param.objects()}
    entries = (
        "name",
        "theta",
        "n",
        "d",
        "noise",
        "seed",
        "edits",
        "test",
        "folds",
        "fold",
        "before",
        "steps",
        "seconds",
    )
    return st.sampled_from(sorted({*SPEC, *settings, *entries})) | st.text(max_size=12)


def spec_texts() -> SearchStrategy[bytes]:
    """Texts that may be the JSON of a spec: mostly a valid one with some fields exchanged, then perhaps torn."""
    st = strategies()
    entries = st.dictionaries(names(), json_values(), max_size=2)
    places = st.sampled_from((*SPEC, "settings", "data", "split", "budget"))
    exchanged = st.dictionaries(places, st.tuples(st.booleans(), json_values(), entries), max_size=2)
    dropped = st.sets(st.sampled_from(list(SPEC)), max_size=3)
    fields = st.builds(_exchanged, dropped, exchanged, st.one_of(st.just({}), st.just({}), entries))
    texts = fields.map(lambda value: json.dumps(value).encode())
    others = st.binary(max_size=60) | st.sampled_from(BRACKETS).map(str.encode)
    return st.one_of(texts, texts, texts, texts.flatmap(torn), others)


def _exchanged(dropped: set[str], exchanged: dict[str, tuple[bool, Any, Any]], extra: dict[str, Any]) -> dict[str, Any]:
    """The valid spec without some fields, with others exchanged (whole, or entries of theirs), and with more fields."""
    spec: dict[str, Any] = {name: value for name, value in SPEC.items() if name not in dropped}
    for name, (whole, value, entries) in exchanged.items():
        inside = spec.get(name, {})
        spec[name] = value if whole or not isinstance(inside, dict) else {**inside, **entries}
    return {**spec, **extra}


def link_queries() -> SearchStrategy[str]:
    """Queries that may be a link: names of fields with JSON values and words, some escaped and some not."""
    st = strategies()
    heads = st.sampled_from(("data", "split", "set", "budget", "kernel"))
    dotted = st.builds("{}.{}".format, heads, names())
    value = json_values().map(json.dumps) | st.sampled_from(WORDS) | st.sampled_from(BRACKETS) | st.text(max_size=20)
    name = st.one_of(st.sampled_from(("v", "method", "data", "split", "seed", "kernel", "view", "at", "dtype")), dotted)
    pair = st.tuples(name | names(), value).map(lambda pair: f"{pair[0]}={_quoted(pair[1])}")
    return st.one_of(st.lists(pair, max_size=8).map("&".join), st.text(max_size=80).map(lambda text: f"?{text}"))


def torn(data: bytes) -> SearchStrategy[bytes]:
    """These bytes with some of them exchanged, removed, repeated or inserted."""
    st = strategies()
    place = st.integers(0, max(len(data) - 1, 0))
    change = st.tuples(
        st.sampled_from(("set", "cut", "repeat", "insert", "end")), place, st.binary(min_size=1, max_size=8)
    )
    return st.lists(change, min_size=1, max_size=4).map(lambda changes: _changed(data, changes))


def _changed(data: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    for kind, place, new in changes:
        if kind == "set":
            data = data[:place] + new + data[place + len(new) :]
        elif kind == "cut":
            data = data[:place] + data[place + 8 * len(new) :]
        elif kind == "repeat":
            data = data[:place] + data[max(place - 8 * len(new), 0) :]
        elif kind == "insert":
            data = data[:place] + new + data[place:]
        else:
            data = data[:place]
    return data


def _quoted(text: str) -> str:
    return quote(text, safe='[]{}:,"', errors="replace")
