"""What sessions share: memory, turns and places; and what a link may compute without a click."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from gpexplorer import Spec
from gpexplorer.errors import OutOfMemory, SettingError
from gpexplorer.runs.studies.memory_need import Rows, _largest, memory_need, refusal, rows_by_name
from gpexplorer.ui import shared_limits
from gpexplorer.ui.playback.open_run import Frame, OpenRequest
from gpexplorer.ui.playback.player import Player
from gpexplorer.ui.shared_limits import Limits, Shares, Turns, heavy_link, long_replay


def spec(n: int = 100, m: int = 5, d: int = 1) -> Spec:
    return Spec("cholqr", {"num_inducing": m, "memory": 0.0}, {"name": "hypercube", "n": n, "d": d}, kernel="se")


LARGE = spec(n=1_000_000, m=512)


@pytest.fixture
def four_gigabytes(monkeypatch: pytest.MonkeyPatch) -> Shares:
    monkeypatch.setattr(shared_limits, "free_memory", lambda: 100e9)
    return Shares(Limits(max_memory=4e9))


def test_the_refusal_names_a_setting_that_fits():
    rows = rows_by_name(LARGE.data)
    assert rows == Rows(1_000_000, 1)
    assert refusal(spec(), Rows(100, 1), 64e6) == ""

    sentence = refusal(LARGE, rows, 3e9)

    assert "needs 9.9 GB of memory by formula, and 3 GB are free for it. With num_inducing = 81" in sentence
    fits = {most: _largest(lambda value, most=most: value <= most) for most in (0, 7, 99, 100, 12_999)}
    assert fits == {0: 0, 7: 7, 99: 99, 100: 100, 12_999: 12_000}
    assert memory_need(spec(n=1_000_000, m=81), rows) <= 3e9 < memory_need(spec(n=1_000_000, m=90), rows)


def test_the_need_is_above_what_a_run_was_measured_to_take():
    from gpexplorer.runs.studies.measured_run import measure

    small = spec(n=60_000, m=40, d=2)
    measured = measure(small)

    assert measured.sentence == ""
    assert measured.memory < memory_need(small, Rows(60_000, 2)) < 20 * measured.memory


def test_runs_of_all_sessions_share_the_memory(four_gigabytes: Shares):
    first, second = four_gigabytes.reservation(), four_gigabytes.reservation()
    large_spec = spec(n=300_000, m=200)  # 1.4 GB
    first.take(large_spec)
    first.add(large_spec)
    with pytest.raises(OutOfMemory, match="not started: cholqr on 300,000 rows"):
        second.take(large_spec)
    reserved = four_gigabytes.reserved

    second.take(large_spec, instead_of=first)
    second.give_back()
    assert four_gigabytes.reserved == reserved
    first.give_back()
    second.take(large_spec)
    del second
    assert four_gigabytes.reserved == 0


def test_what_is_free_at_present_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_limits, "free_memory", lambda: 1e9)

    with pytest.raises(OutOfMemory, match="900 MB are free"):
        Shares(Limits(max_memory=64e9)).reservation().take(spec(n=300_000, m=200))


@pytest.mark.parametrize(
    "wrong", [{"max_sessions": 0}, {"threads": 0}, {"max_memory": 1e3}, {"max_memory": float("nan")}]
)
def test_limits_that_leave_nothing_are_refused(wrong: dict[str, float]):
    with pytest.raises(SettingError, match="at least"):
        Limits(**wrong)


def followed(player: Player, holds: Callable[[Frame], bool]) -> Frame:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        frame = player.take(wait=0.2)
        if frame is not None and holds(frame):
            return frame
    raise AssertionError("no such frame")


def test_a_player_refuses_before_it_reads_and_keeps_the_run_before(four_gigabytes: Shares):
    player = Player(shares=four_gigabytes)
    player.open(OpenRequest(spec()))
    followed(player, lambda frame: frame.run is not None)
    before = four_gigabytes.reserved

    player.open(OpenRequest(LARGE))
    frame = followed(player, lambda frame: bool(frame.notice[1]))

    assert "num_inducing = " in frame.notice[1]
    assert frame.run is not None
    assert frame.run.spec == spec()
    assert four_gigabytes.reserved == before > 0
    player.close()
    player.thread.join(10)
    assert four_gigabytes.reserved == 0


def test_rows_without_a_name_are_compared_once_they_are_read(four_gigabytes: Shares):
    from gpexplorer.data import load

    rows = load({"name": "hypercube", "n": 30_000, "d": 1})  # a factor of 5.8 GB
    player = Player(shares=four_gigabytes)
    player.open(OpenRequest(Spec("cholesky", data={"name": "upload"}, kernel="se"), lambda _: rows))

    assert "cholesky on 27,000 rows" in followed(player, lambda frame: bool(frame.notice[1])).notice[1]
    player.close()


def test_a_prepared_run_opens_with_the_first_step_that_a_person_asks_for():
    player = Player()
    player.prepare(OpenRequest(spec()), "Press Play to open it.")

    assert followed(player, lambda frame: bool(frame.notice[1])).notice[1] == "Press Play to open it."
    player.redraw()
    player.pause()
    time.sleep(0.3)
    assert player.run is None
    player.step()
    frame = followed(player, lambda frame: frame.numbers is not None and frame.numbers.at == 1)
    assert frame.run is not None
    assert frame.run.spec == spec()
    player.close()


@pytest.mark.parametrize(("n", "m", "is_heavy"), [(200, 10, False), (20_000, 100, False), (10_000_000, 10, True)])
def test_heavy_links_wait_for_a_click(n: int, m: int, is_heavy: bool):
    assert ("Press Play" in heavy_link(spec(n, m))) == is_heavy


def test_long_replays_of_a_link_wait_for_a_click():
    assert long_replay(spec(), 150) == ""
    assert "step 9,007,199,254,740,991" in long_replay(spec(), 2**53 - 1)
    assert "step 150" in long_replay(spec(n=1_000_000, m=512), 150)  # seconds per step


def test_turns_come_in_the_order_of_asking_and_one_at_a_time():
    turns, order, together, most = Turns(1, patience=30), [], [0], [0]

    def work(name: int) -> None:
        with turns.turn():
            together[0] += 1
            most[0] = max(most[0], together[0])
            order.append(name)
            time.sleep(0.02)
            together[0] -= 1

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
        time.sleep(0.002)
    for thread in threads:
        thread.join()

    assert order == list(range(6))
    assert most == [1]


def test_a_long_turn_does_not_keep_others_waiting():
    turns, release = Turns(1, patience=0.1), threading.Event()

    def long() -> None:
        with turns.turn():
            release.wait(20)

    thread = threading.Thread(target=long)
    thread.start()
    time.sleep(0.02)
    begin = time.monotonic()
    with turns.turn():
        assert 0.08 <= time.monotonic() - begin < 5
    release.set()
    thread.join()

    with turns.turn():  # as many turns as in the beginning: a second one has to wait
        assert turns._running == 1
    assert turns._running == 0
