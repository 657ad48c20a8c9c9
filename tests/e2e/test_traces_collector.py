# SPDX-License-Identifier: Apache-2.0
"""No collector is ever in a request's way: dead, slow, hostile or gone, and at the end."""
import socket
import time

import pytest

import collector as bad
from collector import Collector
from load import Load
from model_files import random_grid
from test_traces import NOW, by_id, exporting, spans_total, wait_servers
from voxeld import Client
from voxeld_process import PATIENCE, Daemon


def ask(daemon, count=1, name="x"):
    """A good client: every request is answered."""
    coords, feats = random_grid(1, 50)
    with Client(daemon.grpc) as client:
        for _ in range(count):
            client.infer("conv", coords, feats, id=name, timeout=PATIENCE)


BAD = {
    "busy": bad.later(503, b"1"), "throttles": bad.later(429, b"0"),
    "gateway": bad.later(502, b"never"), "closes inside": bad.close_inside,
    "half an answer": bad.answer_half, "hangs": bad.hang, "reads nothing": bad.read_nothing,
    "endless headers": bad.headers_without_end, "endless body": bad.body_without_end,
    "nonsense": bad.nonsense,
}


# Only these make the daemon wait, and the good collector has the same limit afterwards.
LIMITS_MS = {bad.hang: "5000", bad.read_nothing: "5000", bad.headers_without_end: "5000",
             bad.body_without_end: "5000"}


@pytest.mark.parametrize("behave", BAD.values(), ids=BAD.keys())
def test_a_bad_collector_that_gets_well(repository, tmp_path, behave):
    """Meanwhile requests are answered, then the same spans arrive; the log says both once."""
    with Collector(behave=behave) as collector, exporting(
            repository, tmp_path, collector, *NOW, "--otlp-timeout-ms",
            LIMITS_MS.get(behave, "60000")) as daemon:
        ask(daemon, name="early")
        daemon.wait_said("SPANS_FAIL")
        ask(daemon, 20)
        rss = daemon.rss_bytes()
        ask(daemon, 50)
        assert daemon.rss_bytes() < rss + (32 << 20)
        assert "SPANS_FLOW" not in daemon.log() and not collector.taken
        assert spans_total(daemon)["sent"] == 0
        collector.behave = bad.take
        daemon.wait_said("SPANS_FLOW")

        def all_said():
            counts = spans_total(daemon)
            # A machine that needs a minute for this loses the first batch, as it should.
            return counts["sent"] + counts["failed"] == 71 * 7 and counts
        counts = daemon.wait_for("the counts", all_said)
        assert counts["rejected"] == counts["dropped"] == 0
        ids = [span.span_id for span in collector.spans()]
        assert len(ids) == len(set(ids)) == counts["sent"] > 0, "a span came twice, or not"
        assert daemon.log().count("SPANS_FAIL") == daemon.log().count("SPANS_FLOW") == 1


def test_retry_after_is_obeyed(repository, tmp_path):
    moments = []

    def behave(collector, connection, stream):
        message = collector.read(stream)
        if message is None:
            return False
        moments.append(time.monotonic())
        if len(moments) == 1:
            connection.sendall(bad.LATER % (503, b"3"))
        else:
            collector.take_message(message)
            connection.sendall(bad.TAKEN % (0, b""))
        return True

    with Collector(behave=behave) as collector, exporting(
            repository, tmp_path, collector, *NOW) as daemon:
        ask(daemon)
        wait_servers(daemon, collector, lambda span: True)
    assert len(collector.posts) == 2
    first, second = (post[2] for post in collector.posts)
    assert first == second, "another batch than the one that was not taken"
    assert moments[1] - moments[0] >= 3


