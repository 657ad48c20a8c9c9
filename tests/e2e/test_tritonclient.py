# SPDX-License-Identifier: Apache-2.0
"""The stock Python client, tritonclient.grpc: every method, and answers that are bit for bit those
of our own client."""
import sys
import threading

import numpy as np
import pytest
import tritonclient.grpc as triton
import voxeld
from google.protobuf import json_format
from model_files import ConvModel, random_grid
from tritonclient.grpc.auth import BasicAuth
from tritonclient.utils import InferenceServerException
from triton_rig import SECONDS, check_coverage, feats_in, inputs_of, refused, same
from voxeld_process import Daemon

# The test of each method; the last ones are in the other test_tritonclient files.
COVERED = {
    "is_server_live": "test_server_questions",
    "is_server_ready": "test_server_questions",
    "get_server_metadata": "test_server_questions",
    "is_model_ready": "test_model_questions",
    "get_model_metadata": "test_model_questions",
    "get_model_config": "test_model_config",
    "get_inference_statistics": "test_statistics",
    "get_model_repository_index": "test_repository",
    "load_model": "test_repository",
    "unload_model": "test_repository",
    "update_trace_settings": "test_trace_settings",
    "get_trace_settings": "test_trace_settings",
    "update_log_settings": "test_log_settings",
    "get_log_settings": "test_log_settings",
    "infer": "test_infer_types",
    "register_plugin": "test_plugin_and_close",
    "plugin": "test_plugin_and_close",
    "unregister_plugin": "test_plugin_and_close",
    "close": "test_plugin_and_close",
    "async_infer": "test_async_infer",
    "start_stream": "test_stream",
    "async_stream_infer": "test_stream",
    "stop_stream": "test_stream",
    "get_system_shared_memory_status": "test_system_memory",
    "register_system_shared_memory": "Grid",
    "unregister_system_shared_memory": "test_system_memory",
    "get_cuda_shared_memory_status": "test_cuda_memory",
    "register_cuda_shared_memory": "test_cuda_memory",
    "unregister_cuda_shared_memory": "test_cuda_memory",
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    ConvModel().write(repository)
    ConvModel(seed=2).write(repository, "other")
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--model-control", "explicit",
                "--load-model", "conv", "--access-log") as one:
        yield one


@pytest.fixture(scope="module")
def stock(daemon):
    with triton.InferenceServerClient(daemon.grpc) as one:
        yield one


def test_every_method_has_a_test():
    import test_tritonclient_async
    import test_tritonclient_memory
    here = sys.modules[__name__]

    class AllFiles:
        def __getattr__(self, name):
            found = [getattr(m, name) for m in
                     (here, test_tritonclient_async, test_tritonclient_memory) if hasattr(m, name)]
            assert len(found) == 1, name
            return found[0]
    check_coverage(triton.InferenceServerClient, COVERED, AllFiles())


def test_server_questions(stock):
    assert stock.is_server_live(client_timeout=SECONDS) is True
    assert stock.is_server_ready() is True
    metadata = stock.get_server_metadata()
    assert metadata.name == "voxeld" and metadata.version
    assert {"statistics", "model_repository", "model_configuration"} <= set(metadata.extensions)
    assert stock.get_server_metadata(as_json=True) == json_format.MessageToDict(
        metadata, preserving_proto_field_name=True)


def test_model_questions(stock):
    assert stock.is_model_ready("conv") is True
    assert stock.is_model_ready("conv", "1") is True
    metadata = stock.get_model_metadata("conv", as_json=True)
    assert metadata == {
        "name": "conv", "versions": ["1"], "platform": "voxeld",
        "inputs": [{"name": "coords", "datatype": "INT32", "shape": ["-1", "4"]},
                   {"name": "feats", "datatype": "FP32", "shape": ["-1", "4"]}],
        "outputs": [{"name": "out", "datatype": "FP32", "shape": ["-1", "3"]}]}
    assert stock.get_model_metadata("conv", "1").inputs[1].shape == [-1, 4]
    assert stock.is_model_ready("nope") is False and stock.is_model_ready("conv", "9") is False
    with refused("INVALID_ARGUMENT", "failed to get model version from"):
        stock.is_model_ready("conv", "x")
    for question in (stock.get_model_metadata, stock.get_model_config,
                     stock.get_inference_statistics):
        with refused("NOT_FOUND", "Request for unknown model: 'nope' is not found"):
            question("nope")
        with refused("NOT_FOUND"):
            question("conv", "9")
        with refused("INVALID_ARGUMENT", "failed to get model version from specified version "
                     "string 'x'"):
            question("conv", "x")


def test_model_config(stock):
    config = stock.get_model_config("conv").config
    assert config.name == "conv" and config.max_batch_size == 0
    assert [(i.name, list(i.dims)) for i in config.input] == [("coords", [-1, 4]),
                                                              ("feats", [-1, 4])]
    assert [(o.name, list(o.dims)) for o in config.output] == [("out", [-1, 3])]
    as_json = stock.get_model_config("conv", "1", as_json=True)
    assert as_json["config"]["output"][0]["data_type"] == "TYPE_FP32"


