#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""families - three whole networks on a GPU: right beside spconv's modules, and their times.

    families.py make DIR [--frame shared/data/lidar_125k_zyx.npy]      anywhere, with numpy alone
    families.py run DIR --bin .carry/daemon/bin [--device cuda:0]      voxeld: answers and times
    families.py check DIR [--device cuda:0]                            spconv's answers beside them
    families.py bench DIR [--device cuda:0] [--runs 30]                spconv's times

make    writes MinkUNet34, SECOND's backbone to a bird's-eye view and TRELLIS.2's decoder as FP16
        models with random weights, by clients/export, and a request for each.  Without --frame a
        street of our own and narrower networks, for trying all of it on a CPU
run     asks one request after the other, each on new coordinates, then eight at once; prints the
        median of the answers' own times and the rates; keeps one answer of each network
check   the same networks as modules of spconv, in FP32 with the same FP16 weights; exit code 1 if
        coordinates differ, or numbers by more than FP16's roundings allow
bench   the same modules in FP16, every map built each time, as a user of spconv measures them

What is needed on PYTHONPATH: for run grpcio; for check and bench what spconv_witness.py says, and
safetensors."""
import argparse
import concurrent.futures
import contextlib
import pathlib
import shlex
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "clients" / "python"), str(ROOT / "clients" / "export")]

NETWORKS = {"minkunet34": "logits", "second": "spatial_features", "trellis2_decoder": None}
STEP = 64          # a multiple of every stride: moved coordinates are the same work
AT_ONCE = 8
REGION_BYTES = 512 << 20   # of a client: its requests, and the outputs of one
NMSE_MAX = 1e-4    # of FP16 results of some 60 layers: (60 * 2^-11)^2 / 12 per rounding, and room


# --- make

def frame_of(path):
    """int32 [N, 4] from 0 on, and its shape."""
    voxels = np.load(path).astype(np.int32)
    voxels -= voxels.min(0)
    return np.insert(np.unique(voxels, axis=0), 0, 0, 1).astype(np.int32)


def make(arguments):
    from voxeld_export.families import Random, clouds, family
    rng = np.random.default_rng(1)
    if arguments.frame:
        frame = frame_of(arguments.frame)
    else:
        frame = clouds.street(rng, (40, 128, 128), 2000)
    # Room for moves along the last axis; the height as SECOND has it.
    shape = [max(41, int(frame[:, 1].max()) + 1), *(-(-int(size + 1) // 16) * 16
                                                  for size in frame[:, 2:].max(0))]
    shape[2] += STEP * arguments.moves
    plans = {"minkunet34": (frame, {"planes": (16, 16, 32, 32, 32, 16, 16, 16)}),
             "second": (frame, {}),
             "trellis2_decoder": (clouds.shell(rng, 32 if arguments.frame else 6), {
                 "model_channels": (64, 32, 32, 16, 16), "num_blocks": (1, 1, 1, 1, 0),
                 "rows_max": 1 << 17})}
    for name, (coords, options) in plans.items():
        made = family(name)
        if arguments.frame:
            options.clear()   # the published sizes
        if name == "second":
            options["spatial_shape"] = tuple(shape)
        network, _ = made.network(Random(1), **options)
        folder = arguments.folder / "repository" / name
        network.write(folder, "FP16", **made.more(options))
        feats = rng.normal(size=(len(coords), network.feats.channels)).astype(np.float16)
        np.savez(arguments.folder / f"{name}.npz", coords=coords, feats=feats.astype(np.float32))
        print(f"{name}: {len(coords)} voxels of {network.feats.channels} channels")


def request_of(folder, name, move=0):
    with np.load(folder / f"{name}.npz") as file:
        coords, feats = file["coords"].copy(), file["feats"].astype(np.float16)
    coords[:, 3] += STEP * move
    return coords, feats


# --- run

def asked(client, folder, name, move):
    coords, feats = request_of(folder, name, move)
    begin = time.perf_counter()
    answer = client.infer(name, coords, feats, timing=True)
    return answer, time.perf_counter() - begin


class Asker:
    """A client whose tensors lie in memory that it shares with the server, if it `shares` any: then
    a rate is the server's, and not that of copies of 100 MB in Python."""

    def __init__(self, stack, address, folder, name, shares):
        from voxeld import Client
        self.folder, self.name, self.outputs = folder, name, {}
        self.client = stack.enter_context(Client(address))
        self.region = stack.enter_context(self.client.region(REGION_BYTES)) if shares else None

    def make(self, moves):
        """The requests, and where their outputs go; and asks once, as a server locks the pages of a
        region when it is first used.  All of it before the clock starts."""
        self.requests = [request_of(self.folder, self.name, move) for move in (0, *moves)]
        if self.region:
            self.requests = [tuple(self.region.put(array) for array in request)
                             for request in self.requests]
            with np.load(self.folder / f"{self.name}.answer.npz") as file:
                self.outputs = {key: self.region.array(file[key].shape, file[key].dtype)
                                for key in file}
        self.ask(self.requests.pop(0))
        return self

    def ask(self, request):
        options = {"outputs_in": self.outputs} if self.outputs else {}
        answer = self.client.infer(self.name, *request, timing=True, **options)
        return answer.parameters["batch_size"]

    def run(self):
        """The largest batch of its requests, one after the other."""
        return max(map(self.ask, self.requests))


