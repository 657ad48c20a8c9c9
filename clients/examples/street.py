#!/usr/bin/env python3
"""A street, segmented: every voxel of a laser scan gets a class.

A MinkUNet18 with random weights makes features of scanned streets whose classes are known; ridge
regression fits its last layer, and nothing else, to those.  The network is exported with its proof,
served by voxeld, and asked about a street that it has not seen.

    python3 clients/examples/street.py -o pictures

SPDX-License-Identifier: Apache-2.0
"""

import json
import pathlib
import tempfile
import time

import numpy as np
import pictures
import scans
from ridge import Ridge, balanced
from serving import export, milliseconds, program, random_tensors, record, serve

FAMILY = "minkunet18"
OPTIONS = {
    "channels_in": 8,
    "stem": 48,
    "planes": (48, 64, 64, 64, 64, 64, 64, 384),  # the last is wide: the head reads it
    "layers": (1,) * 8,
    "classes": len(scans.CLASSES),
}
READ = "block8.0.relu"  # the layer that the head reads
VOXEL = (0.2, 0.2, 0.2)  # metres
CORNER = (-scans.HALF, -scans.HALF, scans.LOW)
COLOURS = np.array(
    [[176, 172, 164], [206, 122, 84], [58, 110, 190], [96, 158, 74], [222, 178, 52]], np.float64
)
PROOF_VOXELS = 1500  # of the scan: the definition in numpy takes seconds for them


def main():
    options = scans.arguments(__doc__)
    program()
    print(__doc__.split("\n\n")[1], end="\n\n")
    began = time.time()
    print(f"scanning {options.scans} streets and one more", flush=True)
    *known, unseen = (scanned(options.seed + i, options.rays) for i in range(options.scans + 1))
    with tempfile.TemporaryDirectory(prefix="voxeld-street-") as work:
        repository = pathlib.Path(work)
        tensors = random_tensors(FAMILY, OPTIONS, options.seed)
        fit_head(tensors, known, repository / "street")
        coords, feats, truth = unseen
        print("exporting the network; its proof:", flush=True)
        some = np.argsort(np.abs(coords[:, 1:3] - 96).max(1))[:PROOF_VOXELS]
        proof = coords[some], feats[some]
        print(export(FAMILY, OPTIONS, tensors, repository / "street", proof, add_labels))
        with serve(repository) as client:
            answer = client.infer("street", coords, feats, timing=True)
            labels = answer["labels"][:, 0].copy()
    report(coords, labels, truth, answer, options)
    print(f"all of it took {time.time() - began:.0f} s")


def scanned(seed, rays):
    """(coords, feats, class of each voxel) of one street."""
    rng = np.random.default_rng([seed, 17])
    points, labels = scans.scan(scans.Street(rng), rays, rng)
    voxels, row = scans.voxelise(points, VOXEL, CORNER)
    height = scans.mean_of(points, row, len(voxels))[:, 2]
    coords = np.insert(voxels, 0, 0, axis=1).astype(np.int32)
    return coords, scans.height_features(height), scans.majority(labels, row, len(voxels))


def fit_head(tensors, known, folder):
    """Ridge regression from the features of the network to the classes, one and zero."""
    fit = Ridge(OPTIONS["planes"][-1], OPTIONS["classes"])
    for coords, feats, truth in known:
        (found,), _ = record(FAMILY, OPTIONS, tensors, folder, (coords, feats), [READ])
        weights = balanced(truth, OPTIONS["classes"]) ** 0.5
        fit.add(found, np.eye(OPTIONS["classes"])[truth], weights)
    tensors["final.kernel"], bias = fit.solve(1e-5)
    tensors["final.bias"] = bias[None]
    print(f"fitted {tensors['final.kernel'].size + bias.size} weights to {fit.weight:.0f} voxels")


def add_labels(network):
    """The class with the largest logit, as an output of its own."""
    logits = network.values["final"]
    network.output(network.add("argmax", [logits], "labels", kind="labels"), "labels")


def report(coords, labels, truth, answer, options):
    print(f"\n{len(coords)} voxels of the unseen street; {milliseconds(answer)}\n")
    print(f"{'class':<18}{'voxels':>8}{'right':>8}{'IoU':>8}")
    ious = []
    for number, name in enumerate(scans.CLASSES):
        ours, true = labels == number, truth == number
        ious.append((ours & true).sum() / max(1, (ours | true).sum()))
        right = (ours & true).sum() / max(1, true.sum())
        print(f"{name:<18}{true.sum():>8}{right:>8.1%}{ious[-1]:>8.3f}")
    accuracy, most = (labels == truth).mean(), np.bincount(truth).max() / len(truth)
    print(f"{'all':<18}{len(truth):>8}{accuracy:>8.1%}{np.mean(ious):>8.3f}")
    print(f"{'always the largest':<26}{most:>8.1%}{most / len(ious):>8.3f}\n")
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    panels = [
        pictures.draw(*pictures.cubes(coords[:, 1:], COLOURS[which]), (520, 330), -65, 38)
        for which in (truth, labels)
    ]
    pictures.write_png(folder / "street.png", pictures.beside(panels))
    numbers = {"accuracy": accuracy, "majority": most, "miou": np.mean(ious)}
    (folder / "street.json").write_text(json.dumps({k: float(v) for k, v in numbers.items()}))
    print(f"picture: {folder / 'street.png'}: what is true, and what voxeld answered")


if __name__ == "__main__":
    main()
