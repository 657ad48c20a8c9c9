# SPDX-License-Identifier: Apache-2.0
"""perf_analyzer, unmodified, against the daemon on the CPU.

Each test compares three records of the same requests: what the program counted and timed itself,
what it reports about the server (from ModelStatistics, between two reads of its own), and by how
much ModelStatistics grew from before the program began until after it ended.
"""
import contextlib
import csv
import os
import pathlib
import platform
import re
import shutil
import subprocess
import time

import pytest
from model_files import ConvModel
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

FOLDER = pathlib.Path(os.environ.get(
    "VX_PERF_ANALYZER", pathlib.Path(__file__).resolve().parents[2] / "build" / "perf-analyzer"))
PROGRAM = FOLDER / "bin" / "perf_analyzer"
CHANNELS = 16
# Nothing is in flight and no request thread waits for so long: it has lost count.
SILENT_SECONDS = 30
STAGES = {"queue": "Server Queue", "compute_input": "Server Compute Input",
          "compute_infer": "Server Compute Infer", "compute_output": "Server Compute Output"}
# A CPU has no GPU gauges; and at its end the program also unregisters CUDA regions, of which there
# are none.
NO_GPU = {*(f"WARNING: Unable to parse 'nv_gpu_{name}' metric." for name in
            ("utilization", "power_usage", "memory_used_bytes", "memory_total_bytes")),
          "Unable to unregister all shared memory regions"}
# A machine that is busy with other programs takes longer than a tenth of a second for a scrape.
SLOW = re.compile(r"WARNING: Triton metrics endpoint latency \(\d+ms\) is larger than the querying")


def environment():
    # The CUDA runtime is beside the program.  By default up to six clients share a connection;
    # regions belong to a connection, so the one that registers them must be the one that infers.
    return dict(os.environ, LD_LIBRARY_PATH=str(FOLDER / "nvidia" / "cuda_runtime" / "lib"),
                TRITON_CLIENT_GRPC_CHANNEL_MAX_SHARE_COUNT="1000000")


@pytest.fixture(scope="module", autouse=True)
def runnable():
    """Skips all tests when the program is missing or cannot run here."""
    if not PROGRAM.exists():
        pytest.skip("perf_analyzer is not installed: run deploy/install-deps (x86_64 only)")
    done = subprocess.run([PROGRAM, "--version"], env=environment(), capture_output=True,
                          text=True, timeout=PATIENCE)
    if "Perf Analyzer Version" not in done.stdout + done.stderr:
        pytest.skip(f"perf_analyzer cannot run here: {done.stderr.strip()[:300]}")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    ConvModel(ci=CHANNELS, hidden=64).write(repository)
    ConvModel(ci=64, hidden=256).write(repository, "heavy")
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--client-shm", "local") as one:
        yield one


@pytest.fixture(scope="module")
def client(daemon):
    with Client(daemon.grpc) as one:
        yield one


def perf_data(daemon, path, model, voxels, *words):
    done = subprocess.run([os.environ["VOXEL"], "perf-data", "--server", daemon.grpc, "--model",
                           model, "--voxels", voxels, "-o", str(path), *words],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def mixed(daemon, tmp_path_factory):
    """Nine grids of three sizes."""
    return perf_data(daemon, tmp_path_factory.mktemp("data") / "mixed.json", "conv",
                     "848,4000,8600", "--count", "9")


NANOSLEEP = {"x86_64": "230"}.get(platform.machine())  # clock_nanosleep; it runs on x86_64 only


def threads(pid):
    """(name, number of the system call it is in) of each; "running" in place of the number."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # the process ends meanwhile
            call = (task / "syscall").read_text().split()
            found.append(((task / "comm").read_text().strip(), call[0] if call else "running"))
    return found


def has_requests(pid):
    """Request threads have the program's name, as the main thread has; gRPC names its own.  One
    that sleeps until its next request is due waits for no answer."""
    own = [call for name, call in threads(pid) if name == "perf_analyzer"]
    return len(own) - own.count(NANOSLEEP) > 0


def stacks(pid):
    """Where all its threads are, for a failure's report."""
    if not shutil.which("gdb"):
        return f"threads and their system calls: {threads(pid)}"
    return subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"],
                          capture_output=True, text=True, timeout=PATIENCE).stdout


