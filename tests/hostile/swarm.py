# SPDX-License-Identifier: Apache-2.0
"""Many connections of one thread, each driven by a script: what attackers are made of.

A script is a generator for one connection.  It yields

    bytes     to be sent, however slowly the server takes them
    a number  of seconds in which it sends nothing
    None      to wait until there is something to read, which the yield then gives
    CLOSE     to end the connection and begin again with another one

and the connection stays open when it ends, until the swarm ends.  One that the server closes is
opened again at once: a server that cuts clients must withstand those that come back.
"""
import errno
import heapq
import select
import socket
import ssl
import struct
import time

CLOSE = object()
READ_BYTES = 1 << 18
MORE_SECONDS = 20  # the server has cut those over the limits by then, and served the honest ones
HONEST_AFTER = 1.0  # seconds after the attackers
HONEST_APART = 0.05  # between two of them
HONEST_BACK_AFTER = 0.2  # until one whose connection was closed comes back
IN, OUT, GONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP
BROKEN = select.EPOLLERR | select.EPOLLHUP
FULL = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL)


def secure_context():
    """Attackers trust every server."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.set_alpn_protocols(["h2"])
    return made


SECURE = secure_context()


def connect_to(server, receive_bytes=None, source=None):
    """A socket on its way to HOST:PORT, [V6]:PORT, tls:HOST:PORT or unix:PATH, from an address of
    this machine; connect's error."""
    if server.startswith("unix:"):
        one, address = socket.socket(socket.AF_UNIX), server[5:]
    else:
        host, port = server.removeprefix("tls:").rsplit(":", 1)
        host = host.strip("[]")
        one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        address = (host, int(port))
    if receive_bytes:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    if source:
        one.setsockopt(socket.IPPROTO_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
        one.bind((source, 0))
    one.setblocking(False)
    return one, one.connect_ex(address)


class Peer:
    """One connection, again and again."""

    def __init__(self, swarm, server, script, reads, source):
        self.swarm, self.server, self.script, self.reads = swarm, server, script, reads
        self.number, self.source = len(swarm.peers), source
        self.over = self.was_cut = False
        self.honest = self.served = False  # served: an honest one's script has got what it wants
        self.tries = []  # what its script says of each
        self.socket, self.hear = None, None  # hear: a script's, given all that is read
        self.wakes = 0  # of its entries in the swarm's heap only the latest counts

    def open(self):
        self.socket, error = connect_to(self.server, self.swarm.receive_bytes, self.source)
        if error not in (0, errno.EINPROGRESS):  # a Unix socket's backlog is full, or no listener
            self.swarm.not_connected += 1
            self.drop(0.02)
            return
        self.swarm.opened += 1
        self.opened = time.monotonic()  # TLS begins when it is connected
        self.pending, self.connecting, self.waits, self.hear = b"", True, False, None
        self.shaking = ssl.SSLWantWriteError if self.server.startswith("tls:") else None
        self.steps = self.script(self)
        self.events = self.wanted()
        self.swarm.watch(self)

    def wanted(self):
        if self.shaking:
            return GONE | (OUT if self.shaking is ssl.SSLWantWriteError else IN)
        wants_out, wants_in = self.pending or self.connecting, self.reads or self.waits
        return GONE | OUT * bool(wants_out) | IN * bool(wants_in)

    def pause(self, seconds):
        self.wakes += 1
        self.swarm.later(seconds, self, self.wakes)

    def drop(self, pause):
        """Leaves, and comes back."""
        self.swarm.forget(self)
        self.pause(pause)

    def cut(self):
        if self.connecting:
            self.swarm.not_connected += 1
        else:
            self.swarm.cuts.append(time.monotonic() - self.opened)
            self.was_cut = True
        self.drop(HONEST_BACK_AFTER if self.honest else self.swarm.back_after)

    def wake(self):
        """Its pause is over."""
        if self.socket:
            self.step()
        else:
            self.swarm.open_one(self)

    def step(self, given=None):
        """Runs the script until it has bytes, or waits."""
        self.waits = False
        while not self.pending:
            try:
                said = self.steps.send(given)
            except StopIteration:
                break
            given = None
            if said is CLOSE:
                self.swarm.left += 1
                self.drop(0)
                return
            if said is None:
                self.waits = True
                break
            if isinstance(said, bytes):
                self.pending = memoryview(said)
            elif said > 0:
                self.pause(said)
                break
        self.swarm.changed(self)

    def shake(self):
        """A step of a TLS handshake, without waiting."""
        if self.connecting:
            fd = self.socket.fileno()
            self.socket = SECURE.wrap_socket(self.socket, do_handshake_on_connect=False)
            assert self.socket.fileno() == fd
            self.connecting = False
        try:
            self.socket.do_handshake()
            self.shaking = None
            self.step()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as waits:
            self.shaking = type(waits)
            self.swarm.changed(self)

    def on_write(self):
        if self.connecting:
            self.connecting = False
            self.step()
        if self.socket and self.pending:
            count = self.socket.send(self.pending)
            self.swarm.sent += count
            self.pending = self.pending[count:]
            if not self.pending:
                self.step()

    def on_read(self):
        heard = self.socket.recv(READ_BYTES)
        while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            heard += self.socket.recv(READ_BYTES)
        self.swarm.received += len(heard)
        if heard and self.hear:
            self.hear(heard)
        if not heard:
            self.cut()
        elif self.waits:
            self.step(heard)

    def on_event(self, events):
        try:
            if self.shaking:
                if events & BROKEN:
                    self.cut()
                else:
                    self.shake()
                return
            if events & IN and (self.reads or self.waits):
                self.on_read()
            elif events & (GONE | BROKEN):
                self.cut()
            if self.socket and events & OUT:
                self.on_write()
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.cut()


class Swarm:
    """Connections, and what became of them."""

    def __init__(self, receive_bytes=None, back_after=0.01):
        self.epoll, self.by_fd = select.epoll(), {}
        self.receive_bytes, self.back_after = receive_bytes, back_after
        self.peers, self.honest, self.heap, self.order = [], [], [], 0
        self.opened = self.not_connected = self.left = self.sent = self.received = 0
        self.cuts = []  # how long each connection lived that the server closed

    def add(self, count, server, script, reads=True, sources=0):
        """From so many addresses, none of which is 127.0.0.1; 0 = from that one."""
        for i in range(count):
            at = i % sources if sources else 0
            source = f"127.0.{2 + at // 250}.{1 + at % 250}" if sources else None
            self.peers.append(Peer(self, server, script, reads, source))

    def add_honest(self, count, server, script):
        """Clients from addresses of their own, which come when the attackers are there; the script
        sets the peer's `served`."""
        for _ in range(count):
            peer = Peer(self, server, script, True, f"127.0.200.{1 + len(self.honest)}")
            peer.honest = True
            self.honest.append(peer)

    def invite(self):
        for at, peer in enumerate(self.honest):
            self.later(HONEST_AFTER + at * HONEST_APART, peer, peer.wakes)

    def watch(self, peer):
        self.by_fd[peer.socket.fileno()] = peer
        self.epoll.register(peer.socket, peer.events)

    def changed(self, peer):
        if peer.events != peer.wanted():
            peer.events = peer.wanted()
            self.epoll.modify(peer.socket, peer.events)

    def forget(self, peer, hard=False):
        if hard and peer.socket.family != socket.AF_UNIX:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.by_fd.pop(peer.socket.fileno(), None)
        peer.socket.close()
        peer.socket = None

    def later(self, seconds, peer, wakes):
        self.order += 1
        heapq.heappush(self.heap, (time.monotonic() + seconds, self.order, peer, wakes))

    def run(self, seconds, stopped=lambda: False, begun=lambda: None, more=MORE_SECONDS, burst=64):
        """Opens all, `burst` in each pass so that none is starved, and drives them.

        Runs for `seconds`, and then until each with `over` has been cut and each honest one served,
        `more` seconds at most.
        """
        end, waiting = time.monotonic() + seconds, list(reversed(self.peers))
        while not stopped():
            if time.monotonic() >= end:
                if time.monotonic() >= end + more or not (self.uncut() or self.unserved()):
                    break
            for _ in range(min(burst, len(waiting))):
                self.open_one(waiting.pop())
                if not waiting:
                    self.invite()
                    begun()
            now = time.monotonic()
            while self.heap and self.heap[0][0] <= now:
                _, _, peer, wakes = heapq.heappop(self.heap)
                if peer.wakes == wakes:
                    peer.wake()
            soon = (self.heap[0][0] if self.heap else end) - time.monotonic()
            for fd, events in self.epoll.poll(0 if waiting else min(max(soon, 0), 0.1), 1024):
                if fd in self.by_fd:
                    self.by_fd[fd].on_event(events)

    def uncut(self):
        """How many connections with `over` the server has not cut yet."""
        return sum(peer.over and not peer.was_cut for peer in self.peers)

    def unserved(self):
        """How many of the honest clients have not got what they want yet."""
        return sum(not peer.served for peer in self.honest)

    def open_one(self, peer):
        try:
            peer.open()
        except OSError as error:  # no more descriptors or ports: go on without
            if error.errno not in FULL:
                raise
            self.not_connected += 1
            peer.pause(0.1)

    def close(self, hard=False):
        """Closes all connections; `hard` with a reset."""
        for peer in self.peers + self.honest:
            if peer.socket:
                self.forget(peer, hard)
        self.epoll.close()
