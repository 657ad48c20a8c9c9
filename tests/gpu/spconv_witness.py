#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""spconv_witness - spconv's own modules beside voxeld's answers on a GPU, and its benchmark's time.

    spconv_witness.py make DIR [--frame FILE.npy|.ply [--voxel 0.1]]
    spconv_witness.py run DIR --bin .carry/daemon/bin [--device cuda:0]
    spconv_witness.py check DIR [--device cuda:0]
    spconv_witness.py bench DIR [--bin .carry/daemon/bin] [--device cuda:0] [--runs 50]

make    models and clouds, anywhere with numpy.  --frame adds a scan; bench needs one
run     starts voxeld, asks for every output with `voxel infer`, keeps the answers in DIR/answers
check   builds the same modules of spconv, and compares; exit code 1 if anything differs
bench   spconv's benchmark in fp16 on the frame; with --bin, voxeld's time of the same network

check and bench need torch with CUDA, numpy, and on PYTHONPATH, unpacked into one folder:

    spconv-cu126 2.3.8, cumm-cu126 0.7.11, pccm 0.4.16, ccimport 0.4.4, lark, portalocker, pybind11,
    ninja                 wheels of PyPI; spconv and cumm for cp312

The wheels' metadata names more: fire, sympy and requests, which `import spconv.pytorch` does not
import.  Nothing is compiled on import.  The wheels bring CUDA's runtime and NVRTC 12.6, which
compiles kernels for a GPU that they do not know.

Without a GPU, `run` and `check` with --device cpu and --algos Native try the FP32 half: spconv's
own code for CPUs, which has no bias (it is added here), no mean and no global pools.

A step of a chain is compared by itself: spconv computes it from what voxeld answered for the step
before, so that errors do not add up.  Coordinates must be equal as sets; how far numbers may be
apart is derived in bound_of().
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import spconv_networks as nets  # noqa: E402

READY_SECONDS = 600   # deadline: a daemon compiles its kernels first
LAMBDA = 8   # standard deviations that no difference exceeds


# --- make

def make(arguments):
    folder = arguments.folder
    clouds = {"random": nets.random_cloud(), "surface": nets.surface_cloud()}
    if arguments.frame:
        clouds["frame"] = nets.frame_cloud(arguments.frame, arguments.voxel)
    (folder / "clouds").mkdir(parents=True)
    facts = {}
    for seed, (name, (coords, shape)) in enumerate(clouds.items()):
        feats = nets.halves(np.random.default_rng(seed).normal(size=(len(coords), nets.CHANNELS)))
        np.savez(folder / "clouds" / f"{name}.npz", coords=coords, feats=feats)
        facts[name] = {"shape": list(shape), "rows": len(coords)}
        for seed, (network, steps) in enumerate(nets.networks().items()):
            weights = nets.make_weights(steps, seed)
            for precision in nets.PRECISIONS:
                nets.write_model(folder / "repository" / f"{network}.{name}.{precision}",
                                 nets.document(steps, shape, len(coords), precision), weights)
    if arguments.frame:
        make_bench(folder, *clouds["frame"])
    (folder / "clouds.json").write_text(json.dumps(facts))
    print(f"{folder}: {len(list((folder / 'repository').iterdir()))} models, "
          f"{', '.join(f'{name} of {fact}' for name, fact in facts.items())}")


def make_bench(folder, coords, shape):
    first = coords[coords[:, 0] == 0]
    weights = {name: value.astype(np.float16)
               for name, value in nets.make_weights(nets.bench_steps(), 9, bias=False).items()}
    nets.write_model(folder / "bench", nets.bench_document(shape, len(first)), weights)
    np.save(folder / "bench.npy", first)


# --- run

