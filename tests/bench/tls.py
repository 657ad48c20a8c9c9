#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What TLS costs: requests of a megabyte with and without it, in turns, in one run.

    tests/bench/tls.py --bin build/release/bin
    tests/bench/tls.py --bin bin --repository repository --model normals --device cuda:0 \\
        --clients 4 --concurrency 4

Two daemons serve a model on the same device, one with TLS, one without; only one of them has work
at a time.  Each round measures both; the table has the median of the rounds.  Without --model the
network is one linear layer, which costs next to nothing: then what is sent is all that counts.
Needs the program openssl, or --certificates DIR with ca.pem, server.pem and server.key.  Exit code
1 when a request failed; no number is judged.
"""
import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BYTES_PER_VOXEL = 20  # coords of 16 bytes, and one feature
START_SECONDS = 300   # deadline: of a start, which may compile kernels


def certificates(folder):
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=bench")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-extfile", "names", "-out", "server.pem")
    return folder


def write_light(repository):
    """A model of one layer: 3 channels out of 1."""
    network = {"format": 1, "inputs": {"feats": {"channels": 1}},
               "layers": [{"name": "head", "op": "linear", "input": "feats", "channels": 3,
                           "bias": False}],
               "outputs": [{"name": "out", "layer": "head"}]}
    head = json.dumps({"head.weight": {"dtype": "F32", "shape": [3, 1],
                                       "data_offsets": [0, 12]}}).encode()
    (repository / "light" / "1").mkdir(parents=True)
    (repository / "light" / "network.json").write_text(json.dumps(network))
    (repository / "light" / "1" / "weights.safetensors").write_bytes(
        struct.pack("<Q", len(head)) + head + struct.pack("<3f", 1, 2, 3))
    return repository


def serve(args, work, name, flags):
    """A daemon, and the address of its gRPC port."""
    ready, log = work / f"{name}.ready", open(work / f"{name}.log", "wb")
    one = subprocess.Popen(
        [args.bin / "voxeld", "serve", "--repository", args.repository, "--device", args.device,
         "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", ready, *flags,
         *args.flags], stdout=log, stderr=log)
    end = time.monotonic() + START_SECONDS
    while not ready.exists():
        if one.poll() is not None or time.monotonic() > end:
            one.kill()
            sys.exit(f"the daemon did not start:\n{(work / f'{name}.log').read_text()}")
        time.sleep(0.05)  # sleep: between two checks
    words = ready.read_text().split()
    return one, words[0].removeprefix("grpc="), words[1].removeprefix("http=")


def processor_seconds(http):
    """That the front, which speaks TLS, has used so far."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=START_SECONDS) as page:
        for line in page.read().decode().splitlines():
            if line.startswith("process_cpu_seconds_total "):
                return float(line.split()[1])
    sys.exit("the daemon has no process_cpu_seconds_total")


def load(args, address, http, flags):
    """Requests a second of all clients together, their median latency in ms, and what the front
    used of a processor for each, in ms."""
    before = processor_seconds(http)
    command = [args.bin / "voxel", "bench", "--server", address, "--model", args.model, "--json",
               "--voxels", str(args.bytes // BYTES_PER_VOXEL), "--concurrency",
               str(args.concurrency), "--duration", str(args.seconds), "--warmup", "3", *flags]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
               for _ in range(args.clients)]
    outs = [json.loads(one.communicate()[0].splitlines()[-1]) for one in clients]
    if any(one.returncode for one in clients):
        sys.exit(f"requests failed: {outs}")
    return (sum(out["requests_per_s"] for out in outs),
            statistics.median(out["p50_us"] for out in outs) / 1000,
            1000 * (processor_seconds(http) - before) / sum(out["answered"] for out in outs))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--repository", type=pathlib.Path, default=ROOT / "deploy/demo/repository")
    parser.add_argument("--model", default="light")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--certificates", type=pathlib.Path)
    parser.add_argument("--bytes", type=int, default=1 << 20, help="of a request")
    parser.add_argument("--clients", type=int, default=1, help="processes")
    parser.add_argument("--concurrency", type=int, default=2, help="requests under way, of each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("flags", nargs="*", help="more flags of the daemons, behind --")
    return parser.parse_args()


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        keys = args.certificates or certificates(work)
        if args.model == "light":
            args.repository = write_light(work)
        kinds = {"plain": ((), ()),
                 "TLS": (("--tls-cert", keys / "server.pem", "--tls-key", keys / "server.key"),
                         ("--tls-ca", keys / "ca.pem"))}
        daemons, found = {}, {kind: [] for kind in kinds}
        try:
            for kind, (flags, _) in kinds.items():
                daemons[kind] = serve(args, work, kind, flags)
            for _ in range(args.rounds):
                for kind, (_, flags) in kinds.items():
                    _, grpc, http = daemons[kind]
                    found[kind].append(load(args, grpc, http, flags))
        finally:
            for one, *_ in daemons.values():
                one.terminate()
            for one, *_ in daemons.values():
                one.wait()
    for kind in kinds:
        rate, latency, used = (statistics.median(values) for values in zip(*found[kind]))
        print(f"{kind:6} {rate:9.1f} requests/s {latency:8.2f} ms {used:8.3f} ms of the front"
              "   rounds: " + " ".join(f"{one[0]:.1f}" for one in found[kind]))
    ratios = [tls[0] / plain[0] for tls, plain in zip(found["TLS"], found["plain"])]
    print(f"TLS costs {100 * (1 - statistics.median(ratios)):.1f} % of the throughput at "
          f"{args.bytes} bytes")


if __name__ == "__main__":
    main()
