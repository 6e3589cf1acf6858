"""The server listens at the loopback addresses of the machine, by one port, and nowhere else."""

import re
import socket
import threading
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection

import pytest

from glassformer.base.errors import ConfigError
from glassformer.lens.server import app as served
from glassformer.lens.server.app import listen, make_app, make_server


@pytest.fixture
def ipv6():
    """A machine without ::1 skips, by name."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as reason:
        pytest.skip(f"this machine has no ::1 ({reason.strerror})")


@contextmanager
def listening(port=0):
    with ExitStack() as closing:
        yield [closing.enter_context(each) for each in listen(port)]


def places(listeners):
    return [each.getsockname()[:2] for each in listeners]


def free_at_the_first_alone():
    """A socket of ::1 whose port nothing of 127.0.0.1 listens at."""
    first, taken = listen(0)
    first.close()
    return taken


def test_it_listens_on_loopback_alone(ipv6):
    with listening() as listeners:
        port = listeners[0].getsockname()[1]
        assert places(listeners) == [("127.0.0.1", port), ("::1", port)]
        assert listeners[1].getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
        with pytest.raises(ConfigError, match=rf"cannot listen on port {port} of 127\.0\.0\.1"):
            listen(port)


def test_a_machine_without_ipv6_has_one_address(monkeypatch):
    """Its kernel may know IPv6 all the same: 2001:db8::1 is of no machine (RFC 3849)."""
    monkeypatch.setattr(served, "HOST6", "2001:db8::1")
    with listening() as listeners:
        assert places(listeners) == [("127.0.0.1", listeners[0].getsockname()[1])]


def test_a_port_is_free_at_both_or_refused(ipv6):
    with free_at_the_first_alone() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on port {port} of ::1 \(.+\)\. Try --port 0"):
            listen(port)
        with socket.socket() as first:
            first.bind(("127.0.0.1", port))  # nothing of what was refused is left


def test_any_port_is_one_that_is_free_at_both(ipv6, monkeypatch):
    real, refused = served._listener, []

    def once(family, host, port):
        if host == "::1" and not refused:
            refused.append(port)
            raise ConfigError("taken")
        return real(family, host, port)

    monkeypatch.setattr(served, "_listener", once)
    with listening() as listeners:
        assert len(refused) == 1
        [(_, port), (_, other)] = places(listeners)
        assert port == other


def test_it_answers_over_ipv6(app, ipv6):
    with listening() as listeners:
        port = listeners[0].getsockname()[1]
        server = make_server(make_app(app.state.api.subject, "the-token"))
        thread = threading.Thread(target=lambda: server.run(sockets=listeners))
        thread.start()
        try:
            for host in ("127.0.0.1", "::1"):
                call = HTTPConnection(host, port, timeout=20)
                call.request("GET", "/api/run", headers={"X-Glassformer-Token": "the-token"})
                answer = call.getresponse()
                assert (answer.status, b'"toy"' in answer.read()) == (200, True), host
                call.request("GET", "/api/run", headers={"Host": "[::]:80", "X-Glassformer-Token": "the-token"})
                assert call.getresponse().status == 400
                call.close()
        finally:
            server.should_exit = True
            thread.join()


def test_answers_are_sent_at_once():
    """Without the name of the protocol, asyncio leaves small packets waiting; a browser may come before the server."""
    with listening() as listeners:
        for each in listeners:
            assert each.proto == socket.IPPROTO_TCP
            socket.create_connection(each.getsockname()[:2]).close()


def test_the_usual_port_gives_way_and_one_that_was_asked_for_does_not(ipv6, monkeypatch, tmp_path):
    from glassformer.cli import explore

    class Server:
        def run(self, sockets):
            seen.append(places(sockets))

    seen = []
    monkeypatch.setattr(explore, "subject_in", lambda *_: None)
    monkeypatch.setattr(served, "make_app", lambda *_: None)
    monkeypatch.setattr(served, "make_server", lambda *_: Server())
    with free_at_the_first_alone() as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(explore, "USUAL_PORT", port)
        assert explore.serve(tmp_path, None, [], opens=False) == 0
        [[(_, first), (_, second)]] = seen
        assert first == second != port
        with pytest.raises(ConfigError, match=re.escape(f"listen on port {port} of ::1")):
            explore.serve(tmp_path, port, [], opens=False)