@contextlib.contextmanager
def daemon(arguments):
    """voxeld with all models; its address."""
    folder, ready = arguments.folder, arguments.folder / "ready"
    ready.unlink(missing_ok=True)
    with open(folder / "voxeld.log", "wb") as log:
        process = subprocess.Popen(
            [arguments.bin / "voxeld", "serve", "--repository", folder / "repository", "--device",
             arguments.device, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grace-ms", "0",
             "--ready-file", ready, *arguments.flags], stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, env=environment(arguments))
    try:
        end = time.monotonic() + READY_SECONDS
        while not ready.exists() or not ready.read_text().endswith("\n"):
            text = (folder / "voxeld.log").read_text(errors="replace")
            failed = "MODEL_FAILED" in text or process.poll() is not None
            if failed or time.monotonic() > end:
                sys.exit(f"spconv_witness: voxeld is not ready; its log ends:\n{text[-3000:]}")
            time.sleep(0.1)  # sleep: between two checks
        yield ready.read_text().split()[0].removeprefix("grpc=")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def environment(arguments):
    libraries = arguments.bin.parent / "lib"
    if not libraries.is_dir():
        return os.environ
    old = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{old}" if old else str(libraries)}


def models(folder):
    """(model, network, cloud, precision) of the repository."""
    for path in sorted((folder / "repository").iterdir()):
        yield path.name, *path.name.split(".")


def run(arguments):
    folder, count = arguments.folder, 0
    with daemon(arguments) as address:
        for model, network, cloud, _ in models(folder):
            (folder / "answers" / model).mkdir(parents=True, exist_ok=True)
            for step in nets.networks()[network]:
                subprocess.run(
                    [arguments.bin / "voxel", "infer", "--quiet", "--server", address, "--model",
                     model, "--output", step.name, folder / "clouds" / f"{cloud}.npz", "-o",
                     folder / "answers" / model / f"{step.name}.npz"],
                    check=True, env=environment(arguments))
                count += 1
    print(f"{folder}/answers: {count} outputs")


# --- check

def in_order(coords, *arrays):
    """Rows ascending by (b, z, y, x)."""
    order = np.lexsort(coords.T[::-1])
    return coords[order], *(array[order] for array in arrays)


def is_wide(step):
    """More offsets than a mask of spconv 2.3.8 has: its masked algorithms answer zeros there."""
    return math.prod(step.k) > 32


class Chain:
    """A network of spconv's modules, run a step at a time on rows in canonical order."""

    def __init__(self, steps, weights, cloud, algo, dtype, device):
        import torch
        from spconv import pytorch as spconv
        self.torch, self.spconv, self.device, self.dtype = torch, spconv, device, dtype
        self.algos, self.steps, self.biases = spconv.ConvAlgo, steps, {}
        self.modules = [self.module(step, weights, self.algos[algo]) for step in steps]
        coords, feats, shape = cloud
        self.x = spconv.SparseConvTensor(self.tensor(feats), torch.from_numpy(coords).to(device),
                                         shape, int(coords[:, 0].max()) + 1)

    def tensor(self, array):
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device, self.dtype)

    def module(self, step, weights, algo):
        spconv = self.spconv
        if is_wide(step):
            algo = self.algos.Native
        if step.kind == "max":
            return spconv.SparseMaxPool3d(step.k, step.s, step.p, step.d, indice_key=step.name,
                                          algo=algo).eval()
        if step.kind == "avg":
            return spconv.SparseAvgPool3d(step.k, step.s, step.p, step.d,
                                          indice_key=step.name).eval()
        if step.kind in nets.WHOLE:
            return {"gmax": spconv.SparseGlobalMaxPool, "gavg": spconv.SparseGlobalAvgPool,
                    "dense": spconv.ToDense}[step.kind]().eval()
        if step.kind == "subm":
            made = spconv.SubMConv3d(step.ci, step.co, step.k, dilation=step.d,
                                     indice_key=step.name, algo=algo)
        elif step.kind in ("conv", "transposed"):
            kind = spconv.SparseConv3d if step.kind == "conv" else spconv.SparseConvTranspose3d
            made = kind(step.ci, step.co, step.k, step.s, step.p, step.d, indice_key=step.name,
                        algo=algo)
        else:
            made = spconv.SparseInverseConv3d(step.ci, step.co, step.k, indice_key=step.of,
                                              algo=algo)
        bias = self.torch.from_numpy(weights[f"{step.name}.bias"])
        with self.torch.no_grad():
            made.weight.copy_(self.torch.from_numpy(weights[f"{step.name}.weight"]))
            made.bias.copy_(bias)
        if self.device == "cpu":   # whose code refuses one
            made.bias, self.biases[step.name] = None, bias
        return made.to(self.device, self.dtype).eval()

    def step(self, index):
        """(coords, features) of the step's result, in canonical order.  Of a whole sample: its
        number and zeros; of a dense tensor None."""
        with self.torch.no_grad():
            self.x = self.modules[index](self.x)
        if self.steps[index].name in self.biases:
            self.x = self.x.replace_feature(self.x.features +
                                            self.biases[self.steps[index].name])
        if isinstance(self.x, self.torch.Tensor):
            whole = self.x.float().cpu().numpy()
            at = np.zeros((len(whole), 4), np.int32)
            at[:, 0] = np.arange(len(whole))
            return (at if whole.ndim == 2 else None), whole
        return in_order(self.x.indices.cpu().numpy(), self.x.features.float().cpu().numpy())

    def go_on_with(self, features):
        """Rows in canonical order replace those that the step gave; behind a whole none come."""
        if isinstance(self.x, self.torch.Tensor):
            return
        order = np.lexsort(self.x.indices.cpu().numpy().T[::-1])
        rows = np.empty_like(features)
        rows[order] = features
        self.x = self.x.replace_feature(self.tensor(rows))


