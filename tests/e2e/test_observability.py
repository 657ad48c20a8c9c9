# SPDX-License-Identifier: Apache-2.0
"""What the server reports is exact: statistics, metrics, traces, the access log."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import grpc
import numpy as np
import pytest

import voxeld
from conftest import ROOT
from model_files import ConvModel, random_grid
from test_protocol import Reflected
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

STAGES = ("queue", "compute_input", "compute_infer", "compute_output")
# promtool's complaints about Triton's names, which dashboards and perf_analyzer need.
PROMTOOL_MAY_SAY = [
    'counter metrics should have "_total" suffix',
    'use base unit "seconds" instead of "microseconds"',
    "metric names should not contain abbreviated units",
    'non-histogram and non-summary metrics should not have "_count" suffix',
]


class Seen:
    """A daemon, and what it reports about its model."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.channel = grpc.insecure_channel(daemon.grpc)
        self.asked = Reflected(self.channel)

    def statistics(self):
        reply = self.asked.call("ModelStatistics", name="conv")
        row, = reply["model_stats"]
        stats = row.pop("inference_stats", {})
        out = {key: int(row.get(key, 0)) for key in ("inference_count", "execution_count")}
        for key in ("success", "fail", "cache_hit", "cache_miss", *STAGES):
            duration = stats.get(key, {})
            out[key] = int(duration.get("count", 0))
            out[key + "_ns"] = int(duration.get("ns", 0))
        out["batches"] = {int(b["batch_size"]): b for b in row.get("batch_stats", [])}
        out["row"] = row
        return out

    def reasons(self):
        found = {}
        for key, value in self.daemon.metrics().items():
            match = re.fullmatch(r'nv_inference_request_failure\{model="conv",version="1",'
                                 r'reason="([A-Z]+)"\}', key)
            if match:
                found[match[1]] = int(value)
        return found

    def close(self):
        self.channel.close()


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """One worker with one thread, and a model that takes some time."""
    repository = tmp_path_factory.mktemp("repository")
    model = ConvModel(hidden=64)
    model.network["limits"]["voxels_max"] = 20000
    model.write(repository, "conv")
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--threads", "1") as daemon:
        seen = Seen(daemon)
        with contextlib.closing(seen):
            yield seen


def grew(before, after, key):
    return after[key] - before[key]


def together(seen, requests):
    """Sends all at once; the answers."""
    answers = [None] * len(requests)

    def one(i):
        with Client(seen.daemon.grpc) as client:
            answers[i] = client.infer("conv", *requests[i], timing=True, timeout=PATIENCE)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert all(a is not None for a in answers)
    return answers


def test_good_requests_add_up(slow):
    before, began = slow.statistics(), time.time()
    answers = together(slow, [random_grid(1, 15000)])
    answers += together(slow, [random_grid(10 + i, 500 + 100 * i) for i in range(12)])
    after = slow.statistics()
    for key in ("success", "inference_count", *STAGES):
        assert grew(before, after, key) == 13, key
    assert grew(before, after, "fail") == 0
    # A batch of n answers n requests; each answer has batch_size n.
    batches = sum(1 / a.parameters["batch_size"] for a in answers)
    assert grew(before, after, "execution_count") == round(batches, 6)
    # Every request counts the whole time of its batch.
    for stage in STAGES[1:]:
        counts = sum(int(b[stage].get("count", 0)) for b in after["batches"].values())
        assert counts == after["execution_count"], stage
        ns = sum(size * int(b[stage].get("ns", 0)) for size, b in after["batches"].items())
        assert ns == after[stage + "_ns"], stage
    assert sum(size * int(b["compute_infer"]["count"])
               for size, b in after["batches"].items()) == after["inference_count"]
    # perf_analyzer subtracts these stages; the rest is the overhead of the server.
    spent = sum(grew(before, after, stage + "_ns") for stage in STAGES)
    success = grew(before, after, "success_ns")
    assert 0 <= success - spent, (success, spent)
    # The server has no response cache; the geometry cache is not counted here.
    assert after["cache_hit"] == after["cache_miss"] == 0
    assert after["row"]["memory_usage"][0]["type"] == "CPU"
    assert int(after["row"]["memory_usage"][0]["byte_size"]) > 64 * 27 * 4 * 4
    assert began - 1 < int(after["row"]["last_inference"]) / 1000 < time.time() + 1
    assert "response_stats" not in after["row"]