def rate(address, arguments, name, moves, clients):
    """Requests a second of so many clients together, all on new coordinates; the largest batch."""
    moves = list(moves)
    with contextlib.ExitStack() as stack:
        askers = [Asker(stack, address, arguments.folder, name, arguments.shared)
                  .make(moves[i::clients]) for i in range(min(clients, len(moves)))]
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            begin = time.perf_counter()
            sizes = list(pool.map(Asker.run, askers))
            return len(moves) / (time.perf_counter() - begin), max(sizes)


def run(arguments):
    import spconv_witness as witness
    from voxeld import Client
    folder, half = arguments.folder, arguments.moves // 2
    with witness.daemon(arguments) as address, Client(address) as client:
        for name in NETWORKS:
            asked(client, folder, name, 0)
            answer, _ = asked(client, folder, name, 0)
            np.savez(folder / f"{name}.answer.npz", **{key: answer[key] for key in answer})
            times = [asked(client, folder, name, 1 + move) for move in range(half)]
            shown = {}
            for part in ("geometry_ns", "compute_ns", "total_ns"):
                shown[part] = np.median([a.parameters[part] for a, _ in times]) / 1e6
            both = shown["geometry_ns"] + shown["compute_ns"]
            seen = np.median([seconds for _, seconds in times]) * 1e3
            print(f"{name:18} geometry {shown['geometry_ns']:8.3f} layers "
                  f"{shown['compute_ns']:8.3f} together {both:8.3f} ms; in the server "
                  f"{shown['total_ns']:8.3f}, seen {seen:8.3f} ms; "
                  f"voxels of all sets {times[0][0].parameters['set_voxels']}", flush=True)
            one, _ = rate(address, arguments, name, range(half + 1, half + 1 + half // 2), 1)
            many, largest = rate(address, arguments, name,
                                 range(half + 1 + half // 2, arguments.moves), AT_ONCE)
            print(f"{name:18} one at a time {one:.1f} a second, {AT_ONCE} at once {many:.1f}: "
                  f"{many / one:.2f} x (largest batch {largest})", flush=True)
    return 0


# --- spconv

def interpreters(arguments, dtype, algo):
    from spconv_interpreter import Interpreter
    for name, output in NETWORKS.items():
        if output:
            folder = arguments.folder / "repository" / name
            network = Interpreter(folder, dtype, arguments.device, algo)
            layer = next(one["layer"] for one in network.document["outputs"]
                         if one["name"] == output)
            yield name, output, network, layer


def check(arguments):
    import torch
    wrong = 0
    for name, output, network, layer in interpreters(arguments, torch.float32, "Native"):
        coords, feats = request_of(arguments.folder, name)
        result = network.run(network.example(coords, feats.astype(np.float32)), [layer])[layer]
        with np.load(arguments.folder / f"{name}.answer.npz") as file:
            ours = file[output].astype(np.float64)
        theirs = (result if isinstance(result, torch.Tensor) else result.features)
        theirs = theirs.double().cpu().numpy()
        if theirs.shape != ours.shape:
            print(f"{name}: {ours.shape}, spconv {theirs.shape}  WRONG")
            wrong += 1
            continue
        nmse = np.square(ours - theirs).sum() / np.square(theirs).sum()
        worst = np.abs(ours - theirs).max() / np.abs(theirs).max()
        bad = not nmse <= NMSE_MAX
        print(f"{name}: {ours.shape}, NMSE {nmse:.2e}, worst {worst:.2e} of the largest"
              f"{'  WRONG' if bad else ''}", flush=True)
        wrong += bad
    return 1 if wrong else 0


def bench(arguments):
    import torch
    for algo in ("MaskImplicitGemm", "Native"):
        for name, _, network, layer in interpreters(arguments, torch.float16, algo):
            times = []
            for turn in range(-5, arguments.runs):
                coords, feats = request_of(arguments.folder, name, max(turn, 0) % arguments.moves)
                x = network.example(coords, feats)
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize()
                begin.record()
                network.run(x, [layer])
                end.record()
                torch.cuda.synchronize()
                times += [begin.elapsed_time(end)] if turn >= 0 else []
            low, middle, high = np.percentile(times, (10, 50, 90))
            print(f"spconv {algo:18} {name:18} {middle:8.3f} {low:8.3f} {high:8.3f} ms (median, "
                  f"p10, p90 of {arguments.runs})", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "run", "check", "bench"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--frame", type=pathlib.Path)
    parser.add_argument("--moves", type=int, default=48, help="different coordinates (48)")
    parser.add_argument("--bin", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--shared", action="store_true",
                        help="run: rates through shared memory; needs --flags '--client-shm local'")
    parser.add_argument("--flags", type=shlex.split, default=[],
                        help="more flags of voxeld serve, in one word")
    arguments = parser.parse_args()
    if arguments.what == "run" and not arguments.bin:
        parser.error("run needs --bin, the folder of voxeld")
    return {"make": make, "run": run, "check": check, "bench": bench}[arguments.what](arguments)


if __name__ == "__main__":
    sys.exit(main())