def bound_of(step, precision, sizes, numbers, bias, rows):
    """The largest difference of each number.  sizes: the root of the sum of the squares of what was
    added up (weights have random signs, so partial sums are that large); numbers: the results;
    bias: the largest; rows: of what the step reads.

    A rounding to u of a partial sum p is off by up to u * |p|, u * |p| / sqrt(3) in the root mean
    square; n of them, independent, by LAMBDA * sqrt(n / 3) * u * size.  f32 rounds at each product,
    on both sides.  In FP16 voxeld rounds the result alone; spconv 2.3.8 also picks kernels that sum
    in FP16 (it ignores fp32_accum), 8 products of a tensor core at a time, and rounds before it
    adds the bias.  Its mean is summed in FP16, too.  2^-23: below FP16's normal numbers."""
    if step.kind in ("max", "gmax", "dense"):   # in FP16 rounded on the way to spconv
        return np.abs(numbers) * (2.0 ** -11 if precision == "fp16" else 0)
    if step.kind == "gavg":   # each addition may be off by an ulp of all that there is
        return rows * 2.0 ** -24 * sizes + (2.0 ** -10 * (np.abs(numbers) + 2.0 ** -13)
                                            if precision == "fp16" else 0)
    count = math.prod(step.k) * (step.ci if step.kind != "avg" else 1) + 1
    f32 = 2 * LAMBDA * math.sqrt(count / 3) * 2.0 ** -24 * sizes
    if precision == "fp32":
        return f32
    if step.kind == "avg":   # no random signs: the worst case
        return f32 + (count + 2) * 2.0 ** -11 * sizes + 2.0 ** -23
    sums = LAMBDA * math.sqrt((count / 8 + 1) / 3) * 2.0 ** -11 * sizes
    return f32 + sums + 2.0 ** -11 * (3 * np.abs(numbers) + bias) + 2.0 ** -23


def load_answer(path, name, cloud):
    with np.load(path) as file:
        if file[name].ndim > 2:
            return None, file[name].astype(np.float32)
        coords = file["coords"] if "coords" in file else cloud[0]
        return in_order(coords.astype(np.int32), file[name].astype(np.float32))


