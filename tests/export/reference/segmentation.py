# SPDX-License-Identifier: Apache-2.0
"""MinkUNet, SparseResUNet, SpUNet and SPVCNN in torch, with the names that their sources have.

Each is written from its published definition, of the parts in sparse.py.  `forward` takes a Sparse
and returns the logits, or the features where there is no head, of the request's rows.
"""

import itertools

from torch import nn

from .sparse import (
    Inverse,
    MinkowskiBatchNorm,
    Seq,
    Strided,
    Subm,
    cat,
    devoxelize,
    strided,
    through,
    voxelize,
)


def relu(x):
    return x.like(x.feats.relu())


# --- MinkowskiEngine


class MinkowskiBlock(nn.Module):
    """BasicBlock; `short` makes the shortcut of a block that changes channels."""

    def __init__(self, ci, co, short):
        super().__init__()
        self.conv1 = Subm("minkowski", ci, co)
        self.norm1 = MinkowskiBatchNorm(co)
        self.conv2 = Subm("minkowski", co, co)
        self.norm2 = MinkowskiBatchNorm(co)
        self.downsample = short(ci, co) if ci != co else None

    def forward(self, x):
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(y + (self.downsample(x) if self.downsample else x))


def minkowski_blocks(ci, co, count):
    def short(ci, co):
        return Seq(Subm("minkowski", ci, co, 1), MinkowskiBatchNorm(co))

    return Seq(*(MinkowskiBlock(co if i else ci, co, short) for i in range(count)))


class MinkUNet(nn.Module):
    """MinkUNetBase of the examples, for BasicBlock."""

    def __init__(self, ci, classes, planes, layers, stem=32):
        super().__init__()
        lib = "minkowski"
        self.conv0p1s1, self.bn0 = Subm(lib, ci, stem, 5), MinkowskiBatchNorm(stem)
        self.conv1p1s2, self.bn1 = Strided(lib, stem, stem, 2, 2), MinkowskiBatchNorm(stem)
        self.block1 = minkowski_blocks(stem, planes[0], layers[0])
        p = planes[0]
        self.conv2p2s2, self.bn2 = Strided(lib, p, p, 2, 2), MinkowskiBatchNorm(p)
        self.block2 = minkowski_blocks(p, planes[1], layers[1])
        p = planes[1]
        self.conv3p4s2, self.bn3 = Strided(lib, p, p, 2, 2), MinkowskiBatchNorm(p)
        self.block3 = minkowski_blocks(p, planes[2], layers[2])
        p = planes[2]
        self.conv4p8s2, self.bn4 = Strided(lib, p, p, 2, 2), MinkowskiBatchNorm(p)
        self.block4 = minkowski_blocks(p, planes[3], layers[3])
        p, q = planes[3], planes[4]
        self.convtr4p16s2, self.bntr4 = Inverse(lib, p, q, 2), MinkowskiBatchNorm(q)
        self.block5 = minkowski_blocks(q + planes[2], q, layers[4])
        p, q = planes[4], planes[5]
        self.convtr5p8s2, self.bntr5 = Inverse(lib, p, q, 2), MinkowskiBatchNorm(q)
        self.block6 = minkowski_blocks(q + planes[1], q, layers[5])
        p, q = planes[5], planes[6]
        self.convtr6p4s2, self.bntr6 = Inverse(lib, p, q, 2), MinkowskiBatchNorm(q)
        self.block7 = minkowski_blocks(q + planes[0], q, layers[6])
        p, q = planes[6], planes[7]
        self.convtr7p2s2, self.bntr7 = Inverse(lib, p, q, 2), MinkowskiBatchNorm(q)
        self.block8 = minkowski_blocks(q + stem, q, layers[7])
        self.final = Subm(lib, q, classes, 1, bias=True)

    def forward(self, x):
        p1 = relu(self.bn0(self.conv0p1s1(x)))
        p2 = self.block1(relu(self.bn1(self.conv1p1s2(p1))))
        p4 = self.block2(relu(self.bn2(self.conv2p2s2(p2))))
        p8 = self.block3(relu(self.bn3(self.conv3p4s2(p4))))
        y = self.block4(relu(self.bn4(self.conv4p8s2(p8))))
        y = self.block5(cat(relu(self.bntr4(self.convtr4p16s2(y))), p8))
        y = self.block6(cat(relu(self.bntr5(self.convtr5p8s2(y))), p4))
        y = self.block7(cat(relu(self.bntr6(self.convtr6p4s2(y))), p2))
        y = self.block8(cat(relu(self.bntr7(self.convtr7p2s2(y))), p1))
        return self.final(y).feats


