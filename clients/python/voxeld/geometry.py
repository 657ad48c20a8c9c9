# SPDX-License-Identifier: Apache-2.0
"""Names of geometries, and the coordinates that they stand for.

A name is the server's and fits any coordinates of as many rows: beside others it would be an answer
to another question.  So the client keeps a digest with each name that it was given, and takes a
name for coordinates only if it is known to be theirs.
"""
import collections
import hashlib
import threading

# Names that are kept; one that is not costs sending its coordinates again.
NAMES_MAX = 4096


def digest(coords):
    """Of an int32 array [N, C]: which rows it has, in which order."""
    out = hashlib.sha1(repr(coords.shape).encode(), usedforsecurity=False)
    out.update(coords.reshape(-1).view("u1"))
    return out.digest()


class Names:
    """What a client knows of names; threads may share it."""

    def __init__(self):
        self._digests = collections.OrderedDict()
        self._lock = threading.Lock()

    def learn(self, name, coords):
        """The server has named these; `coords` None is coordinates that did not go."""
        if not name or coords is None:
            return
        known = digest(coords)
        with self._lock:
            self._digests[name] = known
            self._digests.move_to_end(name)
            if len(self._digests) > NAMES_MAX:
                self._digests.popitem(last=False)

    def stands_for(self, name, coords):
        """Whether the name is known to be that of these coordinates."""
        with self._lock:
            known = self._digests.get(name)
        return known is not None and known == digest(coords)
