"""Pictures of voxels and maps, with numpy and zlib alone.

    panel = draw(*cubes(voxels, colours), size=(520, 420))
    write_png("street.png", beside([panel, other]))

`voxel infer --render` draws one answer, with shadows and a sky.  Here pictures stand side by side,
what was answered and what is true, and each colour is chosen by the story.

SPDX-License-Identifier: Apache-2.0
"""

import struct
import zlib

import numpy as np

BACKGROUND = (250, 250, 248)
_SAMPLES = 2  # of a pixel along each side
_SUN = np.array([0.35, -0.55, 0.76])  # the direction towards it
_STEPS = 32  # of brightness: few colours make small files


# --- what is drawn: quads [Q, 4, 3] and their colours [Q, 3], 0 to 1 ---


def cubes(voxels, colours):
    """The faces of voxels [N, 3] that are next to empty space; colours [N, 3], 0 to 255."""
    voxels = np.asarray(voxels, np.int64)
    taken = np.sort(_keys(voxels))
    quads, shades = [], []
    for axis in range(3):
        for side in (-1, 1):
            step = np.zeros(3, np.int64)
            step[axis] = side
            rows = np.flatnonzero(~_in(taken, voxels + step))
            u, v = np.eye(3)[[(axis + 1) % 3, (axis + 2) % 3]]
            low = voxels[rows] + np.maximum(step, 0)
            quads.append(low[:, None] + np.stack([0 * u, u, u + v, v])[None])
            light = _light(step[None].astype(float)) * _open(taken, voxels[rows] + step, u, v)
            shades.append(np.asarray(colours)[rows] / 255 * light[:, None])
    return np.concatenate(quads), np.concatenate(shades)


def _light(normal):
    """Of faces with these normals [N, 3]."""
    return 0.42 + 0.58 * np.clip(normal @ _SUN, 0, 1)


def _open(taken, outside, u, v):
    """How much sky a face sees: less, the more of the cells around the one before it are taken."""
    around = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]
    near = [_in(taken, outside + (a * u + b * v).astype(np.int64)) for a, b in around]
    return 1 - 0.055 * np.sum(near, axis=0)


def _keys(voxels):
    return ((voxels[:, 0] + 4096) << 40) + ((voxels[:, 1] + 4096) << 20) + voxels[:, 2] + 4096


def _in(taken, voxels):
    keys = _keys(voxels)
    at = np.minimum(np.searchsorted(taken, keys), len(taken) - 1)
    return taken[at] == keys


# --- how it is drawn ---


def draw(quads, colours, size, azimuth=-55, elevation=35, bounds=None):
    """Pixels uint8 [H, W, 3] of a parallel projection that fills the picture.

    size     (width, height)
    azimuth  of the eye around z, from +x towards +y; elevation above the horizon: degrees
    bounds   points [N, 3] that the picture is fitted to, so that several agree; None: the quads
    """
    width, height = size[0] * _SAMPLES, size[1] * _SAMPLES
    axes = _axes(np.radians(azimuth), np.radians(elevation))
    flat = (quads.reshape(-1, 3) if bounds is None else np.asarray(bounds, float)) @ axes.T
    low, high = flat[:, :2].min(0), flat[:, :2].max(0)
    scale = 0.94 * min(width / (high[0] - low[0]), height / (high[1] - low[1]))
    at = quads @ axes.T
    at[..., :2] = (at[..., :2] - (low + high) / 2) * scale + np.array([width, height]) / 2
    pixels, depth, owner = [], [], []
    edge = np.abs(at[:, 1:, :2] - at[:, :1, :2]).max((1, 2))
    for count in np.unique(np.ceil(edge * 1.3).astype(int)):
        rows = np.flatnonzero(np.ceil(edge * 1.3).astype(int) == count)
        points = _inside(at[rows], max(1, count))
        cell = np.floor(points[..., :2]).astype(np.int64)
        good = ((cell >= 0) & (cell < (width, height))).all(-1)
        pixels.append((cell[..., 1] * width + cell[..., 0])[good])
        depth.append(points[..., 2][good])
        owner.append(np.broadcast_to(rows[:, None], good.shape)[good])
    order = np.argsort(np.concatenate(depth), kind="stable")  # the nearest is written last
    picture = np.full((height * width, 3), np.array(BACKGROUND) / 255)
    shades = np.round(np.asarray(colours) * _STEPS * 4) / (_STEPS * 4)
    picture[np.concatenate(pixels)[order]] = shades[np.concatenate(owner)[order]]
    picture = picture.reshape(size[1], _SAMPLES, size[0], _SAMPLES, 3).mean((1, 3))[::-1]
    return np.clip(np.round(picture * 255), 0, 255).astype(np.uint8)


