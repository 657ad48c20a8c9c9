# SPDX-License-Identifier: Apache-2.0
"""Spans of requests reach a collector, and say what there is to say."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import voxeld
from collector import Collector
from conftest import ROOT
from model_files import random_grid
from test_stream_infer import Service
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
STAGES = ["receive", "queue", "input", "geometry", "compute", "answer"]
# Spans go at once, not in batches of 5 s.
NOW = ("--otlp-delay-ms", "10")


def parent(flags="01", **more):
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-{flags}", **more}
    return tuple(headers.items())


def values(attributes):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


def spans_total(daemon):
    found = {}
    for key, value in daemon.metrics().items():
        match = re.fullmatch(r'voxeld_spans_total\{result="([a-z]+)"\}', key)
        if match:
            found[match[1]] = int(value)
    return found


@contextlib.contextmanager
def exporting(repository, work, collector, *flags):
    with Daemon(repository, work, "--otlp-endpoint", collector.url, *flags) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def served(repository, tmp_path_factory):
    """A daemon that exports all requests to a good collector."""
    with Collector() as collector:
        with exporting(repository, tmp_path_factory.mktemp("daemon"), collector, *NOW,
                       "--access-log", "--log-format", "json", "--otlp-resource",
                       "service.name=scans,deployment.environment.name=a%2Cb") as daemon:
            daemon.collector = collector
            yield daemon


def wait_servers(daemon, collector, condition, count=1):
    """The requests' own spans that meet a condition, when there are so many."""
    def found():
        spans = [span for span in collector.servers() if condition(span)]
        return spans if len(spans) >= count else None
    return daemon.wait_for(f"{count} spans", found)


def by_id(name):
    return lambda span: values(span.attributes).get("voxeld.request.id") == name


# ------- what a span says -------


def test_a_request_is_one_span_with_its_stages(served):
    coords, feats = random_grid(1, 500)
    before = time.time_ns()
    with Client(served.grpc) as client:
        client.infer("conv", coords, feats, id="first")
        client.infer("conv", coords, feats, id="second", metadata=parent(tracestate="a=1,b=2"))
    first, = wait_servers(served, served.collector, by_id("first"))
    second, = wait_servers(served, served.collector, by_id("second"))
    after = time.time_ns()
    said = values(first.attributes)
    assert first.name == "inference.GRPCInferenceService/ModelInfer"
    assert {key: said[key] for key in said if key.startswith("rpc.")} == {
        "rpc.system": "grpc", "rpc.service": "inference.GRPCInferenceService",
        "rpc.method": "ModelInfer", "rpc.grpc.status_code": 0}
    assert said["voxeld.model"] == "conv" and said["voxeld.version"] == 1
    assert said["voxeld.voxels"] == said["voxeld.batch.voxels"] == 500
    assert said["voxeld.batch.requests"] == 1 and 0 < said["voxeld.batch.fill"] <= 1
    assert said["voxeld.device"] == "cpu" and said["voxeld.worker"] == 0
    assert said["voxeld.pairs"] >= 500 and said["voxeld.request.bytes"] > 500 * 16
    assert said["voxeld.answer.bytes"] == 500 * 3 * 4
    assert said["voxeld.geometry.hit"] is False
    assert values(second.attributes)["voxeld.geometry.hit"] is True
    assert "error.type" not in said and first.status.code == first.status.STATUS_CODE_UNSET

    assert len(first.trace_id) == 16 and len(first.span_id) == 8 and not first.parent_span_id
    assert second.trace_id.hex() == TRACE_ID and second.parent_span_id.hex() == PARENT_ID
    assert first.trace_state == "" and second.trace_state == "a=1,b=2"
    # W3C's sampled, OTLP's "known to be remote", and remote for a caller's span.
    assert first.flags == 0x101 and second.flags == 0x301

    spans = {span.span_id: span for span in served.collector.spans()}
    for server in (first, second):
        children = [s for s in spans.values() if s.parent_span_id == server.span_id]
        assert [child.name for child in children] == STAGES
        ends = [server.start_time_unix_nano]
        for child in children:
            assert child.kind == child.SPAN_KIND_INTERNAL
            assert child.trace_id == server.trace_id and child.trace_state == server.trace_state
            assert child.start_time_unix_nano == ends[-1]
            assert child.end_time_unix_nano >= child.start_time_unix_nano
            ends.append(child.end_time_unix_nano)
        assert ends[-1] == server.end_time_unix_nano > server.start_time_unix_nano
        # By the calendar: a clock that is set while the test runs is allowed a second.
        assert before - 10**9 < server.start_time_unix_nano
        assert server.end_time_unix_nano < after + 10**9


