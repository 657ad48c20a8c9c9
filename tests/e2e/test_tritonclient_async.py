# SPDX-License-Identifier: Apache-2.0
"""The stock Python client without waiting: callbacks, streams, every method of its asyncio half."""
import asyncio
import contextlib
import queue
import sys

import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from model_files import ConvModel, random_grid
from tritonclient.grpc.auth import BasicAuth
from tritonclient.utils import InferenceServerException
from triton_rig import SECONDS, check_coverage, inputs_of, refused, same
from voxeld_process import Daemon

AIO_COVERED = {
    "is_server_live": "test_aio_questions",
    "is_server_ready": "test_aio_questions",
    "get_server_metadata": "test_aio_questions",
    "is_model_ready": "test_aio_questions",
    "get_model_metadata": "test_aio_questions",
    "get_model_config": "test_aio_questions",
    "get_inference_statistics": "test_aio_questions",
    "get_model_repository_index": "test_aio_control",
    "load_model": "test_aio_control",
    "unload_model": "test_aio_control",
    "update_trace_settings": "test_aio_settings",
    "get_trace_settings": "test_aio_settings",
    "update_log_settings": "test_aio_settings",
    "get_log_settings": "test_aio_settings",
    "get_system_shared_memory_status": "test_aio_memory_is_off",
    "register_system_shared_memory": "test_aio_memory_is_off",
    "unregister_system_shared_memory": "test_aio_memory_is_off",
    "get_cuda_shared_memory_status": "test_aio_memory_is_off",
    "register_cuda_shared_memory": "test_aio_memory_is_off",
    "unregister_cuda_shared_memory": "test_aio_memory_is_off",
    "infer": "test_aio_infer",
    "stream_infer": "test_aio_stream",
    "register_plugin": "test_aio_questions",
    "plugin": "test_aio_questions",
    "unregister_plugin": "test_aio_questions",
    "close": "test_aio_infer",
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    ConvModel().write(repository)
    ConvModel(seed=2).write(repository, "other")
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--model-control", "explicit",
                "--load-model", "conv") as one:
        yield one


@pytest.fixture(scope="module")
def stock(daemon):
    with triton.InferenceServerClient(daemon.grpc) as one:
        yield one


@pytest.fixture(scope="module")
def cases(client):
    """(inputs, the answer that our own client got) of a few sizes, an empty one too."""
    out = []
    for seed, voxels in enumerate((1, 40, 700, 6000)):
        coords, feats = random_grid(30 + seed, voxels)
        out.append((inputs_of(coords, feats), client.infer("conv", coords, feats)))
    return [(inputs_of(coords[:0], feats[:0]), client.infer("conv", coords[:0], feats[:0])), *out]


class Answers:
    """A client's callback; it keeps the arguments of its calls in order."""

    def __init__(self):
        self.queue = queue.Queue()

    def __call__(self, result, error):
        self.queue.put((result, error))

    def next(self):
        return self.queue.get(timeout=SECONDS)

    def result(self):
        result, error = self.next()
        assert error is None, error
        return result

    def error(self):
        result, error = self.next()
        assert result is None and isinstance(error, InferenceServerException), result
        return error


def test_every_aio_method_has_a_test():
    check_coverage(triton_aio.InferenceServerClient, AIO_COVERED, sys.modules[__name__])


def test_async_infer(stock, cases):
    answers = [Answers() for _ in range(20)]
    calls = [stock.async_infer("conv", cases[i % len(cases)][0], one, request_id=str(i),
                               client_timeout=SECONDS) for i, one in enumerate(answers)]
    for i, one in enumerate(answers):
        result = one.result()
        same(result, cases[i % len(cases)][1])
        assert result.get_response().id == str(i)
    assert len(calls) == 20 and all(one.queue.empty() for one in answers)  # each callback ran once
    bad = Answers()
    stock.async_infer("nope", cases[1][0], bad)
    assert bad.error().status() == "StatusCode.NOT_FOUND"


def test_async_infer_is_cancelled(daemon, stock, cases):
    inputs, expected = cases[2]
    with daemon.frozen(daemon.workers()[0]):
        answer, late = Answers(), Answers()
        call = stock.async_infer("conv", inputs, answer)
        daemon.wait_for("the request", lambda: daemon.metrics()["voxeld_running_requests"] == 1)
        call.cancel()
        assert answer.error().status() == "StatusCode.CANCELLED"
        stock.async_infer("conv", inputs, late, client_timeout=0.2)
        assert late.error().status() == "StatusCode.DEADLINE_EXCEEDED"
    same(stock.infer("conv", inputs), expected)
    daemon.wait_for("nothing in flight",
                    lambda: daemon.metrics()["voxeld_arena_used_bytes"] == 0)
    assert answer.queue.empty() and late.queue.empty()


