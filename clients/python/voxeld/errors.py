# SPDX-License-Identifier: Apache-2.0
"""One exception class for each gRPC status that a server can answer with."""
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
    """The request is wrong; it fails however often it is sent."""


class NotFound(VoxeldError):
    """The model, its version or the region does not exist."""


class AlreadyExists(VoxeldError):
    """The name is taken."""


class ResourceExhausted(VoxeldError):
    """A limit is reached; a smaller or later request may work."""


class FailedPrecondition(VoxeldError):
    """The request is right, but the server's state does not allow it, e.g. a forgotten name."""


class DeadlineExceeded(VoxeldError):
    """The time given with `timeout` has passed."""


class Cancelled(VoxeldError):
    """The call was cancelled."""


class Unavailable(VoxeldError):
    """Not now: no connection, a model that is loading, a full queue, a server that stops.

    Only of load and unload it may be for good: the server has no --model-control explicit.
    """


class Unimplemented(VoxeldError):
    """The protocol has it, but this server does not support it."""


class Internal(VoxeldError):
    """The server failed, or its answer is damaged or contradicts the request."""


class PermissionDenied(VoxeldError):
    """This client, or its token, may not do this; as it is, it never may."""


class Unauthenticated(VoxeldError):
    """The server asks for a token, and none came, or one that it does not know (any more)."""


class DataLoss(VoxeldError):
    """Bytes on the server's disk are damaged."""


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
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
}


# Texts of several versions of gRPC for a server whose first bytes are no HTTP/2.
_OF_HTTP_1 = ("http1.x server", "Expected SETTINGS frame")


# Texts for a connection that ends before the first answer on it.
_OF_A_CLOSED = ("reset by peer", "Socket closed", "Broken pipe", "andshake failed")


def _hint(sentence, answered):
    """What to do about an Unavailable, where gRPC's text tells nobody."""
    if any(words in sentence for words in _OF_HTTP_1):
        return ("; the server there speaks HTTP/1, as voxeld's status page does. gRPC has "
                "another port: by default 8001, see `voxeld serve --grpc`")
    if not answered and "CERTIFICATE_VERIFY_FAILED" not in sentence and any(
            words in sentence for words in _OF_A_CLOSED):
        return ("; perhaps one of the two speaks TLS (tls=Tls(...)) and the other does not, or the "
                "server wants a certificate")
    return ""


def from_rpc_error(error, answered=False):
    """The VoxeldError for a grpc.RpcError.  answered: the client has had an answer before.

    A gRPC server that stops cancels the calls that are on their way to it, with gRPC's own text.
    The text of a call that this side cancelled is another one, so the first become Unavailable."""
    code, sentence = error.code(), error.details() or ""
    if code == grpc.StatusCode.CANCELLED and (sentence == "CANCELLED"
                                              or sentence.startswith("Received RST_STREAM")):
        code, sentence = grpc.StatusCode.UNAVAILABLE, (
            "the server ended the call without an answer; it is probably stopping")
    if code == grpc.StatusCode.UNAVAILABLE:
        sentence += _hint(sentence, answered)
    return _CLASSES.get(code, VoxeldError)(code, sentence)
