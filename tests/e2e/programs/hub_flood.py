"""Posts to a hub as fast as it can, in many threads, as one host that knows the secret. Usage: hub_flood.py HOST:PORT TOKEN SECONDS [jobs]: ever new jobs only.

Prints how often each status came, the Retry-After values, one refusal of each status, and how often the hub cut it off.
"""
import collections
import hashlib
import http.client
import json
import sys
import threading
import time

from hub_posts import ANY_CERTIFICATE, field, sign, varint

ADDRESS, TOKEN, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
ALL_JOBS = sys.argv[4:] == ["jobs"]
THREADS = 4 if ALL_JOBS else 24
statuses, cut, sent, lock = collections.Counter(), collections.Counter(), collections.Counter(), threading.Lock()
retry_after, refusals = set(), {}


def post(body):
    digest = hashlib.sha256(body).hexdigest()
    connection = http.client.HTTPSConnection(ADDRESS, timeout=20, context=ANY_CERTIFICATE)
    try:
        connection.request("POST", "/v1/hub", body, {"X-Gpuprobe-Digest": digest, "X-Gpuprobe-Signature": sign(TOKEN, digest)})
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        with lock:
            cut[type(error).__name__] += 1
        return
    finally:
        connection.close()
    with lock:
        statuses[answer.status] += 1
        sent[answer.status] += len(body)
        if answer.status != 200:
            retry_after.add(answer.getheader("Retry-After"))
            refusals.setdefault(answer.status, text[2:2 + text[1]].decode(errors="replace"))


def flood(thread):
    piece = bytes(7 << 20)
    for number in range(1 << 30):
        if time.monotonic() > END:
            return
        # A third are new jobs, the others large files of one job, of ever new collectors.
        is_small = ALL_JOBS or thread % 3 == 0
        name = b"flood %d" % (number if is_small else 0)
        data = b"" if is_small else piece
        part = field(5, field(1, b"rank-%d.gpr" % thread) + b"\x10" + varint(number * len(piece)) + field(3, data))
        post(field(1, name + b" of %d" % thread) + field(2, b"flooder") + b"\x19" + (thread << 32 | number + 1).to_bytes(8, "little") + b"\x20\x01" + part)


END = time.monotonic() + SECONDS
threads = [threading.Thread(target=flood, args=(number,)) for number in range(THREADS)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(json.dumps({"statuses": statuses, "cut": cut, "bytes": sent, "retry_after": sorted(map(str, retry_after)), "refusals": refusals}))
