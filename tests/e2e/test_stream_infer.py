# SPDX-License-Identifier: Apache-2.0
"""ModelStreamInfer as stock clients use it: many requests on one stream, answers in order."""
import queue
import signal
import subprocess
import sys
import threading
import time

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

from conftest import SANITIZED
from model_files import ConvModel, random_grid
from voxeld_process import PATIENCE, Daemon

SERVICE = "inference.GRPCInferenceService"
FINAL = "triton_final_response"
SHUTTING_DOWN = "GRPC server is shutting down and has stopped accepting new requests"


class Service:
    """Messages as the server's reflection describes them, and calls with them."""

    def __init__(self, address):
        options = [("grpc.max_receive_message_length", -1)]
        self.channel = grpc.insecure_channel(address, options)
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        methods = pool.FindServiceByName(SERVICE).methods_by_name
        self.kinds = {name: [message_factory.GetMessageClass(d)
                             for d in (methods[name].input_type, methods[name].output_type)]
                      for name in ("ModelInfer", "ModelStreamInfer")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def request(self, coords, feats, model="conv", id=""):
        request = self.kinds["ModelInfer"][0](model_name=model, id=id)
        for name, kind, array in (("coords", "INT32", coords), ("feats", "FP32", feats)):
            request.inputs.add(name=name, datatype=kind, shape=array.shape)
            request.raw_input_contents.append(np.ascontiguousarray(array).tobytes())
        return request

    def unary(self, request):
        call = self.channel.unary_unary(
            f"/{SERVICE}/ModelInfer", request_serializer=type(request).SerializeToString,
            response_deserializer=self.kinds["ModelInfer"][1].FromString)
        return call(request, timeout=PATIENCE)

    def stream(self, requests, **options):
        """Requests may be messages or arbitrary bytes."""
        call = self.channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            request_serializer=lambda r: r if isinstance(r, bytes) else r.SerializeToString(),
            response_deserializer=self.kinds["ModelStreamInfer"][1].FromString)
        return call(iter(requests), timeout=PATIENCE, **options)


class Line:
    """An iterator of requests that a test adds one by one; end() half-closes the stream."""

    def __init__(self):
        self.queue = queue.Queue()

    def __iter__(self):
        return iter(self.queue.get, None)

    def put(self, request):
        self.queue.put(request)

    def end(self):
        self.queue.put(None)


@pytest.fixture(scope="module")
def service(daemon):
    with Service(daemon.grpc) as one:
        yield one


def output(response):
    return np.frombuffer(response.raw_output_contents[0], np.float32).reshape(
        tuple(response.outputs[0].shape))


def wait_quiet(daemon):
    def quiet():
        numbers = daemon.metrics()
        return not numbers["voxeld_calls_in_flight"] and not numbers["voxeld_arena_used_bytes"]
    daemon.wait_for("calls and the arena to be empty", quiet)


def test_answers_are_in_order_and_those_of_unary_calls(service, model):
    grids = [random_grid(i, 3000 if i % 9 == 0 else 5 + i) for i in range(80)]
    requests = [service.request(*grid, id=f"grid-{i}") for i, grid in enumerate(grids)]
    answers = list(service.stream(requests))
    assert [a.infer_response.id for a in answers] == [r.id for r in requests]
    for i, answer in enumerate(answers):
        assert answer.error_message == ""
        parameters = answer.infer_response.parameters
        assert list(parameters) == [FINAL] and parameters[FINAL].bool_param
        if len(grids[i][0]) < 100:
            np.testing.assert_allclose(output(answer.infer_response), model.answer(*grids[i]),
                                       rtol=2e-4, atol=2e-4)
        del parameters[FINAL]
        assert answer.infer_response == service.unary(requests[i])


def test_a_conversation(service, model):
    """One request at a time, each sent after the previous answer."""
    line = Line()
    stream = service.stream(line)
    for i in range(20):
        grid = random_grid(100 + i, 30)
        line.put(service.request(*grid, id=str(i)))
        answer = next(stream)
        assert answer.infer_response.id == str(i)
        np.testing.assert_allclose(output(answer.infer_response), model.answer(*grid),
                                   rtol=2e-4, atol=2e-4)
    line.end()
    assert list(stream) == [] and stream.code() is grpc.StatusCode.OK