def test_tracestate_is_one_list(served):
    """It may come in several headers; a part of a list would not be the caller's."""
    coords, feats = random_grid(1, 10)
    cases = {"two": (["a=1", "b=2,c=3"], "a=1,b=2,c=3"), "empty": ([""], ""),
             "most": (["x=" + "y" * 510], "x=" + "y" * 510), "more": (["x=" + "y" * 511], ""),
             "together": (["x=" + "y" * 300, "z=" + "y" * 300], ""),
             "last": (["x=" + "y" * 600, "z=1"], "")}
    with Client(served.grpc) as client:
        for name, (lists, _) in cases.items():
            client.infer("conv", coords, feats, id=f"state-{name}",
                         metadata=(*parent(), *(("tracestate", text) for text in lists)))
        client.infer("conv", coords, feats, id="state-orphan", metadata=(("tracestate", "a=1"),))
    for name, (_, expected) in cases.items():
        span, = wait_servers(served, served.collector, by_id(f"state-{name}"))
        assert span.trace_state == expected, name
    span, = wait_servers(served, served.collector, by_id("state-orphan"))
    assert span.trace_state == "" and not span.parent_span_id


def test_the_sender_says_who_it_is(served):
    line, headers, message = served.wait_for(
        "a POST", lambda: served.collector.posts[0] if served.collector.posts else None)
    assert line == "POST /v1/traces HTTP/1.1"
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["host"] == f"127.0.0.1:{served.collector.port}"
    one, = message.resource_spans
    said = values(one.resource.attributes)
    assert said["service.name"] == "scans" and said["deployment.environment.name"] == "a,b"
    assert said["process.pid"] == str(served.process.pid) and said["host.name"]
    assert re.fullmatch("[0-9a-f]{32}", said["service.instance.id"])
    scope, = one.scope_spans
    assert scope.scope.name == "voxeld"


def test_times_are_those_of_the_request(served):
    """They are measured once: the TRACE line of the log has the same, to the nanosecond."""
    coords, feats = random_grid(5, 4000)
    with Client(served.grpc) as client:
        client.infer("conv", coords, feats, id="timed", metadata=parent())
    server, = wait_servers(served, served.collector, by_id("timed"))
    length = {span.name: span.end_time_unix_nano - span.start_time_unix_nano
              for span in served.collector.spans() if span.parent_span_id == server.span_id}
    line = served.wait_for("its line", lambda: next(
        (row for row in map(json.loads, served.log().splitlines())
         if row["event"] == "TRACE" and row["id"] == "timed"), None))
    assert line["span_id"] == server.span_id.hex() and min(length.values()) > 0
    assert length["queue"] == line["COMPUTE_START"] - line["REQUEST_START"]
    assert length["input"] == line["COMPUTE_INPUT_END"] - line["COMPUTE_START"]
    assert length["geometry"] + length["compute"] == (
        line["COMPUTE_OUTPUT_START"] - line["COMPUTE_INPUT_END"])
    assert length["answer"] == line["REQUEST_END"] - line["COMPUTE_OUTPUT_START"]


