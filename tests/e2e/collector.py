# SPDX-License-Identifier: Apache-2.0
"""An OpenTelemetry collector for tests: decodes what comes with OpenTelemetry's own messages, and
answers as well or as badly as the test asks for."""
import contextlib
import socket
import threading

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

TAKEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n%s"
LATER = b"HTTP/1.1 %d Later\r\nRetry-After: %s\r\nContent-Length: 5\r\n\r\nlater"
# A hostile answer stops here if the other side still reads: far beyond what it may.
ENDLESS = 64 << 20


class Collector:
    """`with Collector() as collector:` listens on the loopback until the block ends.

    url         for --otlp-endpoint
    listener    a socket that is bound already
    behave      what it does with a request: one of the functions below, or one of the test's
    posts       (request line, headers, message) of each POST that was read whole, in order
    spans()     all spans of the POSTs that were answered with 200
    """

    def __init__(self, listener=None, behave=None):
        self.lock = threading.Lock()
        self.behave = behave or take
        self.posts, self.taken, self.connections, self.given_up = [], [], 0, 0
        self.listener = listener or socket.create_server(("127.0.0.1", 0))
        self.listener.listen()
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.open, self.threads, self.ends = [], [], False

    def __enter__(self):
        self._thread(self._accept)
        return self

    def __exit__(self, *_):
        self.ends = True
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            for connection in self.open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()

    def _thread(self, run, *arguments):
        thread = threading.Thread(target=run, args=arguments)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        while not self.ends:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.open.append(connection)
                self.connections += 1
            self._thread(self._serve, connection)

    def _serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            with contextlib.suppress(OSError):
                # The first byte first: what it does is decided when something has come.
                while stream.peek(1) and self.behave(self, connection, stream):
                    pass
        with self.lock:
            self.open.remove(connection)

    def read(self, stream):
        """Reads one POST; None at the end of the connection."""
        line = stream.readline().decode()
        if not line:
            return None
        headers = {}
        while (header := stream.readline().decode().strip()):
            name, value = header.split(": ", 1)
            headers[name.lower()] = value
        body = stream.read(int(headers["content-length"]))
        if len(body) < int(headers["content-length"]):
            return None
        message = service.ExportTraceServiceRequest.FromString(body)
        with self.lock:
            self.posts.append((line.strip(), headers, message))
        return message

    def take_message(self, message):
        with self.lock:
            self.taken.append(message)

    def spans(self):
        with self.lock:
            return [span for message in self.taken for resource in message.resource_spans
                    for scope in resource.scope_spans for span in scope.spans]

    def servers(self):
        """The requests' own spans."""
        return [span for span in self.spans() if span.kind == span.SPAN_KIND_SERVER]


# ------- what a collector may do; true = the connection serves on -------


def take(collector, connection, stream):
    message = collector.read(stream)
    if message is None:
        return False
    collector.take_message(message)
    connection.sendall(TAKEN % (0, b""))
    return True


def later(status, retry_after):
    def behave(collector, connection, stream):
        if collector.read(stream) is None:
            return False
        connection.sendall(LATER % (status, retry_after))
        return True
    return behave


def refuse(status):
    def behave(collector, connection, stream):
        if collector.read(stream) is None:
            return False
        connection.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
        return True
    return behave


def partly(rejected, why):
    def behave(collector, connection, stream):
        message = collector.read(stream)
        if message is None:
            return False
        answer = service.ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = rejected
        answer.partial_success.error_message = why
        body = answer.SerializeToString()
        connection.sendall(TAKEN % (len(body), body))
        return True
    return behave


def close_inside(collector, connection, stream):
    """Closes when a part of the body is there."""
    stream.read(300)
    with collector.lock:
        collector.given_up += 1
    return False


def answer_half(collector, connection, stream):
    if collector.read(stream) is None:
        return False
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    return False


def hang(collector, connection, stream):
    """Reads, and never answers."""
    collector.read(stream)
    stream.read()
    with collector.lock:
        collector.given_up += 1
    return False


def read_nothing(collector, connection, stream):
    """Does not read.  Its end is the end of the test."""
    while not collector.ends:
        connection.recv(1, socket.MSG_PEEK)
        threading.Event().wait(0.01)
    return False


def headers_without_end(collector, connection, stream):
    """Sends headers until the other side has enough."""
    collector.read(stream)
    try:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for _ in range(ENDLESS // 4096):
            connection.sendall(b"X-More: " + b"m" * 4086 + b"\r\n")
    except OSError:
        with collector.lock:
            collector.given_up += 1
        return False
    raise AssertionError("64 MB of headers were read")


def body_without_end(collector, connection, stream):
    collector.read(stream)
    try:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(ENDLESS // 4096):
            connection.sendall(b"1000\r\n" + b"m" * 4096 + b"\r\n")
    except OSError:
        with collector.lock:
            collector.given_up += 1
        return False
    raise AssertionError("64 MB of body were read")


def nonsense(collector, connection, stream):
    collector.read(stream)
    connection.sendall(b"\x00\xff\xfe SSH-2.0-not-a-collector\r\n\r\n")
    with collector.lock:
        collector.given_up += 1
    return False