def send(seen, **options):
    """The status of one request that may fail."""
    coords, feats = random_grid(77, 300)
    coords, feats = options.pop("coords", coords), options.pop("feats", feats)
    try:
        with Client(seen.daemon.grpc) as client:
            client.infer(options.pop("model", "conv"), coords, feats, **options)
        return "OK"
    except voxeld.VoxeldError as error:
        return type(error).__name__


def under_way(seen, count):
    """Waits until so many requests wait or run.  How many of them run depends on predictions."""
    def there():
        numbers = seen.daemon.metrics()
        return numbers["voxeld_queued_requests"] + numbers["voxeld_running_requests"] == count
    seen.daemon.wait_for(f"{count} requests under way", there)


def cancelled(seen, beside):
    """A request that its client cancels while it waits in the queue, behind so many."""
    coords, feats = random_grid(78, 300)
    body = voxeld.messages.pack_infer("conv", coords, feats, {})
    call = seen.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    future = call.future(body)
    under_way(seen, beside + 1)
    future.cancel()
    assert future.cancelled()
    under_way(seen, beside)


def test_a_known_mix_is_counted_exactly(slow):
    """Good, bad, unknown, cancelled, late: each is counted under its reason."""
    before, reasons = slow.statistics(), slow.reasons()
    refused = slow.daemon.metrics()
    coords, feats = random_grid(5, 400)
    twice = np.concatenate([coords[:1], coords[:1]])
    for _ in range(4):
        assert send(slow) == "OK"
    for _ in range(3):
        assert send(slow, coords=twice, feats=feats[:2]) == "InvalidArgument"  # found on the device
    for _ in range(2):
        assert send(slow, feats=feats[:300, :3]) == "InvalidArgument"  # found on arrival
    assert send(slow, coords=None, coords_ref="ab" * 16) == "FailedPrecondition"
    assert send(slow, model="absent") == "NotFound"  # counted for no model
    worker, = slow.daemon.workers()
    with slow.daemon.frozen(worker):
        # The worker has two batches at most, so that one of these waits, and all behind it.
        stuck = [threading.Thread(target=send, args=(slow,)) for _ in range(3)]
        for sent, thread in enumerate(stuck, 1):
            thread.start()
            under_way(slow, sent)
        # deadline: it must arrive before it ends, since the server counts it
        assert send(slow, timeout=10) == "DeadlineExceeded"
        assert send(slow, queue_timeout_us=1000, timeout=PATIENCE) == "Unavailable"
        for _ in range(3):
            cancelled(slow, beside=len(stuck))
    for thread in stuck:
        thread.join(PATIENCE)
    slow.daemon.wait_for("every end", lambda: sum(slow.reasons().values())
                         == sum(reasons.values()) + 11)
    after, now = slow.statistics(), slow.reasons()
    # A batch without a success is no execution: 4, and the 3 that were stuck, of which two may have
    # run together.
    assert grew(before, after, "execution_count") in (6, 7)
    assert grew(before, after, "success") == 7
    assert grew(before, after, "inference_count") == 7
    assert grew(before, after, "fail") == 11
    for stage in STAGES:
        assert grew(before, after, stage) == 7, stage
    assert {k: now[k] - reasons[k] for k in now} == {
        "OTHER": 6, "REJECTED": 1, "CANCELED": 4, "BACKEND": 0}
    codes = {k: v - refused[k] for k, v in slow.daemon.metrics().items()
             if k.startswith("voxeld_requests_total") and v != refused[k]}
    assert codes['voxeld_requests_total{code="OK"}'] == 7
    assert codes['voxeld_requests_total{code="NOT_FOUND"}'] == 1
    assert sum(codes.values()) == 19