def broken(service):
    """[(request, what its error says)]"""
    coords, feats = random_grid(1, 10)
    unknown = service.request(coords, feats, model="nope", id="unknown")
    short = service.request(coords, feats, id="short")
    short.raw_input_contents[1] = short.raw_input_contents[1][:-1]
    twice = service.request(np.zeros((2, 4), np.int32), feats[:2], id="twice")
    version = service.request(coords, feats, id="version")
    version.model_version = "x"
    return [(unknown, "Request for unknown model: 'nope' is not found"),
            (short, "input byte size mismatch for input 'feats'"),
            (twice, ""), (version, "failed to get model version"), (b"\xff\xff\xff", "protobuf")]


@pytest.mark.races
def test_errors_travel_inside_and_the_stream_goes_on(service):
    bad = broken(service)
    good = [service.request(*random_grid(i, 20), id=f"good-{i}") for i in range(len(bad))]
    sent = [one for pair in zip([b for b, _ in bad], good) for one in pair]
    stream = service.stream(sent)
    answers = list(stream)
    assert stream.code() is grpc.StatusCode.OK and len(answers) == len(sent)
    for (request, text), answer in zip(bad, answers[0::2]):
        assert text in answer.error_message and len(answer.error_message) > 10
        if not isinstance(request, bytes):
            assert answer.infer_response.id == request.id
            assert answer.infer_response.model_name in ("", request.model_name)
        assert answer.infer_response.parameters[FINAL].bool_param
        assert not answer.infer_response.outputs
    for request, answer in zip(good, answers[1::2]):
        assert not answer.error_message and answer.infer_response.id == request.id


def test_triton_grpc_error_ends_the_stream_with_a_status(service):
    good = service.request(*random_grid(1, 20), id="good")
    codes = ["NOT_FOUND", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT",
             "INVALID_ARGUMENT"]
    for (request, text), code in zip(broken(service), codes):
        stream = service.stream([good, good, request, good],
                                metadata=(("triton_grpc_error", "true"),))
        answers = []
        with pytest.raises(grpc.RpcError) as caught:
            for answer in stream:
                answers.append(answer)
        assert caught.value.code().name == code and text in caught.value.details()
        assert [a.infer_response.id for a in answers] == ["good", "good"]


