"""Posts to a hub what no host of its job would. Usage: hub_attack.py HOST:PORT TOKEN JOB. Prints what the hub says to each."""
import hashlib
import http.client
import json
import ssl
import sys

from hub_posts import ANY_CERTIFICATE, field, sign, varint

ADDRESS, TOKEN, JOB = sys.argv[1:]


def part(name, data, offset=0):
    return field(5, field(1, name) + b"\x10" + varint(offset) + field(3, data))


def message(parts=b"", job=JOB, host="liar", instance=7, sequence=1):
    return field(1, job) + field(2, host) + b"\x19" + instance.to_bytes(8, "little") + b"\x20" + varint(sequence) + parts


def post(body, signature=None, digest=None):
    digest = digest or hashlib.sha256(body).hexdigest()
    connection = http.client.HTTPSConnection(ADDRESS, timeout=60, context=ANY_CERTIFICATE)
    try:
        connection.request("POST", "/v1/hub", body, {"X-Gpuprobe-Digest": digest, "X-Gpuprobe-Signature": sign(TOKEN, digest) if signature is None else signature})
    except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
        pass  # it does not read what nobody has signed
    answer = connection.getresponse()
    return answer.status, answer.read()


def refusal(body):
    """The first field of the answer."""
    status, text = post(body)
    assert status in (200, 413, 429, 507) and text[0] == 10, (status, text)
    return text[2:2 + text[1]].decode()


def in_the_clear():
    """What a hub says to HTTP without TLS."""
    try:
        connection = http.client.HTTPConnection(ADDRESS, timeout=60)
        connection.request("GET", "/v1/hub?nonce=0&job=x")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__


told = {
    "in the clear": in_the_clear(),
    "no signature": post(message(), signature="")[0],
    "signature of another body": post(message(), digest=hashlib.sha256(b"another").hexdigest())[0],
    "large body": post(b"x" * (9 << 20))[0],
    "no post": post(b"\xff" * 100)[0],
    "paths": refusal(message(part("../evil.gpr", "x") + part("/tmp/evil.gpr", "x") + part(".evil.gpr", "x") + part("evil.sh", "x"), instance=1)),
    "another job": refusal(message(job="another")),
}
# Another host that calls itself n2, and writes no log.
post(message(part("garbage.gpr", b"garbage" * 1000), host="n2", instance=2))
post(message(part("garbage.gpr", b"garbage" * 1000), host="n2", instance=2))
post(message(part("gap.gpr", b"x", offset=1 << 40), host="n2", instance=2, sequence=2))
piece = bytes(7 << 20)
for number in range(1, 1000):
    status, text = post(message(part("rank-1.gpr", piece, offset=(number - 1) * len(piece)), host="..", instance=3, sequence=number))
    if text[0] == 10:
        told["more than a host may"] = text[2:2 + text[1]].decode()
        break
print(json.dumps(told))