@pytest.mark.parametrize("final", [False, True])
def test_stream(stock, cases, final):
    answers = Answers()
    stock.start_stream(answers, stream_timeout=2 * SECONDS, headers={"x-other": "1"})
    with pytest.raises(InferenceServerException, match="another stream"):
        stock.start_stream(answers)
    for i in range(25):
        stock.async_stream_infer("conv", cases[i % len(cases)][0], request_id=f"r{i}",
                                 enable_empty_final_response=final, priority=i % 3)
    seen = {}
    for _ in range(25):
        result = answers.result()
        seen[result.get_response().id] = result
        assert result.get_response().parameters["triton_final_response"].bool_param is True
    for i in range(25):
        same(seen.pop(f"r{i}"), cases[i % len(cases)][1])
    stock.stop_stream()
    assert not seen and answers.queue.empty()


def test_errors_stay_inside_a_stream(stock, cases):
    inputs, expected = cases[2]
    answers = Answers()
    stock.start_stream(answers)
    stock.async_stream_infer("nope", inputs, request_id="a")
    assert "Request for unknown model: 'nope' is not found" in answers.error().message()
    stock.async_stream_infer("conv", inputs[:1], request_id="b")
    assert len(answers.error().message()) > 10
    stock.async_stream_infer("conv", inputs, model_version="x", request_id="c")
    assert "version" in answers.error().message()
    stock.async_stream_infer("conv", inputs, request_id="d")
    same(answers.result(), expected)
    stock.stop_stream()
    assert answers.queue.empty()


def test_a_stream_that_asked_for_statuses_ends_with_one(stock, cases):
    answers = Answers()
    stock.start_stream(answers, headers={"triton_grpc_error": "true"})
    stock.async_stream_infer("conv", cases[1][0])
    same(answers.result(), cases[1][1])
    stock.async_stream_infer("nope", cases[1][0])
    error = answers.error()
    assert error.status() == "StatusCode.NOT_FOUND" and "'nope'" in error.message()
    stock.stop_stream(cancel_requests=True)


def test_a_stream_is_cancelled_with_what_it_has(daemon, stock, cases):
    answers = Answers()
    with daemon.frozen(daemon.workers()[0]):
        stock.start_stream(answers)
        stock.async_stream_infer("conv", cases[2][0])
        daemon.wait_for("the request", lambda: daemon.metrics()["voxeld_running_requests"] == 1)
        stock.stop_stream(cancel_requests=True)
        assert answers.error().status() == "StatusCode.CANCELLED"
        stock.start_stream(answers, stream_timeout=0.3)
        with contextlib.suppress(InferenceServerException):  # the stream may be over already
            stock.async_stream_infer("conv", cases[2][0])
        assert answers.error().status() == "StatusCode.DEADLINE_EXCEEDED"
        stock.stop_stream()
    same(stock.infer("conv", cases[2][0]), cases[2][1])
    daemon.wait_for("nothing in flight", lambda: daemon.metrics()["voxeld_calls_in_flight"] == 0
                    and daemon.metrics()["voxeld_arena_used_bytes"] == 0)


def test_a_compressed_stream_is_refused(stock):
    answers = Answers()
    stock.start_stream(answers, compression_algorithm="gzip")
    error = answers.error()
    assert error.status() == "StatusCode.UNIMPLEMENTED" and "gzip" in error.message()
    stock.stop_stream(cancel_requests=True)


def aio(daemon, run):
    """Runs run(client) in an event loop of its own."""
    async def whole():
        async with triton_aio.InferenceServerClient(daemon.grpc) as one:
            return await asyncio.wait_for(run(one), 2 * SECONDS)
    return asyncio.run(whole())


