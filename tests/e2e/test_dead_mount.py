"""A file system that does not answer, as an NFS server that is gone: requests are served meanwhile,
and the daemon ends when it is asked to.

SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import ctypes
import os
import select
import signal
import struct
import threading

import pytest

import voxeld
from tests.e2e.model_files import ConvModel, random_grid
from tests.e2e.voxeld_process import PATIENCE, Daemon

NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS
PRIVATE_ALL = 0x44000  # MS_REC | MS_PRIVATE
# struct fuse_in_header begins: length, operation, number; fuse_out_header: length, error, number.
IN_HEADER, OUT_HEADER = struct.Struct("<IIQ"), struct.Struct("<IiQ")
# struct fuse_init_out: version 7.31, read ahead, flags, background, congestion, write, time, pages.
INIT_OUT = struct.pack("<IIIIHHII", 7, 31, 65536, 0, 12, 10, 65536, 1) + bytes(36)


def own_mounts():
    """From here on what this thread mounts is seen by it and by processes that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NAMESPACE) or libc.mount(None, b"/", None, PRIVATE_ALL, None):
        pytest.skip(f"no mounts of our own: {os.strerror(ctypes.get_errno())}")
    return libc


class DeadMount:
    """A file system whose server answers that it is there, and then nothing."""

    def __init__(self, libc, path):
        try:
            self.server = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            pytest.skip(f"no file system of our own: {error}")
        self.greeted = threading.Event()
        options = f"fd={self.server},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if libc.mount(b"dead", os.fsencode(path), b"fuse", 0, options):
            os.close(self.server)
            pytest.skip(f"no file system of our own: {os.strerror(ctypes.get_errno())}")
        threading.Thread(target=self._greet, daemon=True).start()

    def _greet(self):
        number = IN_HEADER.unpack_from(os.read(self.server, 1 << 17))[2]
        os.write(self.server, OUT_HEADER.pack(OUT_HEADER.size + len(INIT_OUT), 0, number)
                 + INIT_OUT)
        self.greeted.set()

    def wait_asked(self):
        """Somebody waits for an answer.  It is not read: who waits for an answer to what was read
        cannot be killed."""
        assert self.greeted.wait(PATIENCE)
        assert select.select([self.server], [], [], PATIENCE)[0]

    def close(self):
        os.close(self.server)


def test_a_dead_mount_holds_nobody(tmp_path):
    """The loop neither waits for a scan of the repository while it serves nor when it ends."""
    libc = own_mounts()
    ConvModel().write(tmp_path / "repository")
    far = tmp_path / "repository" / "far"
    with contextlib.ExitStack() as last:
        with Daemon(tmp_path / "repository", tmp_path) as daemon:
            far.mkdir()
            mount = DeadMount(libc, far)
            last.callback(mount.close)
            daemon.signal(signal.SIGHUP)
            mount.wait_asked()
            with voxeld.Client(daemon.grpc) as client:
                assert "out" in client.infer("conv", *random_grid(1, 20))
        assert "STOP_HELD process=front code=OK\n" in daemon.log()
