"""What real servers answer to strangers, asked by raw clients over HTTP and websockets."""

from __future__ import annotations

import re
from collections.abc import Callable

import panel as pn
import pytest
from panel.io.admin import admin_panel
from tornado.httpclient import AsyncHTTPClient, HTTPRequest

from gpexplorer import Explorer
from gpexplorer.errors import SettingError
from gpexplorer.ui.gate import panel_serve
from gpexplorer.ui.server import hosts
from pages import Served, until
from raw_clients import compression, fragments, get, talk, token_of
from visited import Visited, visit

__all__ = ["visit"]  # a fixture
ROUTES = (
    "/",
    "/explorer",
    "/explorer/metadata",
    "/explorer/autoload.js?bokeh-autoload-element=1",
    "/explorer/ws",
    "/static/js/bokeh.min.js",
    "/static/extensions/panel/panel.min.js",
    "/favicon.ico",
    "/components/panel.io.server/x/_css/y",
    "/nothing",
)
STRANGER = "attacker.example"


@pytest.mark.parametrize("route", ROUTES)
def test_host_and_origin_are_checked_on_every_route(served: Served, route: str):
    own, port = f"localhost:{served.port}", served.port
    statuses = {
        (host, origin): get(port, route, host=host, origin=origin)[0]
        for host in (own, f"{STRANGER}:{port}", STRANGER)
        for origin in ("", f"http://{own}", f"http://{STRANGER}:{port}", "null")
    }

    for (host, origin), status in statuses.items():
        if host != own:
            assert status == 421, (host, origin)
        elif origin not in ("", f"http://{own}"):
            assert status == 403, (host, origin)
        else:
            assert status in (200, 302, 400, 404), (
                host,
                origin,
            )  # 302: /; 400: a websocket


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_no_method_passes_under_a_foreign_name(served: Served, method: str):
    for route in ("/explorer", "/explorer/autoload.js"):
        assert get(served.port, route, host=STRANGER, method=method)[0] == 421


def test_a_websocket_opens_only_for_the_pages_own_name_and_origin(served: Served):
    port, own = served.port, f"localhost:{served.port}"
    foreign = f"{STRANGER}:{port}"

    assert "ACK" in talk(port, token_of(port), [], origin=f"http://{own}")[0]
    assert "ACK" in talk(port, token_of(port), [], host=f"127.0.0.1:{port}", origin=f"http://127.0.0.1:{port}")[0]
    # A name of the attacker that resolves to this machine: Origin and Host agree, as after DNS rebinding.
    assert talk(port, token_of(port), [], host=foreign, origin=f"http://{foreign}") == ["status 421"]
    assert talk(port, token_of(port), [], origin=f"http://{foreign}") == ["status 403"]


def test_what_travels_to_a_browser_is_compressed(served: Served):
    assert "permessage-deflate" in compression(served.port, token_of(served.port))


def test_every_answer_has_the_security_headers_and_none_invites_other_sites(served: Served):
    for route in ROUTES:
        for host in ("", STRANGER):
            _, headers, _ = get(served.port, route, host=host)
            assert headers["X-Content-Type-Options"] == "nosniff", route
            assert "object-src 'none'" in headers["Content-Security-Policy"], route
            assert not [name for name in headers if name.startswith("Access-Control-")], route


@pytest.mark.parametrize("query", ["", "?page=laboratory&m=12", "?note=a%20b%26c"])
def test_the_bare_address_leads_to_the_page_with_what_a_link_says(served: Served, query: str):
    status, headers, _ = get(served.port, "/" + query)

    assert (status, headers["Location"]) == (302, "./explorer" + query)


@pytest.mark.parametrize("page", ["", "?page=stories", "?page=side-by-side", "?page=laboratory&v=1"])
def test_every_page_is_as_wide_as_a_phone(served: Served, page: str):
    assert get(served.port, f"/explorer{page}")[2].count('<meta name="viewport" content="width=device-width') == 1


def test_no_address_imports_a_module(served: Served):
    for module in ("lib2to3.__main__", "antigravity", "this", "panel.io.server"):
        assert get(served.port, f"/components/{module}/x/_css/y")[0] == 404

    assert get(served.port, "/explorer")[0] == 200


def test_no_token_is_given_to_scripts_of_other_sites(served: Served):
    status, _, text = get(served.port, "/explorer/autoload.js?bokeh-autoload-element=1")

    assert status == 404
    assert "token" not in text


@pytest.mark.parametrize("argument", ["bokeh-token=abc", "bokeh-session-id=abc", "bokeh-session-id=a%0aERROR%20forged"])
def test_a_session_cannot_be_chosen_in_the_address(served: Served, argument: str):
    status, _, text = get(served.port, f"/explorer?{argument}")

    assert status == 400
    assert "cannot be chosen" in text


def test_a_message_that_fails_shows_no_paths_and_leaves_its_reason_in_the_log(served: Served):
    patch = {"events": [{"kind": "ModelChanged", "model": {"id": "none"}, "attr": "x", "new": 1}]}
    came = "\n".join(talk(served.port, token_of(served.port), fragments("PATCH-DOC", patch), until="in its log"))

    assert "ERROR" in came
    assert "Traceback" not in came
    assert ".py" not in came
    number = re.search(r"in its log under ([0-9a-f]{6})", came)
    assert number
    assert number[1] in served.log.read_text()


def test_no_text_from_a_visitor_looks_like_a_record_of_the_log(served: Served):
    forged = "\nERROR forged by a visitor"
    patch = {"events": [{"kind": "ModelChanged", "model": {"id": f"none{forged}"}, "attr": "x", "new": 1}]}
    for messages in (fragments("PATCH-DOC", patch), fragments(f"PATCH-DOC{forged}", {}), [f"no json {forged}"]):
        talk(served.port, token_of(served.port), messages)

    until(lambda: served.log.read_text().count("forged by a visitor") >= 3)
    lines = served.log.read_text().splitlines()
    assert not [line for line in lines if line.startswith("ERROR forged")]


def test_an_address_open_to_all_networks_needs_a_name():
    for address in ("0.0.0.0", "::", ""):
        with pytest.raises(SettingError, match=r"open to every network.*--origin"):
            hosts(address, 5006)
    assert "lab.example:80" in hosts("0.0.0.0", 5006, ("Lab.example:80",))
    assert {"lab.example:443", "lab.example:80"} <= set(hosts("localhost", 5006, ("lab.example:443",)))
    assert hosts("192.0.2.7", 5006) == ("192.0.2.7:5006",)
    for origin in ("*", "*.example:80", "https://lab.example", "lab.example"):
        with pytest.raises(SettingError, match="is not a host with a port"):
            hosts("localhost", 5006, (origin,))


def test_a_server_in_a_program_of_ones_own_is_guarded_when_it_starts(visit: Callable[..., None]):
    """That of a class, of a function or of an object; a server of other functions stays as it is."""
    panel_serve.install()

    async def story(visited: Visited) -> None:
        apps = {"class": Explorer, "function": lambda: pn.pane.HTML(""), "object": pn.Column(), "other": admin_panel}
        answers = {}
        for name, app in apps.items():
            server = pn.serve({"x": app}, port=0, start=False, show=False, verbose=False)
            server.start()
            url = f"http://localhost:{server.port}/nothing"
            request = HTTPRequest(url, headers={"Host": STRANGER})
            answers[name] = (await AsyncHTTPClient().fetch(request, raise_error=False)).code
            server.stop()
        assert answers == {"class": 421, "function": 421, "object": 421, "other": 404}
        assert (await visited.get()).code == 200  # protected before, with limits of its own

    visit(story)
