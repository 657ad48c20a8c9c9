# SPDX-License-Identifier: Apache-2.0
"""Memory that this process and the server share: arrays in it are named in requests, not sent."""
import math
import mmap
import operator
import os
import secrets

import grpc
import numpy as np

from . import wire
from .errors import VoxeldError

FOLDER = "/dev/shm/"
ALIGN = 64   # where arrays begin: a cache line


class Memory:
    """The memory of a region, and arrays in it.  See Client.region.

    name     the region's name in requests; no other process can guess it
    nbytes   its size
    """

    def __init__(self, nbytes):
        self.nbytes = operator.index(nbytes)
        if self.nbytes < 1:
            raise ValueError(f"region: expected 1 byte or more, got {nbytes}")
        self.name = ""
        self._used = 0
        self._map = self._bytes = None

    def _make(self):
        """The object, under a name of its own until _unlink."""
        if self._map is not None:
            raise ValueError("region: it is open already")
        self.name = "voxel-" + secrets.token_hex(16)
        self._used = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(FOLDER + self.name, flags, 0o600)
        try:
            # Every page is there from now on: a full memory is an OSError here, not SIGBUS later.
            os.posix_fallocate(fd, 0, self.nbytes)
            self._map = mmap.mmap(fd, self.nbytes)
        except BaseException:
            self._unlink()
            raise
        finally:
            os.close(fd)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._begin = self._bytes.ctypes.data

    def array(self, shape, dtype):
        """An array in the region, behind those before it.  It lives as long as anyone has it."""
        dtype = np.dtype(dtype)
        dims = [operator.index(n) for n in (shape if np.iterable(shape) else (shape,))]
        if any(n < 0 for n in dims):
            raise ValueError(f"region: expected dimensions of 0 or more, got {dims}")
        nbytes = math.prod(dims) * dtype.itemsize
        begin = -(-self._used // ALIGN) * ALIGN
        if self._map is None:
            raise ValueError("region: it is closed, or not entered yet")
        if nbytes > self.nbytes - begin:
            raise ValueError(f"region: expected at most {max(self.nbytes - begin, 0)} bytes that "
                             f"are left of {self.nbytes}, got an array of {nbytes}")
        here = self._bytes[begin:begin + nbytes].view(dtype).reshape(dims)
        self._used = begin + nbytes
        return here

    def put(self, array):
        """A copy of the array, in the region."""
        array = np.asarray(array)
        here = self.array(array.shape, array.dtype)
        here[...] = array
        return here

    def reset(self):
        """The next array begins at the region's begin; those handed out keep their memory."""
        self._used = 0

    def find(self, array):
        """Where a C-contiguous array lies in the region, in bytes; None = elsewhere."""
        if self._map is None or not array.flags.c_contiguous:
            return None
        offset = array.ctypes.data - self._begin
        return offset if 0 <= offset <= self.nbytes - array.nbytes else None

    def pack_register(self):
        """SystemSharedMemoryRegister: name 1, key 2, byte_size 4."""
        return wire.text(1, self.name) + wire.text(2, "/" + self.name) + wire.number(4, self.nbytes)

    def pack_unregister(self):
        """SystemSharedMemoryUnregister: name 1."""
        return wire.text(1, self.name)

    def _unlink(self):
        try:
            os.unlink(FOLDER + self.name)
        except FileNotFoundError:
            pass

    def _release(self):
        """Arrays that are still held keep the memory until they go."""
        self._bytes = None
        if self._map is not None:
            try:
                self._map.close()
            except BufferError:
                pass
        self._map = None


class Region(Memory):
    """As Client.region makes it; `with` ends it."""

    def __init__(self, client, nbytes):
        super().__init__(nbytes)
        self._client = client
        self._make()
        try:
            client._call("SystemSharedMemoryRegister", self.pack_register(), 10)
        except BaseException:
            self._release()
            raise
        finally:
            self._unlink()   # the server has it open
        client._regions.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Takes it back from the server; no request may be using it.  Twice is nothing."""
        if self not in self._client._regions:
            return
        self._client._regions.remove(self)
        try:
            self._client._call("SystemSharedMemoryUnregister", self.pack_unregister(), 2)
        except (VoxeldError, ValueError):
            pass   # a connection that is gone has no regions, nor has a closed channel
        finally:
            self._release()


class AsyncRegion(Memory):
    """As AsyncClient.region makes it; `async with` begins and ends it."""

    def __init__(self, client, nbytes):
        super().__init__(nbytes)
        self._client = client

    async def __aenter__(self):
        self._make()
        try:
            await self._client._call("SystemSharedMemoryRegister", self.pack_register(), 10)
        except BaseException:
            self._release()
            raise
        finally:
            self._unlink()
        self._client._regions.append(self)
        return self

    async def __aexit__(self, *exc):
        await self.close()

    async def close(self):
        """See Region.close.  One that was never entered has nothing to close."""
        if self not in self._client._regions:
            return
        self._client._regions.remove(self)
        try:
            await self._client._call("SystemSharedMemoryUnregister", self.pack_unregister(), 2)
        except (VoxeldError, grpc.aio.UsageError):
            pass   # as in Region.close
        finally:
            self._release()