@pytest.mark.release
def test_a_thousand_requests_with_bad_ones_among_them(daemon, service):
    bad = [request for request, _ in broken(service)]
    requests = []
    for i in range(1000):
        request = bad[i // 7 % len(bad)] if i % 7 == 3 else \
            service.request(*random_grid(i % 50, 10 + i % 50), id=f"n{i}")
        requests.append(request)
    answers = list(service.stream(requests))
    assert len(answers) == 1000
    for i, answer in enumerate(answers):
        assert bool(answer.error_message) == (i % 7 == 3), i
        if i % 7 != 3:
            assert answer.infer_response.id == f"n{i}"
    wait_quiet(daemon)


@pytest.mark.races
def test_many_streams_at_once(service):
    errors = []

    def run(seed):
        try:
            requests = [service.request(*random_grid(seed * 100 + i, 10 + i), id=f"{seed}-{i}")
                        for i in range(40)]
            ids = [a.infer_response.id for a in service.stream(requests)]
            assert ids == [r.id for r in requests]
        except Exception as error:  # noqa: BLE001 - reported below, from the test's own thread
            errors.append(error)
    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


@pytest.mark.races
def test_clients_that_leave_leave_nothing(daemon):
    """Cancelled at any moment, with requests under way or not; connections lost with streams."""
    rng = np.random.default_rng(3)
    wait_quiet(daemon)
    descriptors = daemon.descriptors()
    with Service(daemon.grpc) as service:
        requests = [service.request(*random_grid(i, 200)) for i in range(8)]
        for turn in range(60 if SANITIZED else 300):
            line = Line()
            stream = service.stream(line)
            for request in requests[:rng.integers(0, 8)]:
                line.put(request)
            if turn % 3 == 0:
                time.sleep(rng.random() * 0.01)  # sleep: at random
            stream.cancel()
            line.end()
    for _ in range(5):
        with Service(daemon.grpc) as service:
            line = Line()
            service.stream(line)
            for request in requests:
                line.put(request)
            time.sleep(rng.random() * 0.02)  # sleep: at random
        line.end()
    wait_quiet(daemon)
    daemon.wait_for("descriptors to be closed", lambda: daemon.descriptors() <= descriptors)
    with Service(daemon.grpc) as service:
        assert len(list(service.stream(requests))) == 8


KILLED = """
import sys, time, grpc
body = open(sys.argv[2], "rb").read()
def requests():
    for _ in range(40):
        yield body
    time.sleep(600)  # sleep: until it is killed
channel = grpc.insecure_channel(sys.argv[1])
for answer in channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(requests()):
    print("answer", flush=True)
"""


@pytest.mark.races
def test_clients_that_are_killed_leave_nothing(daemon, service, tmp_path):
    """The connection breaks with requests of a stream in flight, without an orderly close."""
    body = tmp_path / "body"
    body.write_bytes(service.request(*random_grid(1, 2000)).SerializeToString())
    wait_quiet(daemon)
    descriptors = daemon.descriptors()
    for _ in range(3):
        client = subprocess.Popen([sys.executable, "-c", KILLED, daemon.grpc, str(body)],
                                  stdout=subprocess.PIPE)
        try:
            assert client.stdout.readline() == b"answer\n"
        finally:
            client.kill()
            client.communicate()
    wait_quiet(daemon)
    daemon.wait_for("descriptors to be closed", lambda: daemon.descriptors() <= descriptors)


@pytest.mark.races
def test_one_stream_too_many(repository, tmp_path):
    with Daemon(repository, tmp_path, "--streams-max", "2") as daemon, \
            Service(daemon.grpc) as service:
        lines = [Line(), Line()]
        streams = [service.stream(line) for line in lines]
        request = service.request(*random_grid(1, 10))
        for line, stream in zip(lines, streams):
            line.put(request)
            assert not next(stream).error_message
        with pytest.raises(grpc.RpcError) as caught:
            list(service.stream([request]))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "2 streams open" in caught.value.details()
        lines[0].end()
        assert list(streams[0]) == []

        def served():
            """The ended one counts until the server has cleared its call away."""
            try:
                return len(list(service.stream([request]))) == 1
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                return False
        daemon.wait_for("room for a stream", served)
        lines[1].end()


@pytest.mark.races
def test_the_drain_answers_what_runs_and_does_not_wait_for_silence(tmp_path):
    repository = tmp_path / "repository"
    ConvModel(ci=64, hidden=256).write(repository, "slow")  # a second for 200,000 voxels
    daemon = Daemon(repository, tmp_path, "--threads", "1", "--drain-ms", "600000")
    try:
        with Service(daemon.grpc) as service:
            drain(daemon, service)
    finally:
        daemon.kill()


def drain(daemon, service):
    coords, _ = random_grid(1, 20000 if SANITIZED else 100000)
    feats = np.ones((len(coords), 64), np.float32)
    small = service.request(coords[:10], feats[:10], model="slow", id="late")
    idle, busy = Line(), Line()
    silent, stream = service.stream(idle), service.stream(busy)
    idle.put(small)
    assert not next(silent).error_message
    with daemon.frozen(daemon.workers()[0]):
        busy.put(service.request(coords, feats, model="slow", id="mine"))
        daemon.wait_for("the request to run",
                        lambda: daemon.metrics()["voxeld_running_requests"] == 1)
        daemon.signal(signal.SIGTERM)
        daemon.wait_for("the drain", lambda: "step=draining" in daemon.log())
        busy.put(small)
    first, second = next(stream), next(stream)
    assert not first.error_message and first.infer_response.id == "mine"
    assert second.error_message == SHUTTING_DOWN and second.infer_response.id == "late"
    assert daemon.process.wait(PATIENCE) == 0  # half of what the drain may take
    for one in (silent, stream):
        with pytest.raises(grpc.RpcError) as caught:
            next(one)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    idle.end()
    busy.end()
