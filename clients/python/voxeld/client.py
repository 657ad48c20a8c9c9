# SPDX-License-Identifier: Apache-2.0
"""The blocking client."""
import grpc

from . import columns, geometry, headers, messages, places, secure
from .errors import FailedPrecondition, Unimplemented, from_rpc_error
from .inference import Inference
from .region import Region

# Message lengths as stock clients set them; the server checks its own limit.
CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", 2147483647),
    ("grpc.max_receive_message_length", 2147483647),
    # Two clients must not share a connection, since it owns their regions.
    ("grpc.use_local_subchannel_pool", 1),
    # As in the C library: one attempt to connect may take 20 s, and pauses between attempts grow
    # from 100 ms to 1 s.  gRPC's own grow to two minutes, so that it finds a new server too late.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 20000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Client:
    """A connection to one server.  Threads may share it.

    address      "host:port", "[ipv6]:port" or "unix:path"; ValueError if it cannot be an address
    tls          Tls(ca=..., cert=..., key=..., name=...); None = plain text
    credentials  in place of tls: any grpc.ChannelCredentials
    token        sent with every call as the metadata authorization: Bearer TOKEN; None = none.
                 Without TLS anyone who sees it on the network can use it
    geometry_header  False: infer does not send the header x-voxel-geometry, see geometry.header
    wait_for_ready  True: a call that finds no connection waits for one, until its timeout
                 (DeadlineExceeded); without a timeout as long as that takes.  False: it is
                 Unavailable at once, with what the last attempt to connect met, up to 1 s ago

    The first call connects.  Use it with `with`, or call close().
    """

    def __init__(self, address="127.0.0.1:8001", credentials=None, geometry_header=True,
                 token=None, tls=None, wait_for_ready=False):
        messages.check_address(address)
        self._headers = headers.of_token(token, address, credentials or tls)
        self._channel = secure.channel_of(grpc, address, CHANNEL_OPTIONS, credentials, tls)
        self._waits = bool(wait_for_ready)
        self._methods = {}
        self._regions = []
        self._names = geometry.Names(geometry_header)
        self._places = places.Places()
        self._columns = columns.Check()
        self._closed = False
        self._answered = False

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Ends the connection and cancels the calls in flight."""
        self._closed = True
        self._channel.close()

    def _call(self, method, request, timeout, metadata=None):
        timeout = messages.seconds(timeout)
        if self._closed:
            raise ValueError("this client is closed: a call needs one that is open")
        call = self._methods.get(method)
        if call is None:
            call = self._methods[method] = self._channel.unary_unary(messages.SERVICE + method)
        try:
            data = call(request, timeout=timeout, metadata=self._headers + tuple(metadata or ()),
                        wait_for_ready=self._waits)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._answered) from None
        self._answered = True
        return data

    def infer(self, model, coords, feats, *, timeout=None, metadata=None, **options):
        """Runs one grid through a model.

        coords   int array [N, 4]: the sample (0..511), then three axes (-131072..131071), in the
                 order that the network was trained with (pass spconv's [b, z, y, x] unchanged);
                 or [N, 3]: three axes, all of sample 0.  Each voxel once.  None with coords_ref
        feats    float32 or float16 array [N, C]; with bf16=True float32 is sent as bfloat16
        timeout  more than 0 seconds until DeadlineExceeded; None, or more than three years = no
                 limit
        metadata extra gRPC headers, e.g. {"traceparent": ...}, or such pairs, (("a", ...), ...)

        The arrays are read once, before the request is sent; other threads leave them alone until
        infer returns.  An AsyncClient reads them when its coroutine first runs, and from then on
        they may change.  Arrays in a region may not until the answer has come.

        Coords whose columns seem to be x, y, z and the sample get a warning (UserWarning), once of
        a client: they would be answered, as samples that are lines.

        Names of coords: coords_ref="" asks the server to name the coords; the name comes as
        answer.coords_ref.  Later requests send coords_ref=NAME with coords=None.
        FailedPrecondition says that the server has forgotten the name.  With resend=True pass the
        coords together with the name: the client then sends them, and asks for their name, if the
        server has forgotten it, if it stands for other coords (other rows, or another order), or
        if this client did not get it itself and so cannot know.  The answer always belongs to the
        coords that were passed.

        Shared memory: an array that lies in a region of this client (see region) is named in the
        request and not sent, if it has the type that goes over the wire.  outputs_in={name: array}
        takes such arrays for outputs.  The server writes these outputs there, and sends no others
        unless `outputs` names them.  Such an array must have the output's dtype (bfloat16: any
        dtype of 2 bytes) and its shape, or more rows; the client asks the model once what its
        outputs are.

        Options: version (1 or more; default the highest), id, outputs (names; default all),
        priority (1 is the highest), timing (stage times in the answer's parameters; "layers": also
        what computed each layer),
        queue_timeout_us, bf16, parameters (dict), input_names (of coords and feats),
        spatial_shape (X, Y, Z: in place of the model's, if it has one).

        Returns an Answer: a mapping from output name to array [N, C], rows in the order of coords;
        a dense output is [B, C, X, Y, Z] or [B, C * X, Y, Z], B = 1 + the largest sample.
        The arrays are read-only; bfloat16 comes as float32.  answer.sparse(name) is (coords,
        features, stride) of an output on voxels of its own.
        Raises ValueError for arrays that cannot be sent, TypeError for an unknown option, and a
        VoxeldError if the server refuses the request, or if the answer is damaged or contradicts
        the request: another model, version or id, a missing output, another number of rows.
        """
        one = Inference(model, coords, feats, options, self)
        self._columns.see(one.coords, stacklevel=2)
        metadata = one.metadata(metadata)
        if self._places.doubtful(model, one.feats, one.options):
            self._ask_outputs(model, one, timeout)
        try:
            data = self._call("ModelInfer", one.data, timeout, metadata)
        except FailedPrecondition:
            if not one.send_coords():
                raise
            data = self._call("ModelInfer", one.data, timeout, metadata)
        return one.read(data)

    def _ask_outputs(self, model, one, timeout):
        try:
            info = self.model_metadata(model, one.options.get("version"), timeout)
        except Unimplemented:
            return
        self._places.settle(model, one.feats, one.options, info)

    def region(self, nbytes):
        """A Region: nbytes of shared memory, for a server on this host that allows it (client_shm).

            with client.region(1 << 24) as region:
                coords, feats = region.put(coords), region.put(feats)
                normals = region.array((len(coords), 3), np.float32)
                client.infer("normals", coords, feats, outputs_in={"normals": normals})

        It belongs to the connection: when that is lost (NotFound), make another.  Raises OSError
        when memory is full, VoxeldError when the server refuses.
        """
        return Region(self, nbytes)

    def server_live(self, timeout=10):
        """True when the server answers at all."""
        return messages.read_bool(self._call("ServerLive", b"", timeout))

    def server_ready(self, timeout=10):
        """True when every model is loaded and warm, and a device is up."""
        return messages.read_bool(self._call("ServerReady", b"", timeout))

    def model_ready(self, model, version="", timeout=10):
        """True when this model serves requests; False also if the server does not have it."""
        request = messages.pack_name(model, version)
        return messages.read_bool(self._call("ModelReady", request, timeout))

    def server_metadata(self, timeout=10):
        """A dict: "name", "version", "extensions" of the server."""
        return messages.read_server(self._call("ServerMetadata", b"", timeout))

    def model_metadata(self, model, version="", timeout=10):
        """A ModelInfo: the model's versions, inputs and outputs."""
        request = messages.pack_name(model, version)
        return messages.read_model(self._call("ModelMetadata", request, timeout))

    def load(self, model, timeout=None):
        """Loads a model of the repository, or its changed files; returns when it serves.

        A server with --model-control none or poll refuses (Unavailable, as Triton does), and so may
        its tokens or sockets."""
        self._call("RepositoryModelLoad", messages.pack_repository(model), timeout)

    def unload(self, model, timeout=None):
        """Unloads all versions of a model.  What was admitted before is still answered."""
        self._call("RepositoryModelUnload", messages.pack_repository(model), timeout)

    def statistics(self, model="", version="", timeout=10):
        """A list with one dict per model version: counts, and (count, ns) per stage.

        An empty `model` means all models."""
        request = messages.pack_name(model, version)
        return messages.read_statistics(self._call("ModelStatistics", request, timeout))