def compare(arguments, model, steps, cloud, precision, algo):
    """(the worst difference as a share of its bound, its step, rows in all, what is wrong)"""
    import torch
    weights = nets.make_weights(steps, list(nets.networks()).index(model.split(".")[0]))
    coords, feats, shape = cloud
    dtype = torch.float16 if precision == "fp16" else torch.float32
    theirs = Chain(steps, weights, cloud, algo, dtype, arguments.device)
    squares = {name: value ** 2 for name, value in weights.items()}
    sizes = Chain(steps, squares, (coords, feats ** 2, shape), "Native", torch.float32,
                  arguments.device)
    worst, where, rows, before = 0.0, "", 0, len(coords)
    for index, step in enumerate(steps):
        at, ours = load_answer(arguments.folder / "answers" / model / f"{step.name}.npz",
                               step.name, cloud)
        their_at, numbers = theirs.step(index)
        if step.kind == "gavg" and numbers.ndim == 1:   # 2.3.8 takes the mean of the channels, too
            continue
        if (at is None) != (their_at is None):
            return np.inf, step.name, rows, f"rows {ours.shape}, spconv's {numbers.shape}"
        if at is not None and not np.array_equal(at, their_at):
            return np.inf, step.name, rows, differing_sets(at, their_at)
        if ours.shape != numbers.shape:
            return np.inf, step.name, rows, f"{ours.shape}, spconv {numbers.shape}"
        # Native rounds partial sums to FP16.
        if precision == "fp16" and step.kind in nets.WEIGHTED and is_wide(step):
            rows += len(at)
            theirs.go_on_with(ours)
            sizes.go_on_with(ours ** 2)
            continue
        size = np.sqrt(sizes.step(index)[1])
        if step.relu:
            numbers = np.maximum(numbers, 0)
        bias = np.abs(weights.get(f"{step.name}.bias", np.zeros(1))).max()
        off = np.abs(ours - numbers)
        bound = bound_of(step, precision, size, numbers, bias, before)
        share = (off / np.maximum(bound, 1e-30)).max()   # 0 / 0 is no difference
        if not np.isfinite(ours).all() or not share <= 1:
            row = np.unravel_index(np.argmax(off - bound), off.shape)
            voxel = at[row[0]] if at is not None else "place"
            return share, step.name, rows, (f"at {voxel} {row[1:]}: {ours[row]:.7g}, spconv "
                                            f"{numbers[row]:.7g}, bound {bound[row]:.3g}")
        worst, where = max((worst, where), (float(share), step.name))
        before, rows = len(ours), rows + len(ours)
        theirs.go_on_with(ours)
        sizes.go_on_with(ours ** 2)
    return worst, where, rows, ""


def differing_sets(ours, theirs):
    mine, other = ({tuple(row) for row in rows.tolist()} for rows in (ours, theirs))
    return (f"{len(ours)} voxels, spconv {len(theirs)}; ours alone {sorted(mine - other)[:3]}, "
            f"spconv's alone {sorted(other - mine)[:3]}")


def check(arguments):
    """FP16 is judged with one algorithm: the others round partial sums to FP16 in memory, too.
    MaskSplitImplicitGemm of 2.3.8 refuses a bias, and is not judged unless --algos names it."""
    algos = {"fp32": arguments.algos or ["Native", "MaskImplicitGemm"],
             "fp16": arguments.algos or ["MaskImplicitGemm"]}
    facts, wrong, cases = json.loads((arguments.folder / "clouds.json").read_text()), 0, 0
    print(f"{'network':10} {'cloud':8} {'type':5} {'algo':22} {'rows':>9} {'of bound':>8}  worst")
    for model, network, name, precision in models(arguments.folder):
        if precision not in arguments.precisions:
            continue
        with np.load(arguments.folder / "clouds" / f"{name}.npz") as file:
            cloud = file["coords"], file["feats"], facts[name]["shape"]
        lacks = {step.kind for step in nets.networks()[network]} & {"avg", "gmax", "gavg"}
        if arguments.device == "cpu" and lacks:
            print(f"{network:10} {name:8} SKIPPED: spconv has no {', '.join(lacks)} for CPUs")
            continue
        for algo in algos[precision]:
            try:
                share, step, rows, why = compare(arguments, model, nets.networks()[network], cloud,
                                                 precision, algo)
            except (RuntimeError, ValueError, AssertionError) as error:
                share, step, rows, why = np.nan, "", 0, f"spconv raised {error}"[:300]
            print(f"{network:10} {name:8} {precision:5} {algo:22} {rows:9} {share:8.3f}  "
                  f"{step}{'  WRONG: ' + why if why else ''}", flush=True)
            wrong, cases = wrong + bool(why), cases + 1
    print(f"{cases} cases, {wrong} wrong")
    return 1 if wrong or not cases else 0