def test_metrics_say_what_statistics_say(slow):
    stats, metrics = slow.statistics(), slow.daemon.metrics()
    labels = '{model="conv",version="1"}'
    for name, key in (("nv_inference_count", "inference_count"),
                      ("nv_inference_exec_count", "execution_count"),
                      ("nv_inference_request_success", "success")):
        assert metrics[name + labels] == stats[key], name
    for name, key in (("request", "success"), ("queue", "queue"),
                      ("compute_input", "compute_input"), ("compute_infer", "compute_infer"),
                      ("compute_output", "compute_output")):
        assert metrics[f"nv_inference_{name}_duration_us{labels}"] == stats[key + "_ns"] // 1000
    assert sum(slow.reasons().values()) == stats["fail"]
    assert metrics["voxeld_request_pairs_count"] == stats["success"]
    assert metrics["voxeld_answer_bytes_count"] == stats["success"]
    assert metrics["voxeld_connections"] >= 1
    assert metrics["voxeld_connections_total"] >= metrics["voxeld_connections"]


def test_counters_survive_a_worker(slow):
    before, metrics = slow.statistics(), slow.daemon.metrics()
    worker, = slow.daemon.workers()
    os.kill(worker, signal.SIGKILL)
    slow.daemon.wait_for("another worker", lambda: slow.daemon.workers() not in ([], [worker])
                         and slow.asked.call("ServerReady").get("ready"))
    between = slow.statistics()
    for key in before:
        if key.endswith("_count") or key in ("success", "fail", *STAGES):
            assert between[key] == before[key], key
    assert send(slow) == "OK"
    after = slow.statistics()
    assert grew(before, after, "success") == grew(before, after, "execution_count") == 1
    now = slow.daemon.metrics()
    for key, value in metrics.items():
        counts = key.startswith(("nv_inference_", "voxeld_requests_total", "voxeld_rpc_",
                                 "voxeld_model_"))
        if counts and not re.search("pending|receiving|ready", key):
            assert now[key] >= value, key


def promtool():
    here = shutil.which("promtool") or str(ROOT / "build" / "tools" / "promtool")
    if not os.access(here, os.X_OK):
        pytest.skip("SKIPPED promtool_agrees: no promtool on this machine "
                    "(deploy/install-deps gets it)")
    return here


def test_promtool_finds_nothing_of_ours(slow):
    status, text = slow.daemon.get("/metrics")
    assert status == 200 and not text.startswith("nv_gpu")
    done = subprocess.run([promtool(), "check", "metrics"], input=text, capture_output=True,
                          text=True, timeout=PATIENCE)
    findings = (done.stdout + done.stderr).splitlines()
    bad = [line for line in findings
           if not (line.startswith("nv_") and any(p in line for p in PROMTOOL_MAY_SAY))]
    assert not bad
    assert findings  # promtool did check: it complains about Triton's names
    spoilt = subprocess.run([promtool(), "check", "metrics"], input=text + text,
                            capture_output=True, text=True, timeout=PATIENCE)
    assert spoilt.returncode  # it finds what is wrong


def test_configuration_says_the_devices(slow):
    config = slow.asked.call("ModelConfig", name="conv")["config"]
    group, = config["instance_group"]
    assert group["kind"] == "KIND_CPU" and group["count"] == 1 and "gpus" not in group
    assert "dynamic_batching" in config and not config.get("max_batch_size")
    assert not config["model_transaction_policy"].get("decoupled")
    assert config["default_model_filename"] == "weights.safetensors"