def test_failures_say_why(served):
    coords, feats = random_grid(2, 50)
    double = np.concatenate([coords, coords])
    with Client(served.grpc) as client:
        for name, call in (
                ("absent", lambda: client.infer("absent", coords, feats, id="absent")),
                ("twice", lambda: client.infer("conv", double, np.concatenate([feats, feats]),
                                               id="twice"))):
            with pytest.raises(voxeld.VoxeldError):
                call()
    absent, = wait_servers(served, served.collector, by_id("absent"))
    twice, = wait_servers(served, served.collector, by_id("twice"))
    said = values(absent.attributes)
    assert said["rpc.grpc.status_code"] == 5 and said["error.type"] == "NOT_FOUND"
    assert "absent" in said["voxeld.error"] and said["voxeld.model"] == "absent"
    assert "voxeld.version" not in said and "voxeld.device" not in said
    # The client is to blame, so it is not an error of the server.
    assert absent.status.code == absent.status.STATUS_CODE_UNSET
    children = [s.name for s in served.collector.spans() if s.parent_span_id == absent.span_id]
    assert children == ["receive"]
    said = values(twice.attributes)
    assert said["rpc.grpc.status_code"] == 3 and said["error.type"] == "INVALID_ARGUMENT"
    assert said["voxeld.version"] == 1


def test_each_request_of_a_stream_is_a_span(served):
    requests = []
    with Service(served.grpc) as service:
        for i in range(20):
            requests.append(service.request(*random_grid(i, 100 + i), id=f"stream-{i}"))
        requests.append(service.request(*random_grid(1, 10), model="absent", id="stream-bad"))
        answers = list(service.stream(iter(requests), metadata=parent()))
    assert len(answers) == 21
    spans = wait_servers(served, served.collector, lambda s: values(s.attributes).get(
        "voxeld.request.id", "").startswith("stream-"), 21)
    assert len(spans) == 21 and len({span.span_id for span in spans}) == 21
    for span in spans:
        said = values(span.attributes)
        assert span.name.endswith("/ModelStreamInfer") and said["rpc.method"] == "ModelStreamInfer"
        assert span.trace_id.hex() == TRACE_ID and span.parent_span_id.hex() == PARENT_ID
        bad_one = said["voxeld.request.id"] == "stream-bad"
        assert said["rpc.grpc.status_code"] == (5 if bad_one else 0)


def test_many_requests_of_one_batch(served):
    """Held until all wait, they run together, and each says so."""
    count, voxels = 6, 200
    with Service(served.grpc) as service:
        request = [service.request(*random_grid(i, voxels), id=f"batch-{i}")
                   for i in range(count)]
        with served.frozen(served.workers()[0]):
            call = service.stream(iter(request))
            served.wait_for("requests in the daemon", lambda: (
                served.metrics()["voxeld_queued_requests"]
                + served.metrics()["voxeld_running_requests"] == count))
        assert len(list(call)) == count
    spans = wait_servers(served, served.collector, lambda s: values(s.attributes).get(
        "voxeld.request.id", "").startswith("batch-"), count)
    said = [values(span.attributes) for span in spans]
    assert max(one["voxeld.batch.requests"] for one in said) > 1
    for one in said:
        assert one["voxeld.batch.voxels"] == voxels * one["voxeld.batch.requests"]


def test_the_access_log_has_the_trace(served):
    coords, feats = random_grid(3, 30)
    with Client(served.grpc) as client:
        client.infer("conv", coords, feats, id="logged")
    span, = wait_servers(served, served.collector, by_id("logged"))
    served.wait_said('"id":"logged"')
    line = next(x for x in served.log().splitlines() if '"id":"logged"' in x)
    assert f'"trace_id":"{span.trace_id.hex()}"' in line
    assert f'"span_id":"{span.span_id.hex()}"' in line
    # The ratio chose it.  TRACE lines are for those who ask for them.
    assert not [x for x in served.log().splitlines()
                if '"event":"TRACE"' in x and '"id":"logged"' in x]


def test_texts_of_clients_cannot_spoil_a_batch(served):
    """One string that is not UTF-8 would make a collector drop the whole batch."""
    coords, feats = random_grid(3, 30)
    names = ["\x7f\x01\t", "\U0001f600" * 63, "\u2028", "%s%n", "a" * 255]
    with Client(served.grpc) as client:
        for name in names:
            client.infer("conv", coords, feats, id=name,
                         metadata=parent(tracestate="x=" + "y" * 600))
    for name in names:
        span, = wait_servers(served, served.collector, by_id(name))
        assert span.trace_state == ""  # too long to be passed on