# --- TorchSparse


def conv_block(conv, ci, co, *how):
    """Convolution, norm, relu: 0, 1, 2 of a sequence."""
    return Seq(conv("torchsparse", ci, co, *how), nn.BatchNorm1d(co), nn.ReLU())


class Net(nn.Module):
    """What spvnas and mmdetection3d call a block of one convolution: its sequence is `net`."""

    def __init__(self, *how):
        super().__init__()
        self.net = conv_block(*how)

    def forward(self, x):
        return self.net(x)


class TorchSparseBlock(nn.Module):
    """Two convolutions around a shortcut; the sources differ in what they call the parts."""

    def __init__(self, ci, co, main, short):
        super().__init__()
        lib = "torchsparse"
        self.main_name, self.short_name = main, short
        layers = [Subm(lib, ci, co), nn.BatchNorm1d(co), nn.ReLU(), Subm(lib, co, co)]
        setattr(self, main, Seq(*layers, nn.BatchNorm1d(co)))
        narrow = nn.Identity() if ci == co else Seq(Subm(lib, ci, co, 1), nn.BatchNorm1d(co))
        setattr(self, short, narrow)

    def forward(self, x):
        return relu(getattr(self, self.main_name)(x) + getattr(self, self.short_name)(x))


def residual(ci, co, count=2, names=("net", "downsample")):
    return [TorchSparseBlock(co if i else ci, co, *names) for i in range(count)]


class SparseResUNet(nn.Module):
    """torchsparse.backbones: the features at the finest resolution, the last of its results."""

    def __init__(self, ci, planes, stem=32):
        super().__init__()
        c = [stem, *planes]
        names = ("main", "shortcut")
        self.stem = Seq(*conv_block(Subm, ci, stem, 3), *conv_block(Subm, stem, stem, 3))
        self.encoders = nn.ModuleList(
            Seq(conv_block(Strided, c[k], c[k], 2, 2), *residual(c[k], c[k + 1], 2, names))
            for k in range(4)
        )
        self.decoders = nn.ModuleList(
            nn.ModuleDict(
                {
                    "upsample": conv_block(Inverse, c[k + 4], c[k + 5], 2),
                    "fuse": Seq(*residual(c[k + 5] + c[3 - k], c[k + 5], 2, names)),
                }
            )
            for k in range(4)
        )

    def forward(self, x):
        return self.nested(self.stem(x), list(self.encoders), list(self.decoders)).feats

    def nested(self, x, encoders, decoders):
        """The first encoder and the last decoder around all between them."""
        if not encoders:
            return x
        y = self.nested(encoders[0](x), encoders[1:], decoders[:-1])
        return decoders[-1]["fuse"](cat(decoders[-1]["upsample"](y), x))


