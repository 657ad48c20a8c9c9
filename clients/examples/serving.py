"""What every story does with voxeld: export a network, serve it, ask it, look inside it.

    print(export("minkunet18", options, tensors, repository / "street", example))
    with serve(repository) as client:
        answer = client.infer("street", coords, feats, timing=True)

The tree's own Python packages are used, so nothing of the tree need be installed.  The program is
the environment's VOXELD, or the one in PATH, or what deploy/quickstart built.

SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "clients" / "python"), str(ROOT / "clients" / "export")]

try:
    from voxeld import Client
    from voxeld_export.definition import evaluate
    from voxeld_export.families import Checkpoint, Random, family
    from voxeld_export.publish import publish
except ImportError as error:
    sys.exit(f"{error}: pip install ./clients/python ./clients/export has what the examples need")

READY_SECONDS = 300  # the limit only ends what hangs


def program():
    """The path of voxeld."""
    asked, built = os.environ.get("VOXELD"), ROOT / "build" / "release" / "bin" / "voxeld"
    found = shutil.which(asked or "voxeld")
    if not found and not asked and built.is_file():
        found = str(built)
    if not found:
        sys.exit(
            f"no voxeld: expected {asked or 'it in PATH, or build/release/bin/voxeld'}; set VOXELD "
            "to its path, or build it with deploy/quickstart"
        )
    return found


def random_tensors(name, options, seed):
    """{name in the checkpoint: array} of a family's network with random weights."""
    network, _ = family(name).network(Random(seed), **options)
    return dict(network.tensors)


def export(name, options, tensors, folder, example, outputs=None):
    """Writes a family's network with these tensors as a model directory; returns the proof.

    example  (coords, feats) that the proof sends to voxeld and to the definition in numpy
    outputs  called with the Network: adds outputs that the family does not have
    """
    chosen = family(name)
    network, _ = chosen.network(Checkpoint(tensors), **options)
    if outputs:
        outputs(network)
    return publish(
        network,
        lambda folder: evaluate(folder, *example),
        str(folder),
        datatype="FP32",
        layers=lambda folder: evaluate(folder, *example, layers="all")[1],
        voxeld=program(),
        more=chosen.more(options),
        replace=True,  # the recording that the weights were fitted to lies there
    )


@contextlib.contextmanager
def serve(repository):
    """A voxeld that serves a repository on the loopback, on the CPU; a Client of it."""
    work = pathlib.Path(repository)
    ready, log = work / ".ready", work / ".log"
    ready.unlink(missing_ok=True)
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [program(), "serve", "--repository", str(repository), "--device", "cpu"]
            + ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", str(ready)]
            + ["--grace-ms", "0", "--cache-bytes", "4G"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        with Client(_address(process, ready, log)) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def _address(process, ready, log):
    until = time.monotonic() + READY_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > until:
            sys.exit("voxeld did not become ready:\n" + log.read_text(errors="replace")[-2000:])
        time.sleep(0.02)
    words = dict(word.split("=", 1) for word in ready.read_text().split())
    return words["grpc"]


def record(name, options, tensors, folder, request, layers):
    """What layers of a family's network answer: ([array of each], the voxels of the first).

    The network is cut off behind these layers, written into `folder` and run by `voxeld record`.
    """
    folder, (coords, feats) = pathlib.Path(folder), request
    network, _ = family(name).network(Checkpoint(tensors), **options)
    network.outputs = []
    for layer in layers:
        network.output(network.values[layer], layer)
    network.write(str(folder))
    request, result = folder / "request.npz", folder / "recording.npz"
    np.savez(request, coords=coords, feats=feats)
    command = [program(), "record", str(folder), "--example", str(request), "-o", str(result)]
    command += ["--outputs-only", "--cache-bytes", str(4 << 30)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"voxeld record failed:\n{done.stderr}")
    with np.load(result) as file:
        at = file[f"at.{layers[0]}"] if f"at.{layers[0]}" in file else coords
        return [file[f"out.{layer}"] for layer in layers], at


def milliseconds(answer):
    """Times of an answer that was asked for with timing=True, in words."""
    parts = (("geometry_ns", "neighbour maps"), ("compute_ns", "layers"), ("total_ns", "in all"))
    return ", ".join(f"{text} {answer.parameters[key] / 1e6:.0f} ms" for key, text in parts)
