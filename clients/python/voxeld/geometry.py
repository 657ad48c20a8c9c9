# SPDX-License-Identifier: Apache-2.0
"""Names of geometries, and the coordinates that they stand for.

The server makes the names, and does not notice a name that is used for other coordinates with as
many rows: the answer would be wrong.  So the client keeps a digest with each name that it gets, and
uses a name for coordinates only if it knows that the name stands for them.
"""
import collections
import hashlib
import threading

# How many names a client keeps; for a name that it does not keep, it sends the coordinates again.
NAMES_MAX = 4096


def digest(coords):
    """A hash of an int32 array [N, C]: of its shape, its rows and their order."""
    out = hashlib.sha1(repr(coords.shape).encode(), usedforsecurity=False)
    out.update(coords.reshape(-1).view("u1"))
    return out.digest()


class Names:
    """The names that a client has got, with their digests.  Threads may share it."""

    def __init__(self):
        self._digests = collections.OrderedDict()
        self._lock = threading.Lock()

    def learn(self, name, coords):
        """Keeps the name that the server gave to `coords`; None = the coords were not sent."""
        if not name or coords is None:
            return
        known = digest(coords)
        with self._lock:
            self._digests[name] = known
            self._digests.move_to_end(name)
            if len(self._digests) > NAMES_MAX:
                self._digests.popitem(last=False)

    def stands_for(self, name, coords):
        """True if the name is known to stand for these coordinates."""
        with self._lock:
            known = self._digests.get(name)
        return known is not None and known == digest(coords)