def test_our_own_clients_send_the_header(served, tmp_path):
    """The command line, and with it the C library; a header that is none is refused there."""
    points = tmp_path / "points.npz"
    coords, feats = random_grid(4, 40)
    np.savez(points, coords=coords, feats=feats)
    call = [os.environ["VOXEL"], "infer", "--server", served.grpc, "--model", "conv", str(points),
            "-o", str(tmp_path / "out.npz"), "--traceparent"]
    text = parent()[0][1]
    subprocess.run([*call, text, "--id", "by hand"], check=True, timeout=PATIENCE)
    span, = wait_servers(served, served.collector, by_id("by hand"))
    assert span.trace_id.hex() == TRACE_ID and span.parent_span_id.hex() == PARENT_ID
    for wrong in ("junk", "a b", "\u00e4", "x" * 64, text.upper(), text + "0", ""):
        done = subprocess.run([*call, wrong], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 2 and "traceparent: expected 00-TRACE-SPAN-FLAGS" in done.stderr


# ------- which requests -------


@pytest.mark.parametrize("ratio", ["0", "1", "0.5"])
def test_ratio_and_parent(repository, tmp_path, ratio):
    coords, feats = random_grid(1, 20)
    count = 200
    with Collector() as collector, exporting(
            repository, tmp_path, collector, *NOW, "--otlp-ratio", ratio) as daemon:
        with Client(daemon.grpc) as client:
            for i in range(count):
                client.infer("conv", coords, feats, id=f"own-{i}")
            client.infer("conv", coords, feats, id="off", metadata=parent("00"))
            client.infer("conv", coords, feats, id="on", metadata=parent("01"))
            client.infer("conv", coords, feats, id="bad",
                         metadata=(("traceparent", f"00-{TRACE_ID}-{'0' * 16}-01"),))
    # It has ended, so everything was sent.
    names = {values(span.attributes)["voxeld.request.id"] for span in collector.servers()}
    own = [name for name in names if name.startswith("own-")]
    assert "on" in names and "off" not in names
    if ratio == "0.5":
        # Of 200 coins fewer than 40 or more than 160 are heads once in 10^17.
        assert 40 < len(own) < 160
        ids = [span.trace_id for span in collector.servers()]
        assert all(int.from_bytes(i[9:], "big") >= 2**55 for i in ids if i.hex() != TRACE_ID)
    else:
        assert len(own) == (count if ratio == "1" else 0)
        assert ("bad" in names) == (ratio == "1")


def test_nothing_without_a_collector(daemon):
    assert spans_total(daemon) == {}
    tasks = pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir()
    threads = [(task / "comm").read_text().strip() for task in tasks]
    assert "accept" in threads and "trace" not in threads


@pytest.mark.parametrize("flags,expected", [
    (("--otlp-endpoint", "https://127.0.0.1:4318"), "for https let a collector on this host"),
    (("--otlp-endpoint", "127.0.0.1:4318"), "expected http://HOST:PORT"),
    (("--otlp-endpoint", "http://user:secret@host"), "without a user"),
    (("--otlp-endpoint", "http://127.0.0.1:4318", "--otlp-ratio", "1.5"), "from 0 to 1"),
    (("--otlp-endpoint", "http://127.0.0.1:4318", "--otlp-resource", "a"), "key=value"),
    (("--otlp-ratio", "0.1"), "has no effect without --otlp-endpoint"),
])
def test_settings_that_are_wrong(repository, tmp_path, flags, expected):
    done = subprocess.run(
        [os.environ["VOXELD"], "serve", "--repository", str(repository), "--grpc", "127.0.0.1:0",
         "--http", "127.0.0.1:0", *flags], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0 and expected in done.stderr, done.stderr


# ------- an independent writer -------


def test_the_golden_message_is_opentelemetrys(tmp_path):
    """tests/golden/spans.bin, which the unit test of the encoder expects, is what Python's
    OpenTelemetry writes."""
    made = tmp_path / "spans.bin"
    subprocess.run([sys.executable, ROOT / "tests/golden/spans.py", made], check=True)
    assert made.read_bytes() == (ROOT / "tests/golden/spans.bin").read_bytes()