def test_what_a_collector_refuses_is_not_sent_again(repository, tmp_path):
    with Collector(behave=bad.refuse(400)) as collector, exporting(
            repository, tmp_path, collector, *NOW) as daemon:
        ask(daemon, 3)
        daemon.wait_for("rejected spans", lambda: spans_total(daemon)["rejected"] == 21)
        daemon.wait_said("answered 400")
        collector.behave = bad.partly(4, "four were too many")
        ask(daemon, 1)
        daemon.wait_for("4 of 7", lambda: spans_total(daemon) == {
            "sent": 3, "rejected": 25, "failed": 0, "dropped": 0})
        collector.behave = bad.take
        ask(daemon, 1)
        daemon.wait_said("SPANS_FLOW")
        names = [span.span_id for post in collector.posts for rs in post[2].resource_spans
                 for span in rs.scope_spans[0].spans]
        assert len(names) == len(set(names)), "a refused span came again"


def test_a_dead_collector_costs_spans_and_nothing_else(repository, tmp_path):
    """More requests than may wait; what is dropped is counted, to the span."""
    listener = socket.socket()  # bound, so that nobody else has the port, and refusing
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with Daemon(repository, tmp_path, "--otlp-endpoint", f"http://127.0.0.1:{port}",
                *NOW) as daemon:
        with Load(daemon, threads=4, voxels=20) as load:
            daemon.wait_for("spans that are dropped",
                            lambda: spans_total(daemon)["dropped"] > 1000)
        assert not load.errors
        assert daemon.log().count("SPANS_FAIL") == 1 and "refused" in daemon.log()
        counts = spans_total(daemon)
        assert counts["sent"] == counts["rejected"] == 0
        # What was dropped while it was dead is reported once more, when the rest arrives.
        with Collector(listener) as collector:
            ask(daemon, name="late")
            daemon.wait_for("all that waited", lambda: (
                lambda now: now["sent"] and sum(now.values()) == 7 * (len(load.answered) + 1)
                or None)(spans_total(daemon)))
            ask(daemon, name="later")
            daemon.wait_said("SPANS_FLOW")
            wait_servers(daemon, collector, by_id("later"))


def test_a_connection_that_was_closed_meanwhile(repository, tmp_path):
    """A collector may end a connection that it kept open: nothing is lost, nothing fails."""
    def once(collector, connection, stream):
        bad.take(collector, connection, stream)
        return False
    with Collector(behave=once) as collector, exporting(
            repository, tmp_path, collector, *NOW) as daemon:
        for i in range(5):
            ask(daemon, name=f"n-{i}")
            wait_servers(daemon, collector, by_id(f"n-{i}"))
        assert collector.connections == 5 and "SPANS_FAIL" not in daemon.log()
        # The collector has the last ones before the daemon has its answer.
        daemon.wait_for("all spans as sent", lambda: spans_total(daemon)["sent"] == 35)


# ------- the end -------


def test_sigterm_sends_what_waits(repository, tmp_path):
    """They wait for others: a batch is 512 spans, or a minute."""
    with Collector() as collector:
        with exporting(repository, tmp_path, collector, "--otlp-delay-ms", "60000") as daemon:
            ask(daemon, 20, name="last")
        assert len(collector.servers()) == 20 and "SPANS_FAIL" not in daemon.log()


def test_a_batch_goes_when_it_is_full(repository, tmp_path):
    with Collector() as collector, exporting(
            repository, tmp_path, collector, "--otlp-delay-ms", "60000") as daemon:
        ask(daemon, 80)
        spans = daemon.wait_for("a batch", collector.spans)
        assert len(spans) >= 504


@pytest.mark.parametrize("behave", [bad.hang, bad.read_nothing, bad.later(503, b"60")],
                         ids=["hangs", "reads nothing", "busy"])
def test_sigterm_beside_a_bad_collector(repository, tmp_path, behave):
    """The process ends all the same, with exit code 0, and the log says what was lost."""
    with Collector(behave=behave) as collector:
        with Daemon(repository, tmp_path, "--otlp-endpoint", collector.url, "--otlp-delay-ms",
                    "60000", "--otlp-timeout-ms", "60000", "--drain-ms", "500") as daemon:
            ask(daemon, 100)
            daemon.wait_for("a connection", lambda: collector.connections)
        assert daemon.log().count("SPANS_FAIL") == 1