def test_statistics(stock):
    def row():
        stats = {s.name: s for s in stock.get_inference_statistics().model_stats}
        return stats["conv"]
    inputs = inputs_of(*random_grid(2, 300))
    before = row()
    for _ in range(4):
        stock.infer("conv", inputs)
    with refused("INVALID_ARGUMENT"):
        stock.infer("conv", inputs, outputs=[triton.InferRequestedOutput("nope")])
    after = row()
    grew = {name: getattr(after.inference_stats, name).count
            - getattr(before.inference_stats, name).count
            for name in ("success", "fail", "queue", "compute_input", "compute_infer",
                         "compute_output")}
    assert grew == {"success": 4, "fail": 1, "queue": 4, "compute_input": 4, "compute_infer": 4,
                    "compute_output": 4}
    assert after.inference_count - before.inference_count == 4
    alone = stock.get_inference_statistics("conv", "1", as_json=True)["model_stats"]
    assert [s["name"] for s in alone] == ["conv"]
    assert int(alone[0]["inference_count"]) == after.inference_count


def test_repository(stock):
    def index():
        return {m.name: m.state for m in stock.get_model_repository_index().models}
    assert index() == {"conv": "READY", "other": "UNAVAILABLE"}
    stock.load_model("other")
    assert stock.is_model_ready("other") and index()["other"] == "READY"
    inputs = inputs_of(*random_grid(3, 50))
    assert stock.infer("other", inputs).as_numpy("out").shape == (50, 3)
    stock.unload_model("other", unload_dependents=True)
    with refused("NOT_FOUND"):
        stock.infer("other", inputs)
    with refused("NOT_FOUND", "failed to load 'nowhere'"):
        stock.load_model("nowhere")
    with refused("UNIMPLEMENTED", "'config'"):
        stock.load_model("other", config="{}")
    with refused("UNIMPLEMENTED"):
        stock.load_model("other", config="{}", files={"file:1/weights.safetensors": b"x"})
    listed = stock.get_model_repository_index(as_json=True)["models"]
    assert {m["name"] for m in listed} == {"conv", "other"}


def test_trace_settings(stock):
    def rate(model=None):
        return list(stock.get_trace_settings(model).settings["trace_rate"].value)
    default = rate()
    told = stock.update_trace_settings(settings={"trace_rate": "7", "trace_level": ["TIMESTAMPS"]})
    assert list(told.settings["trace_rate"].value) == ["7"]
    assert stock.get_trace_settings(as_json=True)["settings"]["trace_level"]["value"] == [
        "TIMESTAMPS"]
    stock.update_trace_settings("conv", {"trace_rate": "9"})
    assert (rate("conv"), rate()) == (["9"], ["7"])
    stock.update_trace_settings("conv", {"trace_rate": None})
    assert rate("conv") == ["7"]
    stock.update_trace_settings(settings={"trace_rate": None, "trace_level": None})
    assert rate() == default
    for bad in ({"trace_rate": "x"}, {"trace_rate": "0"}, {"trace_level": ["LOUD"]}, {"no": "1"},
                {"trace_file": "/tmp/x"}):
        with refused("INVALID_ARGUMENT"):
            stock.update_trace_settings(settings=bad)
    with refused("NOT_FOUND"):
        stock.get_trace_settings("nope")


def test_log_settings(stock):
    before = stock.get_log_settings(as_json=True)["settings"]
    told = stock.update_log_settings({"log_info": True, "log_warning": True, "log_error": True,
                                      "log_verbose_level": 1, "log_format": "ISO8601"})
    assert told.settings["log_verbose_level"].uint32_param == 1
    assert stock.get_log_settings().settings["log_format"].string_param == "ISO8601"
    for bad in ({"log_format": "xml"}, {"log_file": "/tmp/x"}, {"no": True}):
        with refused("INVALID_ARGUMENT"):
            stock.update_log_settings(bad)
    stock.update_log_settings({"log_verbose_level":
                               before["log_verbose_level"].get("uint32_param", 0),
                               "log_format": before["log_format"]["string_param"]})
    assert stock.get_log_settings(as_json=True)["settings"] == before


@pytest.mark.parametrize("datatype", ["FP32", "FP16", "BF16"])
@pytest.mark.parametrize("voxels", [0, 1, 700, 20000])
def test_infer_types(stock, client, datatype, voxels):
    coords, feats = random_grid(4 + voxels, voxels) if voxels else (
        np.zeros((0, 4), np.int32), np.zeros((0, 4), np.float32))
    sent, options, ours = feats_in(datatype, feats)
    expected = client.infer("conv", coords, ours, **options)
    for outputs in (None, [], [triton.InferRequestedOutput("out")]):
        result = stock.infer("conv", inputs_of(coords, sent), outputs=outputs)
        same(result, expected)
    reply = result.get_response()
    assert (reply.model_name, reply.model_version, reply.id) == ("conv", "1", "")
    assert len(reply.raw_output_contents) == len(reply.outputs) == 1
    assert result.get_output("out").datatype == "FP32"
    assert result.get_response(as_json=True)["outputs"][0]["name"] == "out"


