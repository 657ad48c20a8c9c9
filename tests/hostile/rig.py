# SPDX-License-Identifier: Apache-2.0
"""A daemon under attack, a good client of it, and what both are measured by.

`Rig` starts the daemon, the good client and a thread that reads the front's memory every 20 ms;
`attack` lets attackers at it and returns a `Finding`, whose `wrong` are sentences: what was
expected and what came.  Everything is judged from outside.
"""
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import attack  # noqa: E402
from certificates import Authority  # noqa: E402
from model_files import ConvModel  # noqa: E402
from voxeld_process import Daemon  # noqa: E402

RSS_BYTES = 64 << 20        # how much the front may grow, during an attack and after it
RSS_BYTES_ALL = 96 << 20    # when every kind of attack is made at once; 60 to 94 MB were measured
LATENCY_SECONDS = 1.0       # p99 of the good client on a machine that has the time
NEWCOMER_SECONDS = 5.0      # p99 with a new connection; a lost SYN alone costs a second
LATENCY_TIMES = 4.0         # on a busy machine: so many times the worst echo at that time
OTHERS = 0.2                # processors; no time is judged when other programs use more
GIVEN_BACK_SECONDS = 10.0   # memory and connections are given back within seconds
RSS_BYTES_MOST = 3 << 29    # beyond it the front is killed, before it takes the machine with it
STALL_SECONDS = 60.0        # longer counts as a hang
WARM_UP = 40                # good answers, and the newcomers and probes of those two seconds
ANSWERS_AFTER = 6            # good answers in a row that end an attack's aftermath
CUTS_METRIC = "voxeld_connections_cut_total"
CUT_EVENT = "CONNECTION_CUT"

Answer = collections.namedtuple("Answer", "what due took outcome")
Memory = collections.namedtuple("Memory", "at rss shared")


def p99(times):
    times = sorted(times)
    return times[min(len(times) - 1, int(0.99 * len(times)))] if times else None


