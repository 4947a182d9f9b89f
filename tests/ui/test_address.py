"""What an address asks for: what other programs add to it, misspelled names, and words that hold for one run alone."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from gpexplorer import Spec
from gpexplorer.ui.address import asked_page, read_query
from gpexplorer.ui.explorer import Explorer

START = Spec("cholqr", {"num_inducing": 10})


def test_words_on_the_first_swaps_go_with_their_run():
    """They said that five swaps had spread ten points, above forty points at step 0 of another kernel."""
    assert read_query("ask=stand-for", START).question == "stand-for"
    other = read_query("ask=stand-for&v=1&set.num_inducing=40", START)
    assert (other.question, other.link.spec.settings["num_inducing"], other.link.at) == ("", 40, 5)
    assert read_query("ask=rough&v=1&seed=9", START).question == "rough"  # these words say what to change

    explorer = Explorer()
    for key, kept in (("stand-for", ""), ("rough", "rough")):
        explorer.adopt(read_query(f"ask={key}", START))
        assert explorer.session.question == key
        explorer.session.change(replace(explorer.session.spec, seed=99))
        assert explorer.session.question == kept
    explorer.close()


@pytest.mark.parametrize("query", ["", "page=laboratory", "v=1&method=pcg&at=2", "ask=rough", "story=swaps&part=3"])
def test_what_other_programs_add_to_an_address_changes_nothing(query: str):
    added = "&".join(filter(None, [query, "utm_source=mail&fbclid=Iw.x3&theme=dark&bokeh-session-id=1"]))

    assert read_query(added, START) == read_query(query, START)
    assert page_of(added) == page_of(query) == ("laboratory" if query else "first")


def test_a_misspelled_name_in_an_address_gets_its_sentence():
    assert "did you mean 'method'?" in " ".join(read_query("v=1&methd=pcg", START).link.corrected)
    assert page_of("methd=pcg") == "laboratory"


def page_of(query: str) -> str:
    return asked_page({name: [value.encode() for value in values] for name, values in parse_qs(query).items()})
