"""The bytes that a worker of a cluster has sent are those that the kernel counts on its connections."""

from __future__ import annotations

import socket

from benchmarks.cluster import traffic


def test_bytes_on_the_connections_of_this_process_are_counted():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        other, _ = server.accept()
        with other:
            received, sent = traffic()
            client.sendall(bytes(30_000))
            got = 0
            while got < 30_000:
                got += len(other.recv(2**16))
            now_received, now_sent = traffic()

    assert now_received - received == 30_000
    assert now_sent - sent == 30_000