def _axes(azimuth, elevation):
    """Rows: to the right, up in the picture, towards the eye."""
    across = np.array([-np.sin(azimuth), np.cos(azimuth), 0])
    eye = np.array(
        [
            np.cos(azimuth) * np.cos(elevation),
            np.sin(azimuth) * np.cos(elevation),
            np.sin(elevation),
        ]
    )
    return np.stack([across, np.cross(eye, across), eye])


def _inside(quads, count):
    """count * count points of each quad [Q, 4, 3]: [Q, count^2, 3]."""
    middle = (np.arange(count) + 0.5) / count
    s, t = (grid.reshape(-1, 1) for grid in np.meshgrid(middle, middle))
    weights = np.concatenate([(1 - s) * (1 - t), s * (1 - t), s * t, (1 - s) * t], axis=1)
    return np.einsum("pc,qcd->qpd", weights, quads)


# --- maps and files ---


def heat(values, low, high):
    """A map [H, W] of numbers as pixels: white, amber, dark red."""
    t = np.clip((np.asarray(values, float) - low) / (high - low), 0, 1)[..., None]
    stops = np.array([[250, 250, 248], [246, 190, 80], [196, 52, 40], [70, 12, 40]], float)
    at = np.minimum((t * 3).astype(int), 2)
    mixed = stops[at[..., 0]] * (1 - (t * 3 - at)) + stops[at[..., 0] + 1] * (t * 3 - at)
    return np.round(mixed).astype(np.uint8)


def enlarge(pixels, times):
    """Every pixel as a square of pixels."""
    return np.repeat(np.repeat(pixels, times, axis=0), times, axis=1)


def outline(pixels, inside, colour=(40, 90, 190)):
    """The border of where `inside` [H, W] is true, drawn over pixels."""
    deep = inside.copy()
    for axis in (0, 1):
        for step in (-1, 1):
            deep &= np.roll(inside, step, axis=axis)
    pixels = pixels.copy()
    pixels[inside & ~deep] = colour
    return pixels


def beside(panels, gap=8):
    """Panels of one height, from left to right."""
    strip = np.full((len(panels[0]), gap, 3), BACKGROUND, np.uint8)
    parts = [part for panel in panels for part in (panel, strip)]
    return np.concatenate(parts[:-1], axis=1)


def write_png(path, pixels):
    """Pixels uint8 [H, W, 3] as a PNG; with few colours as one with a palette."""
    height, width = pixels.shape[:2]
    flat = pixels.reshape(-1, 3).astype(np.uint32)
    code = flat[:, 0] << 16 | flat[:, 1] << 8 | flat[:, 2]
    colours, index = np.unique(code, return_inverse=True)
    if len(colours) <= 256:
        rows, kind = index.reshape(height, width).astype(np.uint8), 3
        palette = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], 1).astype(np.uint8)
    else:
        rows, kind, palette = pixels.reshape(height, width * 3), 2, None
    filtered = np.insert(rows, 0, 0, axis=1)  # filter 0 of each row
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head))
        if palette is not None:
            file.write(_chunk(b"PLTE", palette.tobytes()))
        file.write(_chunk(b"IDAT", zlib.compress(filtered.tobytes(), 9)) + _chunk(b"IEND", b""))


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