class SpvnasUNet(nn.Module):
    """MinkUNet of spvnas, and what its SPVCNN has of it."""

    def __init__(self, ci, classes, planes, layers, stem=32):
        super().__init__()
        c = [stem, *planes]
        self.stem = Seq(*conv_block(Subm, ci, stem, 3), *conv_block(Subm, stem, stem, 3))
        for k in range(4):
            blocks = residual(c[k], c[k + 1], layers[k])
            setattr(self, f"stage{k + 1}", Seq(Net(Strided, c[k], c[k], 2, 2), *blocks))
            blocks = Seq(*residual(c[k + 5] + c[3 - k], c[k + 5], layers[k + 4]))
            up = Net(Inverse, c[k + 4], c[k + 5], 2)
            setattr(self, f"up{k + 1}", nn.ModuleList([up, blocks]))
        self.classifier = nn.Sequential(nn.Linear(c[8], classes))

    def forward(self, x):
        x0 = self.stem(x)
        x1 = self.stage1(x0)
        x2 = self.stage2(x1)
        x3 = self.stage3(x2)
        y = self.rise(self.up1, self.stage4(x3), x3)
        y = self.rise(self.up2, y, x2)
        y = self.rise(self.up3, y, x1)
        return self.classifier(self.rise(self.up4, y, x0).feats)

    @staticmethod
    def rise(up, x, skip):
        return up[1](cat(up[0](x), skip))


def point_transforms(stem, planes):
    widths = (stem, planes[3], planes[5], planes[7])
    return nn.ModuleList(
        nn.Sequential(nn.Linear(ci, co), nn.BatchNorm1d(co), nn.ReLU())
        for ci, co in itertools.pairwise(widths)
    )


class SPVCNN(SpvnasUNet):
    """SPVCNN of spvnas; step: of a voxel, in steps of the points (its vres / pres)."""

    def __init__(self, ci, classes, planes, layers, stem=32, step=1):
        super().__init__(ci, classes, planes, layers, stem)
        self.point_transforms = point_transforms(stem, planes)
        self.step = step

    def forward(self, z):
        points = z.sites
        sites, _ = strided(points, self.step, self.step)
        x0 = self.stem(voxelize(z, sites))
        z0 = devoxelize(x0, points)
        x1 = self.stage1(voxelize(z0, x0.sites))
        x2 = self.stage2(x1)
        x3 = self.stage3(x2)
        x4 = self.stage4(x3)
        z1 = devoxelize(x4, points) + through(self.point_transforms[0], z0)
        y = self.rise(self.up1, voxelize(z1, x4.sites), x3)
        y = self.rise(self.up2, y, x2)
        z2 = devoxelize(y, points) + through(self.point_transforms[1], z1)
        y = self.rise(self.up3, voxelize(z2, y.sites), x1)
        y = self.rise(self.up4, y, x0)
        z3 = devoxelize(y, points) + through(self.point_transforms[2], z2)
        return self.classifier(z3.feats)


# --- mmdetection3d


class MinkowskiNet(nn.Module):
    """MinkowskiConvModule."""

    def __init__(self, conv, ci, co, *how, active=True):
        super().__init__()
        self.net = Seq(conv("minkowski", ci, co, *how), MinkowskiBatchNorm(co))
        if active:
            self.net.append(nn.ReLU())

    def forward(self, x):
        return self.net(x)


def mmdet_minkowski(ci, co, count):
    def short(ci, co):
        return MinkowskiNet(Subm, ci, co, 1, active=False)

    return [MinkowskiBlock(co if i else ci, co, short) for i in range(count)]


class MmdetBackbone(nn.Module):
    """MinkUNetBackbone: with torchsparse's modules, or MinkowskiEngine's."""

    def __init__(self, net, blocks, ci, planes, layers, stem):
        super().__init__()
        c = [stem, *planes]
        self.conv_input = Seq(net(Subm, ci, stem, 3), net(Subm, stem, stem, 3))
        self.encoder = nn.ModuleList()
        self.decoder = nn.ModuleList()
        for i in range(4):
            down = net(Strided, c[i], c[i], 2, 2)
            self.encoder.append(Seq(down, *blocks(c[i], c[i + 1], layers[i])))
            up = net(Inverse, c[i + 4], c[i + 5], 2)
            fused = blocks(c[i + 5] + c[3 - i], c[i + 5], layers[i + 4])
            self.decoder.append(nn.ModuleList([up, Seq(*fused)]))

    def forward(self, x):
        laterals = [self.conv_input(x)]
        for encoder in self.encoder:
            laterals.append(encoder(laterals[-1]))
        x = laterals.pop()
        for up, fuse in self.decoder:
            x = fuse(cat(up(x), laterals.pop()))
        return x.feats