def test_aio_questions(daemon):
    async def run(one):
        plugin = BasicAuth("a", "b")
        one.register_plugin(plugin)
        assert one.plugin() is plugin
        assert await one.is_server_live() and await one.is_server_ready()
        one.unregister_plugin()
        assert (await one.get_server_metadata()).name == "voxeld"
        assert await one.is_model_ready("conv")
        assert not await one.is_model_ready("nope")
        metadata = await one.get_model_metadata("conv", as_json=True)
        assert [t["name"] for t in metadata["inputs"]] == ["coords", "feats"]
        assert (await one.get_model_config("conv")).config.name == "conv"
        assert (await one.get_model_config("conv", as_json=True))["config"]["name"] == "conv"
        stats = await one.get_inference_statistics("conv", as_json=True)
        assert [s["name"] for s in stats["model_stats"]] == ["conv"]
        with refused("NOT_FOUND"):
            await one.get_inference_statistics("nope")
    aio(daemon, run)


def test_aio_control(daemon):
    async def run(one):
        await one.load_model("other")
        index = await one.get_model_repository_index()
        assert {m.name: m.state for m in index.models} == {"conv": "READY", "other": "READY"}
        await one.unload_model("other")
        with refused("NOT_FOUND"):
            await one.get_model_config("other")
    aio(daemon, run)


def test_aio_settings(daemon):
    async def run(one):
        before = await one.get_trace_settings(as_json=True)
        told = await one.update_trace_settings("conv", {"trace_rate": "5"})
        assert list(told.settings["trace_rate"].value) == ["5"]
        await one.update_trace_settings("conv", {"trace_rate": None})
        assert await one.get_trace_settings("conv", as_json=True) == before
        logs = await one.get_log_settings(as_json=True)
        assert (await one.update_log_settings({"log_error": True}, as_json=True)) == logs
        with refused("INVALID_ARGUMENT"):
            await one.update_log_settings({"no": True})
    aio(daemon, run)


def test_aio_memory_is_off(daemon):
    """Without --client-shm every method of shared memory says so."""
    async def run(one):
        extensions = (await one.get_server_metadata()).extensions
        assert not [e for e in extensions if "shared_memory" in e]
        for call in (one.get_system_shared_memory_status(),
                     one.register_system_shared_memory("r", "/no_such_key", 64),
                     one.unregister_system_shared_memory(),
                     one.get_cuda_shared_memory_status(),
                     one.register_cuda_shared_memory("r", b"AAAA", 0, 64),
                     one.unregister_cuda_shared_memory()):
            with refused("UNIMPLEMENTED") as caught:
                await call
            assert "no_such_key" not in caught.value.message()
    aio(daemon, run)


def test_aio_infer(daemon, cases):
    async def run(one):
        results = await asyncio.gather(*(
            one.infer("conv", cases[i % len(cases)][0], request_id=str(i), priority=i % 3,
                      timeout=30_000_000, client_timeout=SECONDS) for i in range(40)))
        for i, result in enumerate(results):
            same(result, cases[i % len(cases)][1])
            assert result.get_response().id == str(i)
        with refused("UNIMPLEMENTED", "gzip"):
            await one.infer("conv", cases[2][0], compression_algorithm="gzip")
        call = asyncio.ensure_future(one.infer("conv", cases[3][0]))
        await asyncio.sleep(0)  # sleep: let it begin
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        same(await one.infer("conv", cases[3][0]), cases[3][1])
        await one.close()
    aio(daemon, run)
    daemon.wait_for("nothing in flight", lambda: daemon.metrics()["voxeld_calls_in_flight"] == 0)


def test_aio_stream(daemon, cases):
    async def run(one):
        async def requests():
            for i in range(12):
                yield {"model_name": "nope" if i == 5 else "conv",
                       "inputs": cases[i % len(cases)][0], "request_id": str(i)}
        seen, errors = {}, []
        async for result, error in one.stream_infer(requests(), stream_timeout=SECONDS):
            if error is None:
                seen[result.get_response().id] = result
            else:
                errors.append(error.message())
        assert len(errors) == 1 and "'nope'" in errors[0]
        assert set(seen) == {str(i) for i in range(12) if i != 5}
        for i, result in seen.items():
            same(result, cases[int(i) % len(cases)][1])

        held = asyncio.Event()

        async def endless():
            yield {"model_name": "conv", "inputs": cases[2][0]}
            await held.wait()
        stream = one.stream_infer(endless())
        result, error = await stream.__anext__()
        assert error is None
        same(result, cases[2][1])
        assert stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream.__anext__()
    aio(daemon, run)
    daemon.wait_for("nothing in flight", lambda: daemon.metrics()["voxeld_calls_in_flight"] == 0)
