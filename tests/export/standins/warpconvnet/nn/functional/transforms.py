# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: functions on the features of Voxels."""

import torch
from warpconvnet.geometry.types.voxels import Voxels


def apply_feature_transform(input, transform):
    if isinstance(input, Voxels):
        return input.replace_features(transform(input.feature_tensor))
    return transform(input)


def cat(*inputs, dim=-1):
    features = torch.cat([one.feature_tensor for one in inputs], dim=dim)
    return inputs[0].replace_features(features)
