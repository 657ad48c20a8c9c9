# SPDX-License-Identifier: Apache-2.0
"""The blocking client."""
import grpc

from . import geometry, messages, places
from .errors import FailedPrecondition, Unimplemented, from_rpc_error
from .region import Region

# What stock clients set; the server has its own limit and says so.
CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", 2147483647),
    ("grpc.max_receive_message_length", 2147483647),
    # A connection of its own: regions belong to the connection.
    ("grpc.use_local_subchannel_pool", 1),
    # As the C library: pauses between attempts grow from 100 ms to 1 s, where those of gRPC grow to
    # two minutes, in which a server that came up is not found; one attempt may take 20 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 20000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Client:
    """A connection to one server.  Threads may share it.

    address      "host:port", "[ipv6]:port" or "unix:path"; ValueError for what is none
    credentials  grpc.ChannelCredentials for TLS; None = plain text
    """

    def __init__(self, address="127.0.0.1:8001", credentials=None):
        options = CHANNEL_OPTIONS
        messages.check_address(address)
        self._channel = (grpc.secure_channel(address, credentials, options) if credentials
                         else grpc.insecure_channel(address, options))
        self._methods = {}
        self._regions = []
        self._names = geometry.Names()
        self._places = places.Places()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Ends the connection; calls in flight are cancelled."""
        self._channel.close()

    def _call(self, method, request, timeout, metadata=None):
        call = self._methods.get(method)
        if call is None:
            call = self._methods[method] = self._channel.unary_unary(messages.SERVICE + method)
        try:
            return call(request, timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    def infer(self, model, coords, feats, *, timeout=None, metadata=None, **options):
        """Runs one grid through a model.

        coords   int array [N, 4]: the sample (0..511), then three axes (-131072..131071), in the
                 order that the network was trained with (spconv's [b, z, y, x] goes as it is);
                 or [N, 3]: three axes, all of sample 0.  Each voxel once.  None with coords_ref
        feats    float32 or float16 array [N, C]; with bf16=True float32 is sent as bfloat16
        timeout  seconds until DeadlineExceeded; None = no limit
        metadata extra gRPC headers, e.g. (("traceparent", ...),)

        coords_ref="" asks for a name of the coords, which comes as answer.coords_ref; later
        requests send coords_ref=NAME and coords=None.  FailedPrecondition says that the server has
        forgotten the name; with resend=True the coords given beside it are sent then, and named.
        They are also sent when the name is not theirs (other rows, or another order), or was
        learnt by another client, whose coords this one has not seen: the answer is of the coords.

        Arrays of a region of this client (see region) are named in the request and not sent, if
        they have the type that goes over the wire. outputs_in={name: array} takes such arrays for
        outputs: they are written there, and are all that comes unless `outputs` names more.  Such
        an array has the output's dtype (bfloat16: any of 2 bytes) and its shape, or more rows; the
        model is asked once what its outputs are.

        Options: version (1 or more; default the highest), id, outputs (names; default all),
        priority (1 highest), timing (stage times in the answer's parameters), queue_timeout_us,
        bf16, parameters (dict), input_names.

        Returns an Answer: a mapping from output name to array [N, C], rows in the order of coords.
        The arrays are read-only; bfloat16 comes as float32.
        Raises ValueError for arrays that cannot be sent, TypeError for an option it does not know,
        VoxeldError for what the server refuses and for an answer that is damaged or contradicts
        the request: another model or id, a missing output, other rows than were sent.
        """
        coords, options, again = messages.split_geometry(coords, options, self._names)
        request = messages.pack_infer(model, coords, feats, options, self._regions)
        if self._places.doubtful(model, feats, options):
            self._ask_outputs(model, feats, options, timeout)
        try:
            data = self._call("ModelInfer", request, timeout, metadata)
        except FailedPrecondition:
            if again is None:
                raise
            coords, options["coords_ref"] = again, ""
            request = messages.pack_infer(model, coords, feats, options, self._regions)
            data = self._call("ModelInfer", request, timeout, metadata)
        answer = messages.read_infer(data, messages.wanted(model, feats, options))
        self._names.learn(answer.coords_ref, coords)
        return answer

    def _ask_outputs(self, model, feats, options, timeout):
        try:
            info = self.model_metadata(model, options.get("version"), timeout)
        except Unimplemented:
            return
        self._places.settle(model, feats, options, info)

    def region(self, nbytes):
        """Shared memory, for a server on this host that allows it (client_shm).

            with client.region(1 << 24) as region:
                coords, feats = region.put(coords), region.put(feats)
                normals = region.array((len(coords), 3), np.float32)
                client.infer("normals", coords, feats, outputs_in={"normals": normals})

        It belongs to the connection: when that is lost (NotFound), make another.
        """
        return Region(self, nbytes)

    def server_live(self, timeout=10):
        """True when the server answers at all."""
        return messages.read_bool(self._call("ServerLive", b"", timeout))

    def server_ready(self, timeout=10):
        """True when every model is loaded and warm and a device is up."""
        return messages.read_bool(self._call("ServerReady", b"", timeout))

    def model_ready(self, model, version="", timeout=10):
        """True when this model serves; NotFound when there is none of that name."""
        request = messages.pack_name(model, version)
        return messages.read_bool(self._call("ModelReady", request, timeout))

    def server_metadata(self, timeout=10):
        """{"name", "version", "extensions"}."""
        return messages.read_server(self._call("ServerMetadata", b"", timeout))

    def model_metadata(self, model, version="", timeout=10):
        """ModelInfo: versions, inputs, outputs."""
        request = messages.pack_name(model, version)
        return messages.read_model(self._call("ModelMetadata", request, timeout))

    def statistics(self, model="", version="", timeout=10):
        """One dict per model version (all models when `model` is empty)."""
        request = messages.pack_name(model, version)
        return messages.read_statistics(self._call("ModelStatistics", request, timeout))
