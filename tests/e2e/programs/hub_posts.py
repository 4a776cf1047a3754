"""Posts to a hub, as a host that knows the secret makes them: the wire format of hub.proto by hand, and signatures."""
import hashlib
import hmac
import ssl

ANY_CERTIFICATE = ssl._create_unverified_context()  # pylint: disable=protected-access


def varint(value):
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def field(number, data):
    """Of a message: a length and bytes."""
    data = data.encode() if isinstance(data, str) else data
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def sign(token, text, purpose="post"):
    return hmac.new(token.encode(), f"gpuprobe hub {purpose}\n{text}".encode(), hashlib.sha256).hexdigest()
