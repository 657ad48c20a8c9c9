# SPDX-License-Identifier: Apache-2.0
"""A voxeld under test: started on loopback with free ports, always ended."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request

# How long a test waits for any event.  The limit only ends what hangs: it is far beyond what a
# sanitizer on a busy machine takes, and no test passes or fails by how fast the machine is.
PATIENCE = 300
# A worker that is slow or frozen by a test has not hung; a watchdog test sets its own limits.
NO_HANGS = ("--watchdog-ms", str(2 * PATIENCE * 1000), "--start-ms-max", str(2 * PATIENCE * 1000))


def workers_of(front):
    """Process ids of the workers of the front with that id, those that run now."""
    out = []
    for pid in open(f"/proc/{front}/task/{front}/children").read().split():
        try:
            if b"worker" in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0"):
                out.append(int(pid))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return out


class Daemon:
    """`with Daemon(repository, tmp_path) as daemon:` serves until the block ends, then drains.

    grpc, http   HOST:PORT as bound
    log()        what it has logged so far; a line comes a moment after its event
    wait_said()  waits for a line
    """

    def __init__(self, repository, work, *flags, wait_ready=True):
        self.ready_file = work / f"ready-{time.monotonic_ns()}"
        self.log_path = work / f"voxeld-{time.monotonic_ns()}.log"
        self.started = time.monotonic()
        with self.open_log() as log:
            self.process = self.popen(
                [os.environ["VOXELD"], "serve", "--repository", str(repository),
                 "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grace-ms", "0",
                 "--arena-bytes", "256M", "--ready-file", str(self.ready_file), *NO_HANGS, *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.grpc = self.http = None
        try:
            if wait_ready:
                self.wait_ready()
            else:
                self.wait_listening()
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind is None:
            self.stop()
        else:
            self.kill()

    def popen(self, arguments, **options):
        return subprocess.Popen(arguments, **options)

    def open_log(self):
        """The file for the daemon's log; this process closes its copy when the daemon runs."""
        return open(self.log_path, "wb")

    def log(self):
        """The complete lines so far.  A thread of the daemon writes them, so the line of a recent
        event may be missing: use wait_said()."""
        return "".join(self.log_path.read_text(errors="replace").rpartition("\n")[:2])

    def wait_said(self, text, count=1):
        """Waits until the log has the text `count` times."""
        self.wait_for(f"{count} x '{text}' in the log", lambda: self.log().count(text) >= count)

    def _alive(self):
        code = self.process.poll()
        assert code is None, (f"voxeld ended early, with exit code {code}; its log, "
                              f"{self.log_path}:\n{self.log()[-8000:]}")

    def wait_for(self, what, condition, seconds=PATIENCE):
        """Polls until condition() is true; a failure names `what`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            result = condition()
            if result:
                return result
            time.sleep(0.01)  # sleep: between two checks
        raise AssertionError(f"waited {seconds} s for {what}; the log of voxeld, "
                             f"{self.log_path}:\n{self.log()[-8000:]}")

    def wait_ready(self):
        def written():
            self._alive()
            return self.ready_file.exists()
        self.wait_for("voxeld to write its ready file", written)
        self.seconds_to_ready = time.monotonic() - self.started
        line = self.ready_file.read_text()
        match = re.fullmatch(r"grpc=(\S+) http=(\S+) pid=(\d+)( unix=\S+)?\n", line)
        assert match, line
        self.grpc, self.http = match[1], match[2]
        assert int(match[3]) == self.process.pid

    def wait_listening(self):
        def ports():
            self._alive()
            found = dict(re.findall(r"\bLISTEN\b.*?what=(grpc|http) .*?port=(\d+)", self.log()))
            return found if len(found) == 2 else None
        found = self.wait_for("voxeld to say the two ports it listens on", ports)
        self.grpc, self.http = (f"127.0.0.1:{found[k]}" for k in ("grpc", "http"))

    def workers(self):
        """Process ids of the workers that run now."""
        return workers_of(self.process.pid)

    def freeze(self, pid):
        """Stops a worker and waits until it has stopped: a signal acts after kill() returns."""
        def stopped():
            tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
            return all((t / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for t in tasks)
        os.kill(pid, signal.SIGSTOP)
        self.wait_for(f"process {pid} to stop", stopped)

    @contextlib.contextmanager
    def frozen(self, pid):
        try:
            self.freeze(pid)
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def rss_bytes(self, pid=None):
        """Resident memory of the front, or of a worker."""
        for line in open(f"/proc/{pid or self.process.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def get(self, path):
        """(status, body) of an admin page."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}",
                                        timeout=PATIENCE) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self):
        """{'name{labels}': value} of /metrics."""
        status, text = self.get("/metrics")
        assert status == 200
        out = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """SIGTERM; the exit code must be 0, and no worker may be left."""
        workers = self.workers()
        self.signal(signal.SIGTERM)
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"voxeld did not stop in {PATIENCE} s:\n{self.log()[-8000:]}")
        assert code == 0, f"exit code {code}:\n{self.log()[-8000:]}"
        self.wait_for("the workers' end",
                      lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
