#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""live - TRELLIS.2's C2S blocks on a GPU: live children alone beside all children, bits and times.

    live.py make DIR [--levels 64 128 256 512]         anywhere, with numpy alone
    live.py run DIR --bin .carry/daemon/bin [--device cuda:0] [--runs 15]

make    for each level of the decoder of 1024^3 its convolution to eight children, with random
        weights, as two FP16 models: `live`, and `all`, in which the convolution is an output, too,
        that nobody asks for: then all children are computed.  The voxels are a shell's, the
        children those of a shell twice as fine: the request's features are their logits
run     asks both, in turn; exit code 1 unless all answers have the same bytes; prints the medians
        of the layers' time, and what the convolution executes

Needs grpcio for run."""
import argparse
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "clients" / "python")]
import spconv_networks as nets  # noqa: E402

# By the side of the shell: channels in, channels of a child.
LEVELS = {8: (16, 16), 64: (1024, 512), 128: (512, 256), 256: (256, 128), 512: (128, 64)}
CHILDREN = 8


def shell(side):
    """bool [side] * 3: FlexGEMM's benchmark's."""
    at = np.arange(side, dtype=np.float32) + 0.5 - side / 2
    squares = (at ** 2)[:, None, None] + (at ** 2)[None, :, None] + (at ** 2)[None, None, :]
    return (squares <= (side / 2) ** 2) & (squares >= (side / 2 - 1.25) ** 2)


def request(side):
    """coords [N, 4], and feats [N, 8]: 1 where a child is there, else -1."""
    at = np.argwhere(shell(side)).astype(np.int32)
    fine, feats = shell(2 * side), np.empty((len(at), CHILDREN), np.float16)
    for child in range(CHILDREN):   # x fastest
        x, y, z = (2 * at + [child & 1, child >> 1 & 1, child >> 2]).T
        feats[:, child] = np.where(fine[x, y, z], 1, -1)
    return np.insert(at, 0, 0, axis=1), feats


def make(arguments):
    rng = np.random.default_rng(3)
    for side in arguments.levels:
        ci, child = LEVELS[side]
        coords, feats = request(side)
        children = int((feats > 0).sum())
        tensors = {"a.weight": rng.normal(size=(ci, CHILDREN)), "a.bias": rng.normal(size=ci),
                   "p.weight": rng.normal(size=(CHILDREN * child, 3, 3, 3, ci)) / np.sqrt(13 * ci),
                   "p.bias": rng.normal(size=CHILDREN * child),
                   "n.weight": rng.normal(size=(1, child)) / np.sqrt(child),
                   "n.bias": np.zeros(1)}
        tensors = {name: value.astype(np.float16) for name, value in tensors.items()}
        layers = [{"name": "l", "op": "affine", "input": "feats"},
                  {"name": "a", "op": "linear", "input": "feats", "channels": ci},
                  {"name": "p", "op": "subm_conv", "input": "a", "channels": CHILDREN * child,
                   "kernel": 3, "layout": "flexgemm"},
                  {"name": "c", "op": "channel_to_space", "input": "p", "stride": 2,
                   "occupancy": "l"},
                  {"name": "n", "op": "linear", "input": "c", "channels": 1}]
        for model in ("live", "all"):
            outputs = [{"layer": "n"}, *([{"layer": "p", "datatype": "FP16"}]
                                         if model == "all" else [])]
            nets.write_model(arguments.folder / "repository" / f"{model}{side}", {
                "format": 1, "inputs": {"feats": {"channels": CHILDREN}}, "layers": layers,
                "outputs": outputs, "warmup": [],
                "limits": {"voxels_max": len(coords), "sets": {"c": children}}}, tensors)
        np.savez(arguments.folder / f"{side}.npz", coords=coords, feats=feats)
        flop = 2 * 13 * ci * child   # of a row and child: a shell's voxel has 13 neighbours
        print(f"shell {side}: {len(coords)} voxels of {ci} channels, {children} of "
              f"{CHILDREN * len(coords)} children of {child} ({children / 8 / len(coords):.3f}); "
              f"{8 * len(coords) * flop / 1e12:.2f} or {children * flop / 1e12:.2f} TFLOP")


def run(arguments):
    import spconv_witness as witness
    from voxeld import Client
    wrong = 0
    with witness.daemon(arguments) as address, Client(address) as client:
        for path in sorted(arguments.folder.glob("*.npz"), key=lambda path: int(path.stem)):
            with np.load(path) as file:
                coords, feats = file["coords"], file["feats"]
            times = {"live": [], "all": []}
            for turn in range(-2, arguments.runs):
                answers = {}
                for model, those in times.items():
                    answer = client.infer(f"{model}{path.stem}", coords, feats, timeout=600,
                                          timing=True, outputs=["n", "n_coords"])
                    answers[model] = {key: answer[key].tobytes() for key in answer}
                    those += [answer.parameters["compute_ns"] / 1e6] if turn >= 0 else []
                if answers["live"] != answers["all"]:
                    wrong += 1
                    print(f"shell {path.stem}: other bytes  WRONG")
            live, every = (np.median(times[model]) for model in ("live", "all"))
            print(f"shell {path.stem:4} layers: live {live:8.3f} all {every:8.3f} ms, "
                  f"{every - live:+.3f}, {every / live:.2f} x", flush=True)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "run"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--levels", nargs="*", type=int, default=[64, 128, 256, 512],
                        choices=sorted(LEVELS))
    parser.add_argument("--bin", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--flags", nargs="*", default=[], help="more flags of voxeld serve")
    arguments = parser.parse_args()
    if arguments.what == "run" and not arguments.bin:
        parser.error("run needs --bin, the folder of voxeld")
    return {"make": make, "run": run}[arguments.what](arguments)


if __name__ == "__main__":
    sys.exit(main())