def test_gpus_are_said_once_and_by_their_kind(tmp_path):
    """Two workers of the fake GPU beside one of the CPU; there is no NVML for a fake."""
    model = ConvModel()
    model.network["warmup"] = [10]
    model.write(tmp_path / "repository")
    with Daemon(tmp_path / "repository", tmp_path, "--device", "cpu,fake:0,fake:0",
                "--device-bytes", "256M", "--kernel-cache", str(tmp_path / "kernels")) as daemon:
        with contextlib.closing(Seen(daemon)) as seen:
            def usage():
                return seen.statistics()["row"]["memory_usage"]
            daemon.wait_for("the model on every worker", lambda: len(usage()) == 3)
            devices = [(one["type"], int(one.get("id", 0))) for one in usage()]
            gpus, cpu = seen.asked.call("ModelConfig", name="conv")["config"]["instance_group"]
        assert (gpus["kind"], gpus["gpus"], gpus["count"]) == ("KIND_GPU", [1, 2], 1)
        assert (cpu["kind"], cpu["count"]) == ("KIND_CPU", 1)
        # Numbered as in CudaSharedMemoryRegister: each worker has its own fake GPU.
        assert devices == [("CPU", 0), ("GPU", 1), ("GPU", 2)]
        text = daemon.wait_for("the fake GPUs' memory", lambda: (
            lambda page: "nv_gpu_memory_total_bytes{" in page and page)(daemon.get("/metrics")[1]))
        for name in ("used", "total"):
            (uuid, value), = re.findall(
                rf'\nnv_gpu_memory_{name}_bytes\{{gpu_uuid\="([^"]+)"\}} (\d+\.?\d*)', text)
            assert uuid == "GPU-fafafafa-fafa-fafa-fafa-fafafafafafa" and float(value) > 1e6
        assert "nv_gpu_power" not in text and "nv_gpu_utilization" not in text


# ------- traces and the access log -------

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
STEPS = ("REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END",
         "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END")


def parent(flags="01", trace=TRACE_ID):
    return (("traceparent", f"00-{trace}-00f067aa0ba902b7-{flags}"),)


@pytest.fixture(scope="module")
def logged(tmp_path_factory, repository):
    """Everything is logged, as JSON, on TCP and on a Unix socket."""
    work = tmp_path_factory.mktemp("daemon")
    with Daemon(repository, work, "--access-log", "--log-format", "json", "--grpc",
                f"127.0.0.1:0,unix:{work}/v.sock") as daemon:
        seen = Seen(daemon)
        seen.socket = f"unix:{work}/v.sock"
        with contextlib.closing(seen):
            yield seen


def lines(daemon, event):
    """The lines of one event; every line is JSON."""
    out = []
    for line in daemon.log().splitlines():
        assert line.startswith("{") and line.endswith("}"), line
        row = json.loads(line)
        if row["event"] == event:
            out.append(row)
    return out


def wait_lines(daemon, event, count):
    return daemon.wait_for(f"{count} lines of {event}",
                           lambda: (lambda got: got if len(got) >= count else None)(
                               lines(daemon, event)))


def test_access_lines_are_whole(logged):
    coords, feats = random_grid(3, 700)
    before = len(lines(logged.daemon, "ACCESS"))
    hostile = ['"},"x":{"', "\x1b[31m\r\n\t\x00\x7f", "\\", "\u2028\U0001f600" * 20, "%s%n",
               "'" * 200, "a" * 255]
    with Client(logged.daemon.grpc) as client:
        for number, name in enumerate(hostile):
            client.infer("conv", coords, feats, id=name.replace("\x00", ""))
        with pytest.raises(voxeld.VoxeldError):
            client.infer('no"such\n{model}\\', coords, feats, id=hostile[0])
    got = wait_lines(logged.daemon, "ACCESS", before + len(hostile) + 1)[before:]
    assert [row["id"] for row in got[:-1]] == [name.replace("\x00", "") for name in hostile]
    for row in got[:-1]:
        assert (row["code"], row["method"], row["peer"]) == ("OK", "ModelInfer", "local")
        assert row["voxels"] == 700 and row["bytes_in"] > 700 * 32
        assert row["bytes_out"] == 700 * 3 * 4 and row["inputs"] == row["outputs"] == "wire"
        assert row["version"] == 1 and row["connection"] > 0 and row["worker"] == 0
        parts = sum(row[k] for k in ("receive_us", "queue_us", "input_us", "geometry_us",
                                     "compute_us", "output_us"))
        assert 0 < parts <= row["total_us"] + 10 and min(row["queue_us"], row["receive_us"]) >= 0
        assert row["trace_id"] == row["span_id"] == "" and "cut" not in row
    assert got[-1]["code"] == "NOT_FOUND" and got[-1]["model"] == 'no"such\n{model}\\'
    assert got[-1]["worker"] == -1 and got[-1]["bytes_out"] == 0