def run_program(daemon, arguments):
    """Its CompletedProcess, or None when it has lost count of its requests: in one run of 600 its
    threads have ended, no connection has a byte to send or to read, and its main thread sleeps for
    ever (seen with gdb, in the open loop).  A request that never ended would have a thread that
    waits for it."""
    with subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        silent = 0
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                out, err = process.communicate(timeout=1)  # deadline: between two checks
                return subprocess.CompletedProcess(arguments, process.returncode, out, err)
            except subprocess.TimeoutExpired:
                busy = has_requests(process.pid) or daemon.metrics()["voxeld_calls_in_flight"]
                silent = 0 if busy else silent + 1
            if silent == SILENT_SECONDS:
                process.kill()
                return None
        where = stacks(process.pid)
        process.kill()
        out = f"{process.communicate()[0]}\n{where}"
        raise subprocess.TimeoutExpired(arguments, PATIENCE, out)


class Report:
    """One run: the program's report, and by how much the server's statistics grew meanwhile."""

    def __init__(self, daemon, client, tmp_path, data, *words, model="conv"):
        report = tmp_path / "report.csv"

        def row():
            return {r["name"]: r for r in client.statistics()}[model]
        before = row()
        try:
            arguments = [PROGRAM, "-m", model, "-i", "grpc", "-u", daemon.grpc, "--input-data",
                         data, "-f", report, "--verbose-csv", *words]
            done = run_program(daemon, arguments)
            for _ in range(3):
                if done:
                    break
                print("perf_analyzer lost count of its requests and is run again")
                before, done = row(), run_program(daemon, arguments)
            assert done, "perf_analyzer lost count four times"
        except subprocess.TimeoutExpired as error:  # does the client or the server miss a request?
            counts = {k: v for k, v in daemon.metrics().items() if re.search(
                "in_flight|running|queued|inference_request|arena_used", k)}
            raise AssertionError(f"{error.output}\n{counts}\n{daemon.log()[-4000:]}") from error
        after = row()
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        self.out, self.warnings = done.stdout, set(done.stderr.strip().splitlines())
        with open(report, newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 1
        self.csv = rows[0]
        self.count = self._number("Request count")                  # the program's own
        self.server_count = self._number("Successful request count")  # the server's, as it saw
        self.seen = {name: float(self.csv[column]) for name, column in STAGES.items()}
        self.grew, self.mean_us = {}, {}
        for name in ("success", "fail", *STAGES):
            (count, ns), (count0, ns0) = after.get(name, (0, 0)), before.get(name, (0, 0))
            self.grew[name] = count - count0
            self.mean_us[name] = (ns - ns0) / 1e3 / max(1, count - count0)
        self.throughput = float(self.csv["Inferences/Second"])
        self.latency_us = float(self.csv["Avg latency"])

    def _number(self, name):
        return int(re.search(rf"{name}: (\d+)", self.out)[1])

    def check(self):
        """Checks what holds for every run."""
        assert self.throughput > 0 and self.latency_us > 0 and self.count > 0
        assert self.grew["fail"] == 0
        assert {line for line in self.warnings if not SLOW.match(line)} <= NO_GPU
        # The program reads statistics at the ends of its windows, when requests are in flight.
        assert 0 < self.server_count <= self.grew["success"]
        # All stages of the server are within the time of the request.
        assert self.mean_us["success"] >= sum(self.mean_us[name] for name in STAGES)

    def check_exact(self, count):
        """For a run with --request-count: all three cover the same requests, except those that
        end before the program first reads statistics."""
        self.check()
        assert self.count == self.grew["success"] == count
        assert self.mean_us["success"] <= self.latency_us
        for name, mean in self.mean_us.items():
            if name in STAGES:  # its file truncates to whole microseconds
                rest = count * mean - self.server_count * self.seen[name]
                assert rest >= -1, (name, self.seen, mean)  # requests it did not see took time
                if self.server_count == count:
                    assert rest <= 2 * count, (name, self.seen, mean)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_closed_loop(daemon, client, mixed, tmp_path, concurrency):
    run = Report(daemon, client, tmp_path, mixed, "--concurrency-range", str(concurrency),
                 "--request-count", "200")
    run.check_exact(200)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_closed_loop_in_windows(daemon, client, mixed, tmp_path, concurrency):
    """The usual mode: time windows, repeated until their results are stable."""
    run = Report(daemon, client, tmp_path, mixed, "--concurrency-range", str(concurrency),
                 "--measurement-interval", "3000", "--max-trials", "4",
                 "--stability-percentage", "900")
    run.check()
    assert run.grew["success"] >= run.server_count
    # Little's law: as many are in flight as there are threads, less what those do in between,
    # which is much on a busy machine.  A clock of the wrong unit is off by a thousand.
    under_way = run.throughput * run.latency_us / 1e6
    assert 0.02 * concurrency < under_way < 50 * concurrency


def test_open_loop(daemon, client, mixed, tmp_path):
    run = Report(daemon, client, tmp_path, mixed, "--request-rate-range", "80",
                 "--request-distribution", "poisson", "--request-count", "160")
    run.check_exact(160)


def test_system_shared_memory(daemon, client, mixed, tmp_path):
    run = Report(daemon, client, tmp_path, mixed, "--concurrency-range", "4",
                 "--shared-memory", "system", "--output-shared-memory-size", "200000",
                 "--request-count", "200")
    run.check_exact(200)
    daemon.wait_for("its regions to go", lambda: not [
        line for line in open(f"/proc/{daemon.process.pid}/maps") if "/dev/shm/" in line
        and "voxeld" not in line])


def test_latency_of_large_requests_in_shared_memory(daemon, client, tmp_path, record_property):
    """With tensors in shared memory the network carries almost nothing, so the client's times and
    the server's agree: within 3 % on a quiet machine; this test records the number and sets no
    limit."""
    data = perf_data(daemon, tmp_path / "heavy.json", "heavy", "30000")
    run = Report(daemon, client, tmp_path, data, "--shared-memory", "system",
                 "--output-shared-memory-size", "500000", "--request-count", "25", model="heavy")
    run.check_exact(25)
    record_property("outside_of_the_server_us", run.latency_us - run.mean_us["success"])


@pytest.mark.parametrize("words", [["--concurrency-range", "4"],
                                   ["--request-rate-range", "100"]])
def test_streams(daemon, client, mixed, tmp_path, words):
    run = Report(daemon, client, tmp_path, mixed, *words, "--streaming", "--async",
                 "--request-count", "200")
    run.check_exact(200)


def test_callbacks(daemon, client, mixed, tmp_path):
    run = Report(daemon, client, tmp_path, mixed, "--async", "--concurrency-range", "6",
                 "--request-count", "200")
    run.check_exact(200)


def test_metrics_of_the_server(daemon, client, mixed, tmp_path):
    run = Report(daemon, client, tmp_path, mixed, "--collect-metrics", "--metrics-url",
                 f"{daemon.http}/metrics", "--metrics-interval", "100", "--measurement-interval",
                 "3000", "--max-trials", "4", "--stability-percentage", "900")
    run.check()
    assert "Server Prometheus Metrics" in run.out and "Avg GPU Utilization" in run.csv


def test_random_data_and_numbers(daemon, client, tmp_path):
    """JSON with numbers also works, and so does one grid in raw files."""
    data = perf_data(daemon, tmp_path / "numbers.json", "conv", "300,500", "--as", "numbers")
    Report(daemon, client, tmp_path, data, "--request-count", "100").check_exact(100)
    raw = tmp_path / "raw"
    raw.mkdir()
    perf_data(daemon, raw, "conv", "700", "--as", "files")
    (tmp_path / "report.csv").unlink()
    Report(daemon, client, tmp_path, raw, "--shape", "coords:700,4", "--shape",
           f"feats:700,{CHANNELS}", "--request-count", "100").check_exact(100)


def test_compression_is_refused(daemon, client, mixed, tmp_path):
    done = subprocess.run(
        [PROGRAM, "-m", "conv", "-i", "grpc", "-u", daemon.grpc, "--input-data", mixed,
         "--grpc-compression-algorithm", "gzip", "--request-count", "10"],
        env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0 and "is disabled" in done.stdout + done.stderr
