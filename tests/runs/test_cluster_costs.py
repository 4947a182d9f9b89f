"""The model of a cluster beside a simulation of a client that hands out pieces one after another."""

from __future__ import annotations

import heapq

import pytest

from gpexplorer.runs.studies.cluster import LARGE, Link, Work, cluster_seconds, measured_link

LINK = Link(seconds_per_piece=0.01, latency=0.02, bytes_per_second=1e8)


def simulated(work: Work, workers: int, link: Link) -> float:
    """Hand every piece to the worker that is free first, when the client has sent it."""
    transfer = work.bytes / link.bytes_per_second
    free, ends = [0.0] * workers, []
    for piece in range(work.pieces):
        sent = link.latency + transfer + piece * (link.seconds_per_piece + transfer)
        end = max(heapq.heappop(free), sent) + work.seconds
        heapq.heappush(free, end)
        ends.append(end)
    return max(ends) + work.client_seconds


@pytest.mark.parametrize("workers", [1, 7, 100])
@pytest.mark.parametrize(
    "work", [Work(200, 10.0), Work(10, 4.0, 2e6, 0.3), Work(500, 0.001, 1e4), Work(30, 1.0, 1e8), Work(1, 2.0)]
)
def test_the_model_is_that_of_a_simulation_to_one_round_of_handing_out(work: Work, workers: int):
    exact, model = simulated(work, workers, LINK), cluster_seconds(work, workers, LINK)
    round_of_handing_out = min(workers, work.pieces) * (LINK.seconds_per_piece + work.bytes / LINK.bytes_per_second)

    assert model <= exact + 0.02
    assert exact <= model + round_of_handing_out + work.seconds


def test_more_workers_than_pieces_change_nothing_and_half_the_workers_take_twice_as_long():
    seconds = [cluster_seconds(Work(200, 10.0), workers, LINK) for workers in (50, 100, 200, 400)]

    assert seconds[0] == pytest.approx(2 * seconds[1], rel=0.01)
    assert seconds[2] == seconds[3]


def test_the_constants_of_a_link_are_found():
    class Client:
        """Its pieces take the time that LINK says, by a clock of its own, in seconds."""

        status, clock = "running", 0.0

        def nthreads(self):
            return {"worker": 1}

        def submit(self, function, inner, piece, pure):
            size = piece.nbytes if hasattr(piece, "nbytes") else 0
            self.clock += LINK.seconds_per_piece + size / LINK.bytes_per_second
            return Done((inner(piece), 0))

    class Done:
        status = "finished"

        def __init__(self, value):
            self.value = value

        def result(self, timeout):
            return self.value

    client = Client()
    client.cancel = lambda futures: None
    link = measured_link(client, clock=lambda: client.clock)

    assert LARGE > 1
    assert link.seconds_per_piece == pytest.approx(0.01)
    assert link.bytes_per_second == pytest.approx(1e8, rel=1e-6)