def test_access_lines_are_never_left_out(logged):
    coords, feats = random_grid(3, 10)
    before = len(lines(logged.daemon, "ACCESS"))
    with Client(logged.daemon.grpc) as client:
        for _ in range(150):
            client.infer("conv", coords, feats)
    got = wait_lines(logged.daemon, "ACCESS", before + 150)[before:]
    assert len(got) == 150 and not any("suppressed" in row for row in got)


def test_a_unix_peer_is_said(logged):
    coords, feats = random_grid(3, 10)
    with Client(logged.socket) as client:
        client.infer("conv", coords, feats, id="over the socket")
    row = logged.daemon.wait_for("its line", lambda: next(
        (r for r in lines(logged.daemon, "ACCESS") if r["id"] == "over the socket"), None))
    assert row["peer"] == "unix" and row["uid"] == os.getuid()


def test_traceparent_is_honoured(logged):
    coords, feats = random_grid(3, 50)
    bad = ["00-" + "0" * 32 + "-00f067aa0ba902b7-01", f"ff-{TRACE_ID}-00f067aa0ba902b7-01",
           f"00-{TRACE_ID.upper()}-00f067aa0ba902b7-01", "x", f"00-{TRACE_ID}-00f067aa0ba902b7-1"]
    traced = len(lines(logged.daemon, "TRACE"))
    before = len(lines(logged.daemon, "ACCESS"))
    with Client(logged.daemon.grpc) as client:
        client.infer("conv", coords, feats, id="sampled", metadata=parent("01"))
        client.infer("conv", coords, feats, id="not sampled", metadata=parent("00"))
        for text in bad:
            client.infer("conv", coords, feats, id=text, metadata=(("traceparent", text),))
        with pytest.raises(voxeld.VoxeldError):
            client.infer("absent", coords, feats, id="failed", metadata=parent("01"))
    access = wait_lines(logged.daemon, "ACCESS", before + 3 + len(bad))[before:]
    traces = wait_lines(logged.daemon, "TRACE", traced + 2)[traced:]
    for row in access[:2] + access[-1:]:
        assert row["trace_id"] == TRACE_ID and row["parent_id"] == "00f067aa0ba902b7"
        assert re.fullmatch("[0-9a-f]{16}", row["span_id"])
    assert len({row["span_id"] for row in access[:2]}) == 2
    for row in access[2:-1]:
        assert row["trace_id"] == row["parent_id"] == row["span_id"] == "", row
    assert [row["id"] for row in traces] == ["sampled", "failed"]
    assert traces[0]["span_id"] == access[0]["span_id"] and traces[0]["trace_id"] == TRACE_ID
    times = [traces[0][step] for step in STEPS]
    assert times == sorted(times) and times[0] > 0
    assert traces[1]["code"] == "NOT_FOUND" and traces[1]["COMPUTE_START"] == 0


def setting(reply):
    return {k: v.get("value", []) for k, v in reply["settings"].items()}


