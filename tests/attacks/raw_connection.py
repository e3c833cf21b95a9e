"""An HTTP/2 connection that does what no gRPC library does."""

import socket
import struct

import h2.config
import h2.connection
import h2.events
import h2.settings
from attacked_server import ATTEND

MESSAGE_HEAD = struct.Struct(">BI")  # compressed or not, and its length


class RawConnection:
    def __init__(self, server, window=65535, receive_buffer=None, name=None):
        unix = isinstance(server.host, str) and server.host.startswith("/")
        self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if name:
            self.socket.bind(name)
        self.socket.settimeout(60)
        self.socket.connect(server.host if unix else (server.host, server.port))
        self._authority = server.address
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        window_setting = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        self.http.local_settings = h2.settings.Settings(True, window_setting)
        self.http.initiate_connection()
        self.flush()

    def flush(self):
        self.socket.sendall(self.http.data_to_send())

    def begin(self, method=ATTEND, headers=()):
        """A call without its message; flush() sends it."""
        stream = self.http.get_next_available_stream_id()
        self.http.send_headers(
            stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", self._authority),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                *headers,
            ],
        )
        return stream

    def send(self, request, compressed=0, headers=()):
        """A call with a message that is no larger than a frame; flush() sends it."""
        stream = self.begin(headers=headers)
        message = MESSAGE_HEAD.pack(compressed, len(request)) + request
        self.http.send_data(stream, message, end_stream=True)
        return stream

    def send_all(self, request, method=ATTEND, end=True):
        """A call with a message of any size; reads only what sending needs."""
        stream = self.begin(method)
        self.send_on(stream, request, end)
        return stream

    def send_on(self, stream, request, end=False):
        """One more message of a call."""
        rest = MESSAGE_HEAD.pack(0, len(request)) + request
        while rest:
            room = min(self.http.local_flow_control_window(stream), 16384)
            if room == 0:
                assert self.receive() is not None, "the server has closed the connection"
                continue
            self.http.send_data(stream, rest[:room], end_stream=end and room >= len(rest))
            rest = rest[room:]
            self.flush()

    def receive(self):
        """What comes next; none where the server has closed the connection."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            return None
        if not data:
            return None
        events = self.http.receive_data(data)
        self.socket.sendall(self.http.data_to_send())
        return events

    def settle(self):
        """Until the server's settings are known."""
        while True:
            events = self.receive()
            assert events is not None
            if any(isinstance(e, h2.events.RemoteSettingsChanged) for e in events):
                return

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