class GoodClient:
    """The process of good.py, and every line that it has printed."""

    def __init__(self, server, http, ca=None):
        self.answers, self.open = [], {}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "good.py"), "--server", server, "--http", http,
             *(["--ca", ca] if ca else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            what, due, took, outcome = line.rstrip("\n").split(" ", 3)
            if outcome == "asked":
                self.open[what, due] = float(due)
            else:
                self.answers.append(Answer(what, float(due), float(took), outcome))
                del self.open[what, due]

    def since(self, begin, end=float("inf"), what=None):
        return [a for a in list(self.answers)
                if begin <= a.due < end and (what is None or a.what == what)]

    def unanswered(self, end):
        """Requests due before then whose answer has not come."""
        return [what for (what, _), due in list(self.open.items()) if due < end]

    def close(self):
        """True when it ended by itself, every request answered."""
        self.process.stdin.close()
        try:
            code = self.process.wait(STALL_SECONDS + 10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.thread.join()
        self.process.stdout.close()
        return code == 0


class Processors:
    """How many of the machine's processors other programs use."""

    def __init__(self):
        self.begin, self.at = self.read(), time.monotonic()

    @staticmethod
    def read():
        """Processor seconds that other programs have used since boot."""
        tick = os.sysconf("SC_CLK_TCK")
        words = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _wait, irq, soft, steal = (int(word) for word in words[:8])
        parent, seconds = {}, {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                pid = int(stat.parent.name)
                parent[pid] = int(fields[1])
                seconds[pid] = sum(int(field) for field in fields[11:15]) / tick
        root = int(os.environ.get("VX_HOSTILE_ROOT", os.getpid()))  # lanes: what is beside is ours

        def ours(pid):
            while pid and pid != root:
                pid = parent.get(pid)
            return bool(pid)
        return (user + nice + system + irq + soft + steal) / tick - sum(
            took for pid, took in seconds.items() if ours(pid))

    def others(self):
        """The mean number of processors that they used since the beginning."""
        return max(0.0, (self.read() - self.begin) / (time.monotonic() - self.at))


class MemoryWatch:
    """The front's resident memory, read all the time."""

    def __init__(self, pid):
        self.pid, self.readings, self.stopped = pid, [], threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def read(self):
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        rss, shared = (int(re.search(rf"{key}:\s*(\d+) kB", text)[1]) * 1024
                       for key in ("VmRSS", "RssShmem"))
        return Memory(time.monotonic(), rss, shared)

    def _run(self):
        while not self.stopped.wait(0.02):
            try:
                self.readings.append(self.read())
            except (OSError, TypeError):
                return  # it has ended
            if self.readings[-1].rss > RSS_BYTES_MOST:
                os.kill(self.pid, signal.SIGKILL)
                return

    def peak(self, begin, end, size):
        return max((size(m) for m in list(self.readings) if begin <= m.at <= end), default=0)

    def close(self):
        self.stopped.set()
        self.thread.join()


@dataclasses.dataclass
class Finding:
    """What one attack did."""
    names: list
    wrong: list
    late: list = dataclasses.field(default_factory=list)  # of it, what a busy machine may cause
    p99_ms: float | None = None
    worst_ms: float | None = None
    newcomer_ms: float | None = None
    admin_ms: float | None = None
    asked: int = 0
    failed: int = 0
    rss_before: int = 0
    rss_peak: int = 0
    rss_after: int = 0
    recovered_s: float | None = None
    others: float = 0.0  # processors that programs other than these had meanwhile
    cut_metric: float | None = None
    attacker: dict = dataclasses.field(default_factory=dict)


class Rig:
    """`with Rig(work) as rig: rig.attack("ping")`; one that something hurt is not used again."""

    def __init__(self, work, *flags, unix=False, tls=False, patience=STALL_SECONDS):
        self.work = pathlib.Path(work)
        repository = self.work / "repository"
        repository.mkdir(exist_ok=True)
        ConvModel().write(repository)
        ConvModel(hidden=4, co=2048).write(repository, "wide")  # 1,024 voxels: 8 MB of answer
        ConvModel(ci=64, hidden=4).write(repository, "broad")   # 30,000 voxels: 8 MB of request
        self.patience = patience
        self.ca = None
        if tls:
            authority = Authority(self.work / "ca", kind="rsa")  # dear for the server
            pair = authority.sign("the server")
            flags += ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
            self.ca = str(authority.cert)
        self.socket = f"unix:{self.work}/s"
        self.daemon = Daemon(repository, self.work,
                             "--grpc", f"127.0.0.1:0,{self.socket}", *flags)
        self.server = self.socket if unix else tls * "tls:" + self.daemon.grpc
        self.memory = MemoryWatch(self.daemon.process.pid)
        self.good, self.hurt = None, False

    def __enter__(self):
        try:
            self.warm_up()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind, *rest):
        if kind is None:
            self.stop()
        else:
            self.kill()

    def warm_up(self):
        """Sends requests until one-time allocations are done."""
        self.good = GoodClient(self.server, self.daemon.http, self.ca)
        self.wait("the good client's first answers",
                  lambda: len(self.good.since(0, what="infer")) > WARM_UP)
        self.first = self.memory.read()

    def limit(self, begin, what="infer"):
        """For p99 since then: a second, or what the machine itself takes when it is busy."""
        echoes = [a.took for a in self.good.since(begin, what="echo")]
        least = NEWCOMER_SECONDS if what == "newcomer" else LATENCY_SECONDS
        return max(least, LATENCY_TIMES * max(echoes, default=0))

    def wait(self, what, condition, seconds=None):
        self.daemon.wait_for(what, condition, seconds or self.patience)

    # ------- an attack -------

    def attack(self, *names, seconds=None, server=None):
        """Runs the attacks of these names at once in one process; returns a Finding."""
        chosen = [attack.ATTACKS[name] for name in names]
        finding = Finding(list(names), [])
        self.size = (lambda m: m.rss - m.shared) if any(a.arena for a in chosen) \
            else (lambda m: m.rss)
        finding.rss_before = self.size(self.memory.read())
        cuts, logged = self.cuts(), len(self.daemon.log())
        processors = Processors()
        begin = time.monotonic()
        seconds = seconds or max(a.seconds for a in chosen)
        finding.attacker = self.run_attackers(names, seconds, server or self.server)
        end = time.monotonic()
        self.judge_aftermath(finding, begin, end)
        finding.others = processors.others()
        self.judge_answers(finding, begin)
        self.judge_memory(finding, begin)
        self.judge_honest(finding)
        self.judge_cuts(finding, [a for a in chosen if a.over], cuts, logged)
        finding.wrong += finding.late
        self.hurt = self.hurt or bool(finding.wrong)
        return finding

    def run_attackers(self, names, seconds, server):
        process = subprocess.run(
            [sys.executable, str(HERE / "attack.py"), *names, "--server", server,
             "--http", self.daemon.http, "--seconds", str(seconds)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds + 120)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    def judge_aftermath(self, finding, begin, end):
        """The good client is served again, and then nothing of the attack is left."""
        def served():
            after = self.good.since(end, what="infer")
            return (self.daemon.process.poll() is not None
                    or len(after) >= ANSWERS_AFTER and not self.good.unanswered(end))
        try:
            self.wait("answers", served)
        except AssertionError:
            finding.wrong.append(
                f"expected {ANSWERS_AFTER} answers within {self.patience:.0f} s after the attack, "
                f"got {len(self.good.since(end, what='infer'))}, and "
                f"{len(self.good.unanswered(end))} earlier requests are not answered yet")
            return
        if self.daemon.process.poll() is not None:
            finding.wrong.append(
                f"expected a daemon that lives, got exit code {self.daemon.process.poll()} "
                f"(-9: this test ends one beyond {RSS_BYTES_MOST >> 20} MB)")
            return
        asked_before = [a for a in self.good.since(begin) if a.due < end]
        finding.recovered_s = max([0.0, *(a.due + a.took - end for a in asked_before)])
        try:
            self.wait("voxeld_connections to be as before", lambda: self.connections() <= 3, 30)
        except (AssertionError, OSError) as error:
            finding.wrong.append("expected the attackers' connections to be gone within 30 s, got "
                                 + str(error)[:100])

    def connections(self):
        return self.daemon.metrics().get("voxeld_connections", 0)

    def judge_answers(self, finding, begin):
        answers = self.good.since(begin)
        finding.asked = len(answers)
        failed = [a for a in answers if a.outcome != "ok"]
        finding.failed = len(failed)
        for what, count in collections.Counter((a.what, a.outcome) for a in failed).most_common(4):
            finding.wrong.append(f"expected {what[0]} to be answered, got {count} x {what[1]}")
        worst = {}
        for what in ("infer", "newcomer", "admin"):
            times = [a.took for a in answers if a.what == what]
            if not times:
                finding.wrong.append(f"expected answers to {what}, got none")
                continue
            worst[what], limit = p99(times), self.limit(begin, what)
            if worst[what] > limit and finding.others < OTHERS:
                finding.late.append(f"expected a p99 of {what} within {limit:.1f} s, "
                                    f"got {worst[what]:.2f} s of {len(times)}")
        ms = {what: round(1000 * took, 1) for what, took in worst.items()}
        finding.p99_ms, finding.newcomer_ms, finding.admin_ms = (
            ms.get(what) for what in ("infer", "newcomer", "admin"))
        finding.worst_ms = round(1000 * max([0, *(a.took for a in answers if a.what == "infer")]))

    @staticmethod
    def judge_honest(finding):
        honest, unserved = finding.attacker["honest"], finding.attacker["unserved"]
        if not unserved:
            return
        tries = finding.attacker["tries"]  # of one that judges by time, and has got all answers
        if tries and finding.others >= OTHERS:
            return
        (finding.late if tries else finding.wrong).append(
            "expected every honest client from another address to be served amid the attack, "
            f"got {unserved} of {honest} that were not"
            + (f"; its seconds beside it and alone: {tries}" if tries else ""))

    def judge_memory(self, finding, begin):
        allowed = RSS_BYTES_ALL if "mix_all" in finding.names else RSS_BYTES
        most = finding.rss_before + allowed
        finding.rss_after = self.given_back(self.size, most)
        finding.rss_peak = self.memory.peak(begin, time.monotonic(), self.size)
        for when, size in (("during", finding.rss_peak), ("after", finding.rss_after)):
            if size > most:
                finding.wrong.append(
                    f"expected the front within {allowed >> 20} MB of {finding.rss_before >> 20} "
                    f"MB {when} the attack, got {size >> 20} MB")

    def given_back(self, size, most):
        """Waits until the front's memory is within that, since free memory goes back to the system
        seconds later; returns the last size, 0 if the front has ended."""
        until, last = time.monotonic() + GIVEN_BACK_SECONDS, 0
        while self.daemon.process.poll() is None:
            try:
                last = size(self.memory.read())
            except (OSError, TypeError):
                break  # it has ended
            if last <= most or time.monotonic() > until:
                break
            time.sleep(0.05)  # sleep: between two checks of its memory
        return last

    # ------- connections that are cut -------

    def cuts(self):
        """How many connections the daemon says it has cut; None: it does not say."""
        try:
            numbers = self.daemon.metrics()
        except OSError:
            return None
        cuts = [value for name, value in numbers.items() if name.startswith(CUTS_METRIC)]
        return sum(cuts) if cuts else None

    def judge_cuts(self, finding, over, before, logged):
        after = self.cuts()
        finding.cut_metric = None if after is None else after - (before or 0)
        lines = [line for line in self.daemon.log()[logged:].splitlines() if CUT_EVENT in line]
        named = collections.Counter(re.findall(r" connection=\d+", "\n".join(lines)))
        if any(count > 1 for count in named.values()):
            finding.wrong.append(f"expected one line for each connection that is cut, got "
                                 f"{named.most_common(1)[0]}")
        if not over:
            return
        if finding.attacker["uncut"] and finding.others < OTHERS:
            finding.wrong.append("expected each connection over its allowance to be closed, got "
                                 f"{finding.attacker['uncut']} that are open")
        if not any(one.counted for one in over):
            return
        if not finding.cut_metric:
            finding.wrong.append(f"expected {CUTS_METRIC} to count them, got {finding.cut_metric}")
        if not lines:
            finding.wrong.append(f"expected {CUT_EVENT} in the log with their address, got none")

    # ------- the end -------

    def left_over(self):
        """What all attacks together have left behind: sentences."""
        wrong, most = [], self.first.rss + RSS_BYTES
        rss = self.given_back(self.without_arena, most)
        if rss > most:
            wrong.append(f"expected the front within {RSS_BYTES >> 20} MB of "
                         f"{self.first.rss >> 20} MB {GIVEN_BACK_SECONDS:.0f} s after all "
                         f"attacks, got {rss >> 20} MB")
        code = self.daemon.process.poll()
        if code is not None:
            wrong.append(f"expected a daemon that lives, got exit code {code}")
        failed = [a for a in self.good.answers if a.outcome != "ok"]
        if failed:
            wrong.append(f"expected every request to be answered, got {failed[:4]}")
        return wrong

    def without_arena(self, memory):
        """Without what has been touched of the arena, which is never more than its setting."""
        return memory.rss - (memory.shared - self.first.shared)

    def stop(self):
        """The good client first, then SIGTERM, exit code 0."""
        try:
            assert self.good.close(), "the good client did not end"
            self.good = None
            self.daemon.stop()
        finally:
            self.kill()

    def kill(self):
        self.daemon.kill()
        self.memory.close()
        if self.good:
            self.good.close()
            self.good = None
