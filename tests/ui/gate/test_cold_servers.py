"""Attacks on servers that nobody has visited yet, and the same attacks on servers that have visitors.

The matrix is: how the server was started, the route, and the attack. Each server is started once; its first request
is the one that once ended the process of `panel serve`.
"""

from __future__ import annotations

import http.client
import re
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from raw_clients import fragments, get, half_open, talk, token_of
from served_entries import ENTRIES, Entry, started

pytestmark = pytest.mark.long
STRANGER = "evil.example"
OTHER_ADDRESS = "::1" if socket.has_ipv6 else "127.0.0.1"
IMPORTED = "/components/lib2to3.__main__/x/_css/y"  # importing this module ends the process


@pytest.fixture(scope="module")
def until_the_end() -> Iterator[ExitStack]:
    """What stays open while all tests of this file run."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module", params=ENTRIES)
def entry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, until_the_end: ExitStack) -> Entry:
    """A server, with a request that does not end from the first second on: after all tests the server has closed it.

    It stays until then, so that no test waits for that.
    """
    server = until_the_end.enter_context(started(request.param, tmp_path_factory.mktemp(request.param)))
    begun = time.monotonic()
    unfinished = until_the_end.enter_context(half_open(server.port, "GET /explorer HTTP/1.1\r\nHost: "))
    until_the_end.callback(check_closed, unfinished, begun)
    return server


def check_closed(unfinished: socket.socket, begun: float) -> None:
    """The server has closed this request within a minute."""
    unfinished.settimeout(max(0.1, 60 - (time.monotonic() - begun)))
    assert unfinished.recv(100) == b""


def routes(entry: Entry) -> list[str]:
    prefix = entry.path.rpartition("/")[0]
    return [
        IMPORTED, f"{prefix}{IMPORTED}", "/", entry.path, f"{entry.path}/metadata", f"{entry.path}/ws",
        f"{entry.path}/autoload.js?bokeh-autoload-element=1", f"{prefix}/static/js/bokeh.min.js",
        "/static/extensions/panel/panel.min.js", "/favicon.ico", "/nothing",
    ]  # fmt: skip


def attacks(entry: Entry) -> dict[tuple[str, str], object]:
    """What the server answers to each attack on each route, where it is not what it should be."""
    port, wrong = entry.port, dict[tuple[str, str], object]()
    own, foreign = f"localhost:{port}", f"{STRANGER}:{port}"

    def expect(attack: str, route: str, allowed: tuple[int, ...], **sent: str) -> None:
        status, headers, _ = get(port, route, **sent)
        if status not in allowed or "object-src 'none'" not in headers.get("Content-Security-Policy", ""):
            wrong[attack, route] = status

    for route in routes(entry):
        expect("foreign host", route, (421,), host=STRANGER)
        expect("foreign host with the port", route, (421,), host=foreign)
        expect("DNS rebinding", route, (421,), host=foreign, origin=f"http://{foreign}")
        expect("foreign site", route, (403,), host=own, origin=f"http://{foreign}")
        expect("no site", route, (403,), host=own, origin="null")
        expect("a site that names this one", route, (403,), host=own, origin=f"http://{foreign}://{own}")
        expect("method", route, (405,), method="POST")
        expect("foreign method", route, (421,), host=foreign, method="PUT")
        expect("chosen session", f"{route.partition('?')[0]}?bokeh-session-id=abc", (400,))
        many = "&".join(f"a{number}=1" for number in range(900))
        expect("900 arguments", f"{route.partition('?')[0]}?{many}", (400,))
        expect("long address", f"{route.partition('?')[0]}?{'a' * 9000}", (414,))
    for route in (IMPORTED, f"{entry.path.rpartition('/')[0]}{IMPORTED}", f"{entry.path}/autoload.js"):
        expect("closed route", route, (404,))
    for route in ("/static/%00", f"{entry.path}/%00"):
        expect("the character 0", route, (400,))
    for host in ("127.0.0.1", "[::1]", "LOCALHOST", "127.0.0.3"):
        expect(f"own name {host}", "/nothing", (404,), host=f"{host}:{port}", origin=f"http://{host}:{port}")
    return wrong


def test_no_attack_passes_before_the_first_visitor_or_after(entry: Entry):
    assert attacks(entry) == {}
    assert entry.lives
    _, headers, page = get(entry.port, entry.path)
    assert "location.reload()" not in page
    assert "Content-Security-Policy" in headers
    assert attacks(entry) == {}
    assert entry.lives
    assert max(map(len, entry.log.read_text().splitlines())) < 1000


def test_a_large_body_is_refused_before_it_has_come(entry: Entry):
    """Under a foreign name and under the server's own: 95 MB are announced, and the answer comes without them."""
    for host, status in ((STRANGER, 421), (f"localhost:{entry.port}", 405)):
        connection = http.client.HTTPConnection("localhost", entry.port, timeout=10)
        connection.putrequest("POST", entry.path, skip_host=True)
        connection.putheader("Host", host)
        connection.putheader("Content-Length", str(95_000_000))
        connection.endheaders()
        assert connection.getresponse().status == status
        connection.close()


def test_a_websocket_without_a_token_of_this_server_is_refused_in_a_line_of_the_log(entry: Entry):
    """Such as those of pages that were open when the server was started again."""
    from bokeh.util.token import generate_jwt_token, generate_session_id

    other_id = generate_session_id(secret_key=b"of another server", signed=True)
    tokens = {
        "unsigned": generate_jwt_token(generate_session_id(signed=False), signed=False),
        "of another server": generate_jwt_token(other_id, b"of another server", signed=True),
        "no token": "x.y",
        "deep": b64encode(b"[" * 40_000).decode().rstrip("=") + ".x",
    }
    before = len(entry.log.read_text())

    answers = {name: talk(entry.port, token, [], path=entry.path) for name, token in tokens.items()}
    assert answers == {name: ["status 400"] for name in tokens}
    assert "Traceback" not in entry.log.read_text()[before:]


