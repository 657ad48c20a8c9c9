# SPDX-License-Identifier: Apache-2.0
"""One exception class for each gRPC status a server can answer with."""
import grpc


class VoxeldError(Exception):
    """A call that did not succeed.

    code     grpc.StatusCode
    message  the server's sentence: what was expected and what came
    """

    def __init__(self, code, message):
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message


class InvalidArgument(VoxeldError):
    """The request can never work as it is."""


class NotFound(VoxeldError):
    """No such model or version."""


class AlreadyExists(VoxeldError):
    """The name is taken."""


class ResourceExhausted(VoxeldError):
    """A limit is reached; a smaller or later request may work."""


class FailedPrecondition(VoxeldError):
    """Right request, wrong moment."""


class DeadlineExceeded(VoxeldError):
    """The time given with `timeout` has passed."""


class Cancelled(VoxeldError):
    """The request was taken back."""


class Unavailable(VoxeldError):
    """Not now: no connection, a model that is loading, a full queue, a server that stops."""


class Unimplemented(VoxeldError):
    """Known to the protocol, but not served."""


class Internal(VoxeldError):
    """The server failed."""


class DataLoss(VoxeldError):
    """Bytes on the server's disk are not what they should be."""


_CLASSES = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: Internal,
    grpc.StatusCode.DATA_LOSS: DataLoss,
}


# What gRPC says, in its several versions, when the first bytes are no HTTP/2.
_OF_HTTP_1 = ("http1.x server", "Expected SETTINGS frame")


def from_rpc_error(error):
    """The VoxeldError for a grpc.RpcError.

    A server of gRPC that stops cancels calls on their way to it in words of gRPC's own, which are
    not those of a call that this side took back."""
    code, sentence = error.code(), error.details() or ""
    if code == grpc.StatusCode.CANCELLED and (sentence == "CANCELLED"
                                              or sentence.startswith("Received RST_STREAM")):
        code, sentence = grpc.StatusCode.UNAVAILABLE, (
            "the server ended the call without an answer, as one that stops does")
    if code == grpc.StatusCode.UNAVAILABLE and any(words in sentence for words in _OF_HTTP_1):
        sentence += ("; what answers there speaks HTTP/1, as voxeld's status page does: gRPC is at "
                     "another port, 8001 unless `voxeld serve --grpc` says otherwise")
    return _CLASSES.get(code, VoxeldError)(code, sentence)
