# SPDX-License-Identifier: Apache-2.0
"""Memory shared with the server: a request names the arrays in it, and does not send them."""
import errno
import math
import mmap
import operator
import os
import secrets

import numpy as np

from . import wire
from .errors import VoxeldError

FOLDER = "/dev/shm/"
ALIGN = 64   # where arrays begin: a cache line


class Memory:
    """The memory of a region, which hands out arrays.  See Client.region.

    name     the region's name in requests; no other process can guess it
    nbytes   its size
    """

    def __init__(self, nbytes):
        try:
            self.nbytes = operator.index(nbytes)
        except TypeError:
            raise TypeError(f"region: expected a whole number of bytes, got {nbytes!r}") from None
        if self.nbytes < 1:
            raise ValueError(f"region: expected 1 byte or more, got {nbytes}")
        self.name = ""
        self._used = 0
        self._map = self._bytes = None

    def _make(self):
        """Makes and maps the object; it has a name in the file system until _unlink."""
        if self._map is not None:
            raise ValueError("the region is already open")
        self.name = "voxel-" + secrets.token_hex(16)
        self._used = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(FOLDER + self.name, flags, 0o600)
        try:
            # Allocates every page: a full memory is an OSError here, and not SIGBUS later.
            self._allocate(fd)
            self._map = mmap.mmap(fd, self.nbytes)
        except BaseException:
            self._unlink()
            raise
        finally:
            os.close(fd)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._begin = self._bytes.ctypes.data

    def _allocate(self, fd):
        try:
            os.posix_fallocate(fd, 0, self.nbytes)
        except (OSError, OverflowError) as error:
            room = os.statvfs(FOLDER)
            raise OSError(getattr(error, "errno", errno.EFBIG), (
                f"region: expected {self.nbytes} bytes of shared memory, of which {FOLDER[:-1]} "
                f"has {room.f_bavail * room.f_frsize} free")) from None

    def array(self, shape, dtype):
        """A new array in the region, behind the previous one.  It keeps its memory alive."""
        dtype = np.dtype(dtype)
        dims = [operator.index(n) for n in (shape if np.iterable(shape) else (shape,))]
        if any(n < 0 for n in dims):
            raise ValueError(f"region: expected dimensions of 0 or more, got {dims}")
        nbytes = math.prod(dims) * dtype.itemsize
        begin = -(-self._used // ALIGN) * ALIGN
        if self._map is None:
            raise ValueError("the region is closed, or not entered yet")
        if nbytes > self.nbytes - begin:
            raise ValueError(f"region: the array needs {nbytes} bytes, but only "
                             f"{max(self.nbytes - begin, 0)} of {self.nbytes} are left")
        here = self._bytes[begin:begin + nbytes].view(dtype).reshape(dims)
        self._used = begin + nbytes
        return here

    def put(self, array):
        """A copy of the array in the region."""
        array = np.asarray(array)
        here = self.array(array.shape, array.dtype)
        here[...] = array
        return here

    def reset(self):
        """Lets the next array begin at the region's start; earlier arrays then share its memory."""
        self._used = 0

    def find(self, array):
        """The offset in bytes of a C-contiguous array in the region; None if it lies elsewhere."""
        if self._map is None or not array.flags.c_contiguous:
            return None
        offset = array.ctypes.data - self._begin
        return offset if 0 <= offset <= self.nbytes - array.nbytes else None

    def pack_register(self):
        """A request of SystemSharedMemoryRegister: name 1, key 2, byte_size 4."""
        return wire.text(1, self.name) + wire.text(2, "/" + self.name) + wire.number(4, self.nbytes)

    def pack_unregister(self):
        """A request of SystemSharedMemoryUnregister: name 1."""
        return wire.text(1, self.name)

    def _unlink(self):
        try:
            os.unlink(FOLDER + self.name)
        except FileNotFoundError:
            pass

    def _release(self):
        """Unmaps the memory; if arrays of it still exist, it stays mapped until they are freed."""
        self._bytes = None
        if self._map is not None:
            try:
                self._map.close()
            except BufferError:
                pass
        self._map = None


class Region(Memory):
    """A region of a Client, made by Client.region; `with` closes it."""

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
            self._unlink()   # the server has opened it
        client._regions.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Unregisters the region; no request may be using it.  A second call does nothing."""
        if self not in self._client._regions:
            return
        self._client._regions.remove(self)
        try:
            self._client._call("SystemSharedMemoryUnregister", self.pack_unregister(), 2)
        except (VoxeldError, ValueError):
            pass   # the regions ended with the connection, or with a closed client
        finally:
            self._release()


class AsyncRegion(Memory):
    """A region of an AsyncClient, made by AsyncClient.region; `async with` opens and closes it."""

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
        """See Region.close.  Does nothing for a region that was never entered."""
        if self not in self._client._regions:
            return
        self._client._regions.remove(self)
        try:
            await self._client._call("SystemSharedMemoryUnregister", self.pack_unregister(), 2)
        except (VoxeldError, ValueError):
            pass   # as in Region.close
        finally:
            self._release()