@pytest.mark.parametrize("entry", ["serve", "panel"], indirect=True)
def test_what_a_browser_sends_has_limits(entry: Entry):
    """The connection ends at once where a header is no JSON, and where the buffers of a message become too large."""
    port, secret = entry.port, "the-secret-of-a-visitor"
    no_json = talk(port, token_of(port), [f"no json {'x' * 300} {secret}"], until="never")
    header = '{"msgid": "1", "msgtype": "PATCH-DOC", "num_buffers": 100000}'
    buffers = [part for number in range(40) for part in (f'{{"id": "b{number}"}}', bytes(1 << 20))]
    endless = talk(port, token_of(port), [header, "{}", '{"events": []}', *buffers], until="never")
    talk(port, token_of(port), [header, "{}", f'{{"events": [{"[], " * 300_000}[]]}}'], until="never")

    assert "ACK" in no_json[0]
    assert "ACK" in endless[0]
    assert "A websocket is closed: a message of more than 25" in entry.log.read_text()
    assert "A websocket is closed: a message of more than 100000 lists" in entry.log.read_text()
    assert "is no header of a message" in entry.log.read_text()
    failing = '{"events": [{"kind": "ModelChanged", "model": {"id": "none"}, "attr": "x", "new": "%s%s"}]}'
    large = failing % ("y" * 9_000_000, secret)
    talk(port, token_of(port), [header.replace("100000", "0"), "{}", large], until="in its log")
    log = entry.log.read_text()
    assert len(log) < 100_000
    assert secret not in log
    assert not re.search("y{300}", log)
    assert "a message PATCH-DOC of 9" in log


def test_the_address_that_serve_prints_answers(tmp_path: Path):
    with started("serve", tmp_path, "--address", OTHER_ADDRESS) as server:
        check_printed_address(server)


def check_printed_address(server: Entry) -> None:
    printed = re.search(r"http://(\S+):(\d+)/explorer", server.log.read_text())
    assert printed
    assert printed[1].strip("[]") == OTHER_ADDRESS
    connection = http.client.HTTPConnection(OTHER_ADDRESS, int(printed[2]), timeout=60)
    connection.request("GET", "/nothing", headers={"Host": f"{printed[1]}:{printed[2]}"})
    assert connection.getresponse().status == 404
    connection.close()


def test_without_the_entry_point_the_first_visitor_brings_the_guard_and_everyone_is_told(tmp_path: Path):
    if any(entry.value.startswith("gpexplorer.") for entry in entry_points(group="panel.io.rest")):
        pytest.skip("the entry point is installed in this environment")
    with started("panel", tmp_path, metadata=False) as server:
        first = get(server.port, "/explorer")[2]
        assert "location.reload()" in first
        assert "width=device-width" in first
        assert get(server.port, IMPORTED)[0] == 404
        page = talk(server.port, token_of(server.port), fragments("PULL-DOC-REQ", {}), until="roots")
        assert "had no guard until its first visitor" in "".join(page)
        assert "Install gpexplorer again" in server.log.read_text()


def test_panel_serve_with_another_script_is_guarded_answers_at_its_address_and_refuses_other_machines(tmp_path: Path):
    """It believes what a proxy says about the visitor's address, so that visitors can come from any machine."""
    app = tmp_path / "other.py"
    app.write_text("import panel as pn\npn.pane.HTML('other').servable()\n")
    with started("panel", tmp_path, str(app), "--address", OTHER_ADDRESS, "--use-xheaders") as server:
        check_printed_address(server)
        assert get(server.port, "/nothing", host=STRANGER, address=OTHER_ADDRESS)[0] == 421
        for visitor, expected in (("192.0.2.7", 403), ("2001:db8::7", 403), ("127.0.0.1", 200), ("::1", 200)):
            status, _, text = get(server.port, "/explorer", visitor=visitor, address=OTHER_ADDRESS)
            assert status == expected, visitor
            assert ("its own machine only" in text) == (expected == 403)
        assert "answers this machine only" in server.log.read_text()
    assert not _guarded([str(app)])  # alone, it stays as it is


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda text: text, True),
        (lambda text: text + "print('opened')\n", False),
        (lambda text: text.replace("panel_serve_app()", "panel_serve_app(pn.state.user)"), False),
        (lambda text: text + ")", False),
    ],
    ids=["as it is", "does more", "asks for the visitor", "is no program"],
)
def test_pages_are_built_in_advance_only_of_a_script_that_does_nothing_else(
    root: Path, change: Callable[[str], str], expected: bool
):
    from types import SimpleNamespace

    from gpexplorer.ui.gate.panel_serve import _is_our_page

    script = SimpleNamespace(source=change((root / "apps" / "explorer.py").read_text("utf-8")))
    context = SimpleNamespace(application=SimpleNamespace(handlers=[SimpleNamespace(_runner=script)]))
    assert _is_our_page(context) == expected


def _guarded(files: list[str]) -> bool:
    from types import SimpleNamespace

    from bokeh.command.util import build_single_handler_applications

    from gpexplorer.ui.gate.panel_serve import serves_this_package

    applications = build_single_handler_applications(files)
    contexts = {path: SimpleNamespace(application=app) for path, app in applications.items()}
    return serves_this_package(SimpleNamespace(_tornado=SimpleNamespace(applications=contexts)))