# --- bench

def bench_network(algo, device):
    """spconv's benchmark, which shares the maps of the two convolutions of a level."""
    import torch
    from spconv import pytorch as spconv
    weights, modules = nets.make_weights(nets.bench_steps(), 9, bias=False), []
    for step in nets.bench_steps():
        if step.kind == "max":
            modules.append(spconv.SparseMaxPool3d(2, 2, algo=algo))
            continue
        modules.append(spconv.SubMConv3d(step.ci, step.co, 3, bias=False, algo=algo,
                                         indice_key=step.name[:-1]))
        with torch.no_grad():
            modules[-1].weight.copy_(torch.from_numpy(weights[f"{step.name}.weight"]))
    return spconv.SparseSequential(*modules).to(device).half().eval()


def bench(arguments):
    import torch
    from spconv import pytorch as spconv
    if not (arguments.folder / "bench.npy").exists():
        sys.exit("spconv_witness: bench needs a frame: make it again with --frame")
    coords = np.load(arguments.folder / "bench.npy")
    # A multiple of the six pools' stride further each time: other coordinates, the same work.
    shift, runs = 64, arguments.runs
    shape = (coords[:, 1:].max(axis=0) + 1 + [0, 0, shift * runs]).tolist()
    there = torch.from_numpy(coords).to(arguments.device)
    feats = torch.randn(len(coords), 3, device=arguments.device).half()
    print(f"{len(coords)} voxels, spconv's benchmark in fp16, every map built each time, "
          f"median, p10 and p90 of {runs} in ms")
    for algo in (spconv.ConvAlgo.MaskImplicitGemm, spconv.ConvAlgo.MaskSplitImplicitGemm,
                 spconv.ConvAlgo.Native):
        network, times = bench_network(algo, arguments.device), []
        for turn in range(-20, runs):   # the first ones let it tune
            moved = there.clone()
            moved[:, 3] += shift * max(turn, 0)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            with torch.no_grad():
                out = network(spconv.SparseConvTensor(feats, moved, shape, 1))
            end.record()
            torch.cuda.synchronize()
            times += [begin.elapsed_time(end)] if turn >= 0 else []
        low, middle, high = np.percentile(times, (10, 50, 90))
        print(f"spconv {algo.name:22} {middle:8.3f} {low:8.3f} {high:8.3f}   "
              f"{len(out.features)} voxels left", flush=True)
    if not arguments.bin:
        return 0
    return subprocess.run(
        [arguments.bin / "voxeld", "bench", "--device", arguments.device, "--list", "network",
         "--model", arguments.folder / "bench", "--cloud", arguments.folder / "bench.npy",
         "--runs", str(runs)], env=environment(arguments)).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "run", "check", "bench"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--frame", type=pathlib.Path)
    parser.add_argument("--voxel", type=float, default=0.1)
    parser.add_argument("--bin", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--precisions", nargs="*", default=nets.PRECISIONS)
    parser.add_argument("--algos", nargs="*", help="of spconv's: Native MaskImplicitGemm ...")
    parser.add_argument("--flags", nargs="*", default=[], help="more flags of voxeld serve")
    arguments = parser.parse_args()
    if arguments.what == "run" and not arguments.bin:
        parser.error("run needs --bin, the folder of voxeld and voxel")
    return {"make": make, "run": run, "check": check, "bench": bench}[arguments.what](arguments)


if __name__ == "__main__":
    sys.exit(main())
