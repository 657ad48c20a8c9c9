# SPDX-License-Identifier: Apache-2.0
"""The asyncio client: the same methods, awaited."""
import grpc
import grpc.aio

from . import columns, geometry, headers, messages, places, secure
from .client import CHANNEL_OPTIONS
from .errors import FailedPrecondition, Unimplemented, from_rpc_error
from .inference import Inference
from .region import AsyncRegion


class AsyncClient:
    """Client for asyncio; one event loop uses it.  See Client for the arguments."""

    def __init__(self, address="127.0.0.1:8001", credentials=None, geometry_header=True,
                 token=None, tls=None, wait_for_ready=False):
        messages.check_address(address)
        self._headers = headers.of_token(token, address, credentials or tls)
        self._channel = secure.channel_of(grpc.aio, address, CHANNEL_OPTIONS, credentials, tls)
        self._waits = bool(wait_for_ready)
        self._methods = {}
        self._regions = []
        self._names = geometry.Names(geometry_header)
        self._places = places.Places()
        self._columns = columns.Check()
        self._closed = False
        self._answered = False

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        await self.close()

    async def close(self):
        """Ends the connection; calls in flight are cancelled."""
        self._closed = True
        await self._channel.close()

    async def _call(self, method, request, timeout, metadata=None):
        timeout = messages.seconds(timeout)
        if self._closed:
            raise ValueError("this client is closed: a call needs one that is open")
        call = self._methods.get(method)
        if call is None:
            call = self._methods[method] = self._channel.unary_unary(messages.SERVICE + method)
        try:
            data = await call(request, timeout=timeout,
                              metadata=self._headers + tuple(metadata or ()),
                              wait_for_ready=self._waits)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._answered) from None
        self._answered = True
        return data

    async def infer(self, model, coords, feats, *, timeout=None, metadata=None, **options):
        """See Client.infer."""
        one = Inference(model, coords, feats, options, self)
        self._columns.see(one.coords, stacklevel=2)
        metadata = one.metadata(metadata)
        if self._places.doubtful(model, one.feats, one.options):
            await self._ask_outputs(model, one, timeout)
        try:
            data = await self._call("ModelInfer", one.data, timeout, metadata)
        except FailedPrecondition:
            if not one.send_coords():
                raise
            data = await self._call("ModelInfer", one.data, timeout, metadata)
        return one.read(data)

    async def _ask_outputs(self, model, one, timeout):
        try:
            info = await self.model_metadata(model, one.options.get("version"), timeout)
        except Unimplemented:
            return
        self._places.settle(model, one.feats, one.options, info)

    def region(self, nbytes):
        """Client.region, for `async with`."""
        return AsyncRegion(self, nbytes)

    async def server_live(self, timeout=10):
        """See Client.server_live."""
        return messages.read_bool(await self._call("ServerLive", b"", timeout))

    async def server_ready(self, timeout=10):
        """See Client.server_ready."""
        return messages.read_bool(await self._call("ServerReady", b"", timeout))

    async def model_ready(self, model, version="", timeout=10):
        """See Client.model_ready."""
        request = messages.pack_name(model, version)
        return messages.read_bool(await self._call("ModelReady", request, timeout))

    async def server_metadata(self, timeout=10):
        """See Client.server_metadata."""
        return messages.read_server(await self._call("ServerMetadata", b"", timeout))

    async def model_metadata(self, model, version="", timeout=10):
        """See Client.model_metadata."""
        request = messages.pack_name(model, version)
        return messages.read_model(await self._call("ModelMetadata", request, timeout))

    async def load(self, model, timeout=None):
        """See Client.load."""
        await self._call("RepositoryModelLoad", messages.pack_repository(model), timeout)

    async def unload(self, model, timeout=None):
        """See Client.unload."""
        await self._call("RepositoryModelUnload", messages.pack_repository(model), timeout)

    async def statistics(self, model="", version="", timeout=10):
        """See Client.statistics."""
        request = messages.pack_name(model, version)
        return messages.read_statistics(await self._call("ModelStatistics", request, timeout))