def test_trace_settings_trace(logged):
    coords, feats = random_grid(3, 50)
    ask = logged.asked.call
    assert setting(ask("TraceSetting"))["trace_level"] == ["OFF"]
    before = len(lines(logged.daemon, "TRACE"))
    reply = ask("TraceSetting", model_name="conv",
                settings={"trace_level": {"value": ["TIMESTAMPS"]},
                          "trace_rate": {"value": ["3"]}, "trace_count": {"value": ["2"]}})
    assert setting(reply) == {"trace_level": ["TIMESTAMPS"], "trace_rate": ["3"],
                              "trace_count": ["2"], "log_frequency": ["0"], "trace_file": [""],
                              "trace_mode": ["triton"]}
    assert setting(ask("TraceSetting"))["trace_level"] == ["OFF"]
    done = len(lines(logged.daemon, "ACCESS"))
    with Client(logged.daemon.grpc) as client:
        for number in range(12):
            client.infer("conv", coords, feats, id=f"traced {number}")
    wait_lines(logged.daemon, "ACCESS", done + 12)
    traces = lines(logged.daemon, "TRACE")[before:]
    assert [row["id"] for row in traces] == ["traced 0", "traced 3"]
    for row in traces:
        times = [row[step] for step in STEPS]
        assert times == sorted(times) and row["parent_id"] == "" and len(row["trace_id"]) == 32
    assert setting(ask("TraceSetting", model_name="conv"))["trace_count"] == ["0"]
    with pytest.raises(grpc.RpcError) as caught:
        ask("TraceSetting", settings={"trace_file": {"value": ["/tmp/x"]}})
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    reply = ask("TraceSetting", model_name="conv",
                settings={key: {} for key in ("trace_level", "trace_rate", "trace_count")})
    assert setting(reply)["trace_level"] == ["OFF"] and setting(reply)["trace_rate"] == ["1000"]


def test_log_settings_change_the_log(logged):
    coords, feats = random_grid(3, 10)
    ask = logged.asked.call

    def infer(name):
        with Client(logged.daemon.grpc) as client:
            client.infer("conv", coords, feats, id=name)
    before = lines(logged.daemon, "ACCESS")
    reply = ask("LogSettings", settings={"log_info": {"bool_param": False}})["settings"]
    assert reply["log_info"] == {"bool_param": False}
    assert reply["log_error"] == {"bool_param": True} and reply["log_file"] == {"string_param": ""}
    infer("silent")  # a client cannot turn off what the operator set
    ask("LogSettings", settings={"log_info": {"bool_param": True}})
    infer("seen")
    logged.daemon.wait_for("the line", lambda: any(
        row["id"] == "seen" for row in lines(logged.daemon, "ACCESS")))
    assert [row["id"] for row in lines(logged.daemon, "ACCESS")[len(before):]] == ["silent", "seen"]
    changes = lines(logged.daemon, "SETTINGS")[-2:]
    assert [row["log_info"] for row in changes] == [0, 1]
    assert all(row["peer"] == "local" and row["connection"] > 0 for row in changes)
    for bad in ({"log_file": {"string_param": "/tmp/owned"}}, {"log_info": {"string_param": "1"}},
                {"log_verbose_level": {"bool_param": True}}, {"nothing": {"bool_param": True}}):
        with pytest.raises(grpc.RpcError) as caught:
            ask("LogSettings", settings={"log_info": {"bool_param": False}, **bad})
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert ask("LogSettings")["settings"]["log_info"] == {"bool_param": True}
    assert not pathlib.Path("/tmp/owned").exists()


def test_without_the_access_log_a_sampled_request_is_traced(repository, tmp_path):
    coords, feats = random_grid(3, 10)
    with Daemon(repository, tmp_path, "--log-format", "json") as daemon, \
            Client(daemon.grpc) as client:
        client.infer("conv", coords, feats)
        client.infer("conv", coords, feats, metadata=parent("00"))
        client.infer("conv", coords, feats, metadata=parent("01"))
        row, = wait_lines(daemon, "TRACE", 1)
        assert row["trace_id"] == TRACE_ID and not lines(daemon, "ACCESS")
