"""The proof of an export: the model directory is served, and its answers are compared.

SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import warnings

import numpy as np

from . import fp8
from .errors import CheckFailed, ExportError
from .folder import highest_version, read_document, versions_of

BOUND = 1e-5  # of f32 sums in another order, over the largest element of the output
READY_SECONDS = 600  # a load of a large model; the limit only ends what hangs


class Difference:
    """How far an output is from its source.

    rows    of the output; of a dense output, of all its elements but the channels
    worst   largest absolute difference
    scale   largest absolute element of the source
    nmse    sum of squared differences over the sum of squares of the source
    where   index of the worst element in the source's array
    wrong   of labels: how many differ
    """

    def __init__(self, name, ours, source):
        self.name, self.shape, self.wrong = name, source.shape, None
        difference = np.abs(ours.astype(np.float64) - source.astype(np.float64))
        difference[~(np.isfinite(ours) & np.isfinite(source)) & (ours != source)] = np.inf
        self.worst = float(difference.max()) if difference.size else 0.0
        self.scale = float(np.abs(source[np.isfinite(source)]).max(initial=0.0))
        squares = float(np.square(source, dtype=np.float64).sum())
        self.nmse = (
            float(np.square(difference).sum()) / squares if squares else float(difference.any())
        )
        self.where = (
            tuple(int(i) for i in np.unravel_index(difference.argmax(), difference.shape))
            if difference.size
            else ()
        )
        if source.dtype.kind in "iu":
            self.wrong = int((ours != source).sum())

    def relative(self):
        """The worst element over the largest of the source."""
        if self.wrong is not None:
            return float(self.wrong > 0)
        return self.worst / self.scale if self.scale else (float("inf") if self.worst else 0.0)

    def line(self):
        shape = "x".join(str(size) for size in self.shape)
        if self.wrong is not None:
            return f"{self.name:<24} {shape:>18}  {self.wrong} labels differ"
        return (
            f"{self.name:<24} {shape:>18} {self.scale:12.4g} {self.worst:12.3g} "
            f"{self.relative():12.3g} {self.nmse:12.3g}"
        )


class Report:
    """The Differences of all outputs; str() is a table.

    version, others  what was proven of a model, and its versions that were not
    """

    def __init__(self, differences, bound, version=1, others=()):
        self.differences = differences
        self.bound = bound
        self.version, self.others = version, others

    def failed(self):
        return [d for d in self.differences if not d.relative() <= self.bound]

    def __str__(self):
        names = ("largest", "worst diff", "relative", "NMSE")
        head = f"{'output':<24} {'shape':>18} " + " ".join(f"{name:>12}" for name in names)
        return "\n".join([head, *(d.line() for d in self.differences), *self._about()])

    def _about(self):
        if not self.others:
            return
        highest = self.version > max(self.others)
        got = ", which requests get that name no version" if highest else ""
        yield (
            f"proven: version {self.version}{got}; "
            f"not proven (--version N): {', '.join(map(str, self.others))}"
        )


def check_folder(folder, example, *others, voxeld=None, bound=None, version=None):
    """Serves a model directory on the CPU and compares its answers with an Example's.

    others   further Examples of the same source, with other features: what the source computes of
             the example in Python is a constant of the network, and shows only there
    version  which is served; None = the highest, which clients get who name none

    Raises ExportError if the directory cannot be served, CheckFailed if an answer differs by more
    than `bound` (BOUND).  Returns a Report of `example`.
    """
    bound = BOUND if bound is None else bound
    examples, folder = [example, *others], os.path.abspath(folder)
    for one in examples:
        one.expect_numbers()
    version, rest = _version_of(folder, version)
    answers = _answers(folder, version, examples, program_of(voxeld))
    reports = [
        Report(_compare(one, answer), bound, version, rest)
        for one, answer in zip(examples, answers)
    ]
    for index, report in enumerate(reports):
        if report.failed():
            names = ", ".join(d.name for d in report.failed())
            where = (
                " for other features than the example's: it has a number of the example, which "
                "the forward pass computes in Python (item(), .data), as a constant"
            )
            which = f"version {version} of " if rest else ""
            raise CheckFailed(
                f"{which}the exported network answers other numbers than its source in {names}"
                f"{where if index else ''} (allowed: {bound:g} of the largest element)\n{report}",
                report,
                other=index > 0,
            )
    return reports[0]


def _version_of(folder, version):
    """(the version to prove, the others)."""
    highest, versions = highest_version(folder), versions_of(folder)
    if version is None:
        version = highest
    if version not in versions:
        raise ExportError(
            f"{folder} has no version {version}; expected one of {', '.join(map(str, versions))}"
        )
    return version, [number for number in versions if number != version]


def _compare(example, answer):
    """The Differences of an answer."""
    differences = []
    for name, (source, coords) in example.outputs.items():
        own = "coords" in answer.output_parameters.get(name, {})
        at, ours = example.coords, answer[name]
        if own:
            at, ours, _stride = answer.sparse(name)
        if coords is not None:
            source = _same_rows(name, source, coords, at)
        elif own:
            raise ExportError(
                f"the output {name} has rows of {len(at)} voxels of its own; expected at.{name}, "
                "the source's coordinates of its rows"
            )
        if ours.size == source.size:
            ours = ours.reshape(source.shape)  # flat axes, [N] and [N, 1]
        if ours.shape != source.shape:
            raise ExportError(
                f"the output {name} has shape {ours.shape}; its source has {source.shape}"
            )
        differences.append(Difference(name, ours, source))
        said = ""
        if not source.size:
            said = "has no rows, and nothing but that is proven of it"
        elif not differences[-1].scale and differences[-1].wrong is None:
            said = (
                f"is 0 in all its {source.size} elements, whatever most layers do: this proves "
                "little"
            )
        if said:
            warnings.warn(
                f"the output {name} {said}; try other weights, or an example with more voxels",
                stacklevel=3,
            )
    return differences


def _same_rows(name, source, coords, at):
    """The source's rows in the order of the answer's."""
    theirs, ours = np.lexsort(coords.T[::-1]), np.lexsort(at.T[::-1])
    if len(coords) != len(at) or (coords[theirs] != at[ours]).any():
        raise ExportError(
            f"the output {name} has other voxels than its source: {len(at)}, and "
            f"{len(coords)} in the source"
        )
    rows = np.empty_like(source)
    rows[ours] = source[theirs]
    return rows


def program_of(voxeld):
    """The path of the server."""
    wanted = voxeld or os.environ.get("VOXELD") or "voxeld"
    found = shutil.which(wanted)
    if not found:
        raise ExportError(
            f"no program {wanted}, which the proof runs: give its path (voxeld=, --voxeld, the "
            "environment's VOXELD), or leave the proof out (check=False)"
        )
    return found


def _answers(folder, version, examples, program):
    """What the server answers to each Example, by a version of the model."""
    checked = subprocess.run(
        [program, "check", folder], capture_output=True, text=True, check=False
    )
    if checked.returncode:
        said = checked.stderr.strip() or checked.stdout.strip()
        # The folder is a temporary one, which goes with the error.
        raise ExportError(f"voxeld check refuses the network:\n{said.replace(folder + '/', '')}")
    document = read_document(folder)
    names = [output.get("name", output["layer"]) for output in document["outputs"]]
    examples[0].expect_outputs(names)
    try:
        from voxeld import Client, VoxeldError
    except ImportError as error:
        raise ExportError(
            "the proof needs the Python client: pip install ./clients/python"
        ) from error
    with tempfile.TemporaryDirectory(prefix="voxeld-export-") as work:
        served = os.path.join(work, "repository", "exported")
        os.makedirs(served)
        os.symlink(os.path.join(folder, str(version)), os.path.join(served, "1"))
        with open(os.path.join(served, "network.json"), "w", encoding="utf-8") as file:
            # One request is no reason to warm up, and FP8 has a check of its own, just run.
            json.dump({**fp8.plain(document), "warmup": []}, file)
        with _server(work, program), Client(f"unix:{work}/socket") as client:
            try:
                return [client.infer("exported", one.coords, one.feats) for one in examples]
            except VoxeldError as error:
                raise ExportError(f"the server refuses the example: {error}") from error


@contextlib.contextmanager
def _server(work, program):
    """The server on a Unix socket; it ends with the block."""
    ready, log = os.path.join(work, "ready"), os.path.join(work, "log")
    words = [program, "serve", "--repository", os.path.join(work, "repository"), "--device", "cpu"]
    words += ["--grpc", f"unix:{work}/socket", "--http", "127.0.0.1:0", "--ready-file", ready]
    # The cache for the largest sets that the rules allow; little is touched.
    words += ["--grace-ms", "0", "--cache-bytes", "8G"]
    started = []

    def start():
        with open(log, "wb") as file:
            none = subprocess.DEVNULL
            started.append(subprocess.Popen(words, stdin=none, stdout=file, stderr=file))

    # A signal could end this thread's Popen between the child's birth and its name, and nobody
    # would end the child: Python runs handlers in the main thread alone.
    thread = threading.Thread(target=start)
    try:
        thread.start()
        thread.join()
        until = time.monotonic() + READY_SECONDS
        while not os.path.exists(ready):
            if not started or started[0].poll() is not None or time.monotonic() > until:
                with open(log, encoding="utf-8", errors="replace") as file:
                    last = "".join(file.readlines()[-5:])
                raise ExportError(f"the server did not become ready; its last lines:\n{last}")
            time.sleep(0.02)
        yield
    finally:
        if thread.ident:
            thread.join()
        for process in started:
            process.send_signal(signal.SIGTERM)
            process.wait()
