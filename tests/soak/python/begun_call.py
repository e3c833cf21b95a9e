"""The bytes of a connection whose only call does not get to its end."""


def frame(kind, flags, stream, payload, length=None):
    """An HTTP/2 frame; one that declares `length` has more to come."""
    length = len(payload) if length is None else length
    head = length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def literal(text):
    return bytes([len(text)]) + text


# Preface, SETTINGS, HEADERS, and the beginning of a message of 100,000 bytes.
BEGUN_CALL = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + frame(4, 0, 0, b"")
    + frame(
        1,
        4,  # END_HEADERS
        1,
        b"\x83\x86\x04"  # POST, http, a path
        + literal(b"/attention.v1.AttentionService/Attend")
        + b"\x01"  # authority
        + literal(b"soak")
        + b"\x0f\x10"  # content-type
        + literal(b"application/grpc")
        + b"\x00"
        + literal(b"te")
        + literal(b"trailers"),
    )
    + frame(0, 0, 1, b"\0" + (100_000).to_bytes(4, "big") + bytes(1000), length=16384)
)
