# SPDX-License-Identifier: Apache-2.0
"""Client of voxeld: send voxel grids, get features.

    from voxeld import Client
    with Client("127.0.0.1:8001") as client:
        answer = client.infer("normals", coords, feats)
        normals = answer["normals"]            # float32 [N, 3], rows in the order of coords

`AsyncClient` is the same for asyncio.  Errors are `VoxeldError` and its subclasses, one for each
gRPC status.  Needs grpcio and numpy; registers no protobuf messages, so it lives beside
tritonclient in one process.
"""
from .aio import AsyncClient
from .answers import Answer, ModelInfo, Sparse, Tensor
from .client import Client
from .errors import (
    AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, FailedPrecondition, Internal,
    InvalidArgument, NotFound, PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable,
    Unimplemented, VoxeldError,
)
from .region import AsyncRegion, Region
from .secure import Tls

__all__ = [
    "AlreadyExists", "Answer", "AsyncClient", "AsyncRegion", "Cancelled", "Client", "DataLoss",
    "DeadlineExceeded", "FailedPrecondition", "Internal", "InvalidArgument", "ModelInfo",
    "NotFound", "PermissionDenied", "Region", "ResourceExhausted", "Sparse", "Tensor", "Tls",
    "Unauthenticated", "Unavailable", "Unimplemented", "VoxeldError",
]
