"""Serialized messages of attention.v1, without generated code."""


def varint(value):
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def field(number, payload):
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def tensor(shape, data):
    fp32 = varint(1 << 3) + varint(FP32)
    return fp32 + field(2, b"".join(map(varint, shape))) + field(3, data)


FP32 = 1


def attend_request(rows, keys, width, value_width=None):
    """Ones: as many query rows, keys and columns as asked for."""

    def ones(count, columns):
        return tensor([count, columns], b"\x00\x00\x80\x3f" * (count * columns))

    key_value = field(1, ones(keys, width)) + field(2, ones(keys, value_width or width))
    return field(1, b"attack") + field(2, ones(rows, width)) + field(3, key_value)


SMALL = attend_request(2, 3, 4)
