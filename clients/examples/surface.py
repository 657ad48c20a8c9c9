#!/usr/bin/env python3
"""A latent, decoded to a surface: a coarse grid becomes a fine one, level by level.

Each latent voxel holds 27 distances to the surface, as an encoder could give them.  A TRELLIS.2
decoder predicts which of a voxel's 8 children the surface passes through, again and again, and at
the end where in its voxel the surface is.  Its weights are random, but for the linear layers and
convolutions that decoder_fit.py fits to random blobs.  The dog is no blob.

    python3 clients/examples/surface.py -o pictures

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import pathlib
import tempfile
import time

import numpy as np
import pictures
import solids
from decoder_fit import FAMILY, MARGIN, POINTS, Lessons, fit_decoder
from serving import export, milliseconds, program, serve

CHANNELS = 64  # of every level
LESSON_LATENTS = 12  # voxels along an axis of the blobs' latents
PROOF_LATENTS = 5
RIGHT, WRONG, LATENT, TRUE = (96, 158, 150), (206, 92, 70), (206, 186, 130), (150, 150, 156)


def main():
    options = arguments()
    program()
    print(__doc__.split("\n\n")[1], end="\n\n")
    began = time.time()
    sizes = {
        "channels_in": POINTS,
        "model_channels": (CHANNELS,) * (options.doublings + 1),
        "num_blocks": (1,) * (options.doublings + 1),
        "voxel_margin": MARGIN,
        "rows_max": 1 << 20,
    }
    print(f"fitting layers to {options.blobs} blobs", flush=True)
    seeds = [[options.seed, number] for number in range(options.blobs)]
    blobs = [solids.blob(np.random.default_rng(seed)) for seed in seeds]
    with tempfile.TemporaryDirectory(prefix="voxeld-surface-") as work:
        repository = pathlib.Path(work)
        lessons = Lessons(blobs, LESSON_LATENTS, options.doublings)
        tensors = fit_decoder(repository / "surface", lessons, sizes, options.seed)
        print("exporting the network; its proof:", flush=True)
        proof = latents_of(solids.dog(), PROOF_LATENTS, options.doublings)[:2]
        print(export(FAMILY, sizes, tensors, repository / "surface", proof, level_outputs))
        coords, feats, true = latents_of(solids.dog(), options.latents, options.doublings)
        with serve(repository) as client:
            answer = client.infer("surface", coords, feats, timing=True)
    names = [f"level{number}" for number in range(1, options.doublings)] + ["vertices"]
    levels = [coords] + [answer.sparse(name)[0] for name in names]
    vertices = answer["vertices"]
    print(f"\n{len(coords)} latents of the dog; {milliseconds(answer)}\n")
    report(levels, true, vertices, options)
    print(f"all of it took {time.time() - began:.0f} s")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", default="pictures", metavar="FOLDER", help="(pictures)")
    parser.add_argument("--latents", type=int, default=16, help="voxels along an axis (16)")
    parser.add_argument("--doublings", type=int, default=3, help="of the resolution (3)")
    parser.add_argument("--blobs", type=int, default=20, help="shapes to fit on (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the blobs and the weights (1)")
    return parser.parse_args()


def latents_of(f, latents, doublings):
    """(coords, feats) of a shape, and the true voxels [N, 4] of every level."""
    levels = solids.occupied(f, latents, doublings)
    true = [np.insert(voxels, 0, 0, axis=1).astype(np.int32) for voxels in levels]
    feats = solids.distances(f, true[0][:, 1:], solids.voxel_size(latents))
    return true[0], feats, true


def level_outputs(network):
    """The logits of every level but the last have its voxels: as outputs, to draw them."""
    for layer in network.layers:
        if layer["name"].endswith(".1.to_subdiv") and layer["name"] != "blocks.0.1.to_subdiv":
            network.output(network.values[layer["name"]], f"level{layer['name'].split('.')[1]}")


def report(levels, true, vertices, options):
    print(f"{'level':<12}{'voxels':>8}{'true':>8}{'IoU':>8}{'all children':>14}")
    good, everything = None, len(levels[0])
    for number, (ours, wanted) in enumerate(zip(levels, true, strict=True)):
        good = solids.rows_of(wanted, ours) >= 0
        iou, blind = good.sum() / (len(ours) + len(wanted) - good.sum()), len(wanted) / everything
        name = f"{options.latents << number}^3"
        print(f"{name:<12}{len(ours):>8}{len(wanted):>8}{iou:>8.3f}{blind:>14.3f}")
        everything *= 8
    f, size = solids.dog(), solids.voxel_size(options.latents << options.doublings)
    ours, middle = (
        np.abs(f((levels[-1][:, 1:] + place) * size - 1)).mean() / size
        for place in (vertices, np.full(3, 0.5))
    )
    print(f"\nfrom the surface, in voxels: vertices {ours:.2f}, middles of voxels {middle:.2f}\n")
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    draw(folder / "surface.png", levels, true, options)
    numbers = {"iou": iou, "all_children": blind, "vertices": ours, "middles": middle}
    (folder / "surface.json").write_text(json.dumps({k: float(v) for k, v in numbers.items()}))
    print(f"picture: {folder / 'surface.png'}: the latents, each level, and what is true")


def draw(path, levels, true, options):
    panels = []
    for number, voxels in enumerate([*levels, true[-1]]):
        level = min(number, options.doublings)
        good = solids.rows_of(true[level], voxels) >= 0
        colours = np.where(good[:, None], RIGHT, WRONG)
        if number in (0, len(levels)):
            colours = np.broadcast_to(TRUE if number else LATENT, colours.shape)
        quads, shades = pictures.cubes(voxels[:, 1:], colours)
        quads = quads / (options.latents << level)
        box = frame(true, options)
        panels.append(pictures.draw(quads, shades, (300, 270), -35, 20, bounds=box))
    pictures.write_png(path, pictures.beside(panels))


def frame(true, options):
    """Corners of the box that holds the latents, as parts of the cube."""
    low, high = true[0][:, 1:].min(0), true[0][:, 1:].max(0) + 1
    corners = np.stack(np.meshgrid(*zip(low, high, strict=True)), -1).reshape(-1, 3)
    return corners / options.latents


if __name__ == "__main__":
    main()