def test_infer_options(stock, client, daemon):
    coords, feats = random_grid(5, 900)
    expected = client.infer("conv", coords, feats)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    result = stock.infer(
        "conv", inputs_of(coords, feats), model_version="1", request_id="grid 5/é",
        priority=1, timeout=30_000_000, client_timeout=SECONDS, sequence_id=5,
        sequence_start=True, sequence_end=True,  # a stateless model ignores these
        headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "x-other": "1"},
        parameters={"text": "a", "whole": 3, "real": 0.5, "flag": True, "timing": True})
    same(result, expected)
    reply = result.get_response()
    assert reply.id == "grid 5/é" and reply.parameters["compute_ns"].int64_param > 0
    daemon.wait_for("the trace in the log", lambda: trace in daemon.log())
    with refused("INVALID_ARGUMENT"):
        stock.infer("conv", inputs_of(coords, feats), outputs=[triton.InferRequestedOutput(
            "out", class_count=2)])


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_are_refused(stock, algorithm):
    """Feats hardly shrink, and a small message could unpack to any size: not served, and said."""
    with refused("UNIMPLEMENTED", f"Compression algorithm '{algorithm}' is disabled"):
        stock.infer("conv", inputs_of(*random_grid(6, 3000)), compression_algorithm=algorithm)


def test_priorities(stock, client):
    coords, feats = random_grid(7, 100)
    expected = client.infer("conv", coords, feats)
    for priority in (0, 1, 2):
        same(stock.infer("conv", inputs_of(coords, feats), priority=priority), expected)


def test_wrong_requests(stock):
    coords, feats = random_grid(8, 100)
    good = inputs_of(coords, feats)
    with refused("NOT_FOUND"):
        stock.infer("nope", good)
    with refused("INVALID_ARGUMENT", "version"):
        stock.infer("conv", good, model_version="x")
    with refused("INVALID_ARGUMENT"):
        stock.infer("conv", good[:1])
    with refused("INVALID_ARGUMENT"):
        stock.infer("conv", good + good[:1])
    short = inputs_of(coords, feats)
    short[0].set_shape([99, 4])
    with refused("INVALID_ARGUMENT"):
        stock.infer("conv", short)
    twice = inputs_of(np.repeat(coords[:50], 2, axis=0), feats)
    with refused("INVALID_ARGUMENT"):
        stock.infer("conv", twice)
    same_again = stock.infer("conv", good)
    assert same_again.as_numpy("out").shape == (100, 3) and same_again.as_numpy("nope") is None


def test_timeouts_while_no_worker_runs(daemon, stock):
    inputs = inputs_of(*random_grid(9, 100))
    ends = []

    def ask():
        ends.append(stock.infer("conv", inputs).as_numpy("out").shape)
    with daemon.frozen(daemon.workers()[0]):
        seconds = 0.2  # grows until one reaches the server in time
        while not daemon.metrics()["voxeld_running_requests"]:
            with refused("DEADLINE_EXCEEDED"):
                stock.infer("conv", inputs, client_timeout=seconds)
            seconds *= 2
        call = threading.Thread(target=ask)
        call.start()
        daemon.wait_for("a full desk", lambda: daemon.metrics()["voxeld_running_requests"] == 2)
        with refused("UNAVAILABLE", "Request timeout expired"):
            stock.infer("conv", inputs, timeout=100_000)
    call.join()
    assert ends == [(100, 3)]


def test_threads_share_a_client(stock, client):
    cases = []
    for seed in range(8):
        coords, feats = random_grid(100 + seed, 200 + 300 * seed)
        cases.append((inputs_of(coords, feats), client.infer("conv", coords, feats)))
    errors, done = [], []

    def run(first):
        try:
            for i in range(12):
                inputs, expected = cases[(first + i) % len(cases)]
                same(stock.infer("conv", inputs, client_timeout=SECONDS), expected)
                done.append(1)
        except Exception as error:  # noqa: BLE001 - reported below, from the test's own thread
            errors.append(error)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(done) == 6 * 12, errors[:1]


def test_plugin_and_close(daemon):
    one = triton.InferenceServerClient(daemon.grpc, keepalive_options=triton.KeepAliveOptions(
        keepalive_time_ms=10_000))
    plugin = BasicAuth("a", "b")  # one more header, which this server does not ask for
    one.register_plugin(plugin)
    assert one.plugin() is plugin and one.is_server_live()
    one.unregister_plugin()
    assert one.plugin() is None and one.is_server_live()
    one.close()
    with pytest.raises((ValueError, InferenceServerException)):
        one.is_server_live()


def test_nothing_is_left(daemon, client):
    with pytest.raises(voxeld.NotFound):
        client.infer("nope", *random_grid(1, 10))
    daemon.wait_for("nothing in flight", lambda: daemon.metrics()["voxeld_calls_in_flight"] == 0
                    and daemon.metrics()["voxeld_arena_used_bytes"] == 0)
