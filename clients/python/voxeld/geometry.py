# SPDX-License-Identifier: Apache-2.0
"""Names of geometries, the coordinates that they stand for, and the header of a geometry.

The server makes the names, and does not notice a name that is used for other coordinates with as
many rows: the answer would be wrong.  So the client keeps a digest with each name that it gets, and
uses a name for coordinates only if it knows that the name stands for them.
"""
import collections
import hashlib
import struct
import threading
import zlib

import numpy as np

# How many names a client keeps; for a name that it does not keep, it sends the coordinates again.
NAMES_MAX = 4096
HEADER = "x-voxel-geometry"
HEADER_ROWS = 64


def header(coords):
    """The value of x-voxel-geometry for an int32 array [N, C], as the C library makes it.

    A load balancer that hashes it keeps a geometry on one server, which has its neighbour maps and
    knows its name.  It is the CRC-32 of N and C, 8 bytes each, and of up to 64 rows: for a million
    voxels too it costs microseconds.
    """
    rows, columns = coords.shape
    some = coords if rows <= HEADER_ROWS else coords[np.arange(HEADER_ROWS) * rows // HEADER_ROWS]
    crc = zlib.crc32(struct.pack("<QQ", rows, columns))
    return f"{zlib.crc32(np.ascontiguousarray(some, '<i4').tobytes(), crc):08x}"


def digest(coords):
    """A hash of an int32 array [N, C]: of its shape, its rows and their order."""
    out = hashlib.sha1(repr(coords.shape).encode(), usedforsecurity=False)
    out.update(coords.reshape(-1).view("u1"))
    return out.digest()


class Names:
    """The names that a client has got, with the digests and headers of their coordinates.

    Threads may share it."""

    def __init__(self, headers=True):
        self._headers = headers
        self._known = collections.OrderedDict()
        self._lock = threading.Lock()

    def learn(self, name, coords, before=None):
        """Keeps the name that the server gave to `coords`; None = the coords were not sent.

        before: the digest before the call of coords in shared memory.  If they have another now,
        nobody knows which of the two the server has read, and the name is not kept."""
        if not name or coords is None:
            return
        known = digest(coords), header(coords)
        if before is not None and before != known[0]:
            return
        with self._lock:
            self._known[name] = known
            self._known.move_to_end(name)
            if len(self._known) > NAMES_MAX:
                self._known.popitem(last=False)

    def stands_for(self, name, coords):
        """True if the name is known to stand for these coordinates."""
        with self._lock:
            known = self._known.get(name)
        return known is not None and known[0] == digest(coords)

    def header(self, name, coords):
        """The header of a request with these coordinates or, if they are None, with this name.

        None if this client did not get the name itself."""
        if coords is not None:
            return header(coords)
        with self._lock:
            known = self._known.get(name)
        return known and known[1]

    def metadata(self, given, name, coords):
        """The headers of a request: those that the caller gave, and x-voxel-geometry."""
        if not self._headers or any(key == HEADER for key, _ in given):
            return given
        text = self.header(name, coords)
        return given + ((HEADER, text),) if text else given
