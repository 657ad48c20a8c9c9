#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cloud_peers - times another library's submanifold 3^3 convolution on saved clouds.

    FLEXGEMM=DIR cloud_peers.py flexgemm FOLDER --channels 32,64 [--layers 8] [--compile]
    cloud_peers.py spconv FOLDER --channels 64

FOLDER has NAME.npy of int32 rows (sample, x, y, z), as `voxeld-tools bench --save FOLDER`
writes them.  Each line of the output is JSON: cloud, channels, n, and medians in
microseconds: map, conv, infer (the map and then L convolutions); fp16, CUDA events.

FLEXGEMM is a working installation (its extension built, its H100 tile list in force); its
convolution is timed in a CUDA graph and tuned for each size first.  --compile only fills
Triton's cache with its kernels, for several processes at once.  spconv is the better of
MaskImplicitGemm and MaskSplitImplicitGemm.  spconv's tuner decides by the first size it
meets: run one process for each number of channels and cloud to be fair to it.
"""

import argparse
import json
import os
import pathlib
import sys

import numpy as np
import torch

RUNS, WARM = 20, 5


def median(work):
    for _ in range(WARM):
        work()
    torch.cuda.synchronize()
    times = []
    for _ in range(RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times)[RUNS // 2]


def median_in_graph(work):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return median(graph.replay)


def load(path):
    """Rows that begin at 0 in each column, on the GPU; and the extent of the axes."""
    rows = np.load(path).astype(np.int32)
    rows -= rows.min(axis=0)
    return torch.from_numpy(rows).cuda().contiguous(), [int(e) + 1 for e in rows.max(axis=0)[1:]]


class FlexGemm:
    def __init__(self, channels):
        sys.path.insert(0, os.environ["FLEXGEMM"])
        import flex_gemm
        from flex_gemm.ops import spconv
        self.function, self.conv = spconv.SubMConv3dFunction, spconv.sparse_submanifold_conv3d
        spconv.set_algorithm(spconv.Algorithm.MASKED_IMPLICIT_GEMM_SPLITK)
        flex_gemm.kernels.triton.spconv.config.allow_tf32 = True
        scale = (27 * channels) ** -0.5
        self.weight = torch.randn(channels, 3, 3, 3, channels, device="cuda").half() * scale
        self.bias = torch.randn(channels, device="cuda").half()
        self.channels = channels

    def map(self, rows, extent):
        shape = torch.Size([1, self.channels, *extent])
        return self.function._compute_neighbor_cache(rows, shape, (3, 3, 3), (1, 1, 1), False)

    def run(self, feats, rows, extent, neighbours):
        shape = torch.Size([1, self.channels, *extent])
        return self.conv(feats, rows, shape, self.weight, self.bias, neighbours)[0]

    def time(self, rows, extent, layers):
        feats = torch.randn(len(rows), self.channels, device="cuda").half()
        neighbours = self.map(rows, extent)

        def infer():
            fresh, at = self.map(rows, extent), feats
            for _ in range(layers):
                at = self.run(at, rows, extent, fresh)

        self.run(feats, rows, extent, neighbours)  # tunes
        return {"map": median(lambda: self.map(rows, extent)),
                "conv": median_in_graph(lambda: self.run(feats, rows, extent, neighbours)),
                "infer": median(infer)}


class SpConv:
    def __init__(self, channels):
        import spconv.pytorch as library
        from spconv.core import ConvAlgo
        self.library, self.channels = library, channels
        self.algorithms = (ConvAlgo.MaskImplicitGemm, ConvAlgo.MaskSplitImplicitGemm)

    def time(self, rows, extent, layers):
        return min((self.time_of(algorithm, rows, extent, layers) for algorithm in self.algorithms),
                   key=lambda found: found["conv"])

    def time_of(self, algorithm, rows, extent, layers):
        feats = torch.randn(len(rows), self.channels, device="cuda").half()
        # Its split algorithm refuses a bias.
        conv = self.library.SubMConv3d(self.channels, self.channels, 3, bias=False,
                                       indice_key="map", algo=algorithm).cuda().half().eval()

        def fresh():
            return self.library.SparseConvTensor(feats, rows, extent, 1)

        def infer():
            at = fresh()
            for _ in range(layers):
                at = conv(at)

        with torch.no_grad():
            known = conv(fresh())
            one = median(lambda: conv(known))
            return {"map": median(lambda: conv(fresh())) - one, "conv": one, "infer": median(infer)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=("flexgemm", "spconv"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--channels", default="64")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--only", help="one cloud's name")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    for channels in map(int, arguments.channels.split(",")):
        peer = (FlexGemm if arguments.peer == "flexgemm" else SpConv)(channels)
        for path in sorted(arguments.folder.glob((arguments.only or "*") + ".npy")):
            rows, extent = load(path)
            if arguments.compile:
                feats = torch.randn(len(rows), channels, device="cuda").half()
                peer.run(feats, rows, extent, peer.map(rows, extent))
                break
            found = peer.time(rows, extent, arguments.layers)
            print(json.dumps({"cloud": path.stem, "channels": channels, "n": len(rows),
                              **{key: round(value, 2) for key, value in found.items()}}),
                  flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