class MmdetPoints(MmdetBackbone):
    """SPVCNNBackbone: the skip of the stem comes from its points."""

    def __init__(self, net, blocks, ci, planes, layers, stem):
        super().__init__(net, blocks, ci, planes, layers, stem)
        self.point_transforms = point_transforms(stem, planes)

    def forward(self, x):
        request = x.sites
        x = self.conv_input(x)
        points = devoxelize(x, request)
        laterals = [voxelize(points, x.sites)]
        for encoder in self.encoder:
            laterals.append(encoder(laterals[-1]))
        x = laterals.pop()
        points = devoxelize(x, request) + through(self.point_transforms[0], points)
        x = voxelize(points, x.sites)
        for i, (up, fuse) in enumerate(self.decoder):
            x = fuse(cat(up(x), laterals.pop()))
            if i == 1:
                points = devoxelize(x, request) + through(self.point_transforms[1], points)
                x = voxelize(points, x.sites)
        points = devoxelize(x, request) + through(self.point_transforms[2], points)
        return points.feats


class Mmdet(nn.Module):
    """A segmentor: backbone and decode_head."""

    def __init__(self, ci, classes, planes, layers, stem=32, points=False, minkowski=False):
        super().__init__()
        kind = MmdetPoints if points else MmdetBackbone
        net, blocks = (MinkowskiNet, mmdet_minkowski) if minkowski else (Net, residual)
        self.backbone = kind(net, blocks, ci, planes, layers, stem)
        self.decode_head = nn.Module()
        self.decode_head.conv_seg = nn.Linear(planes[7], classes)

    def forward(self, x):
        return self.decode_head.conv_seg(self.backbone(x))


# --- Pointcept


def norm(channels):
    return nn.BatchNorm1d(channels, eps=1e-3)


class SpUNetBlock(nn.Module):
    def __init__(self, ci, co):
        super().__init__()
        same = ci == co
        self.proj = Seq(nn.Identity()) if same else Seq(Subm("spconv", ci, co, 1), norm(co))
        self.conv1, self.bn1 = Subm("spconv", ci, co), norm(co)
        self.conv2, self.bn2 = Subm("spconv", co, co), norm(co)

    def forward(self, x):
        y = relu(through(self.bn1, self.conv1(x)))
        return relu(through(self.bn2, self.conv2(y)) + self.proj(x))


class SpUNet(nn.Module):
    """SpUNet-v1m1; the request's sites have a shape with room behind the last voxel."""

    def __init__(self, ci, classes, planes, layers, stem=32):
        super().__init__()
        lib, self.stages, last = "spconv", len(planes) // 2, len(planes) - 1
        self.conv_input = Seq(Subm(lib, ci, stem, 5), norm(stem), nn.ReLU())
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        self.enc, self.dec = nn.ModuleList(), nn.ModuleList()
        fine, out = stem, planes[-1]
        for s in range(self.stages):
            p = planes[s]
            self.down.append(Seq(Strided(lib, fine, p, 2, 2), norm(p), nn.ReLU()))
            self.enc.append(self.blocks(p, p, layers[s]))
            self.up.append(Seq(Inverse(lib, planes[last - s - 1], out, 2), norm(out), nn.ReLU()))
            self.dec.append(self.blocks(out + fine, out, layers[last - s]))
            fine, out = p, planes[last - s - 1]
        self.final = Subm(lib, planes[-1], classes, 1, bias=True) if classes else nn.Identity()

    @staticmethod
    def blocks(ci, co, count):
        sequence = Seq()
        for i in range(count):
            sequence.add_module(f"block{i}", SpUNetBlock(co if i else ci, co))
        return sequence

    def forward(self, x):
        x = self.conv_input(x)
        skips = [x]
        for down, enc in zip(self.down, self.enc):
            x = enc(down(x))
            skips.append(x)
        skips.pop()
        for up, dec in zip(reversed(self.up), reversed(self.dec)):
            x = dec(cat(up(x), skips.pop()))
        return self.final(x).feats
