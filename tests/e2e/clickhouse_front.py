"""ClickHouse's current engine behind its HTTP interface, as far as gpuprobe uses it: clickhouse_front.py FOLDER [USER PASSWORD]. Takes FOLDER/config.xml as its configuration if there is one.

Runs in the environment of scripts/clickhouse-env.sh. Prints its port on standard error. What a test wants it to do wrong is asked for by POST /test/MODE: "well"; "down"
(closes connections without an answer), "busy" (HTTP 503), "late" (does what it is asked, and drops the answer), "old" (says that it is release 18.16.1).
"""
import http.server
import os
import re
import sys
import threading
import urllib.parse

from chdb import session

FOLDER = sys.argv[1]
USER, PASSWORD = (*sys.argv[2:4], "", "")[:2]
STATUS = {60: 404, 81: 404, 497: 403, 516: 403}


class Engine:
    def __init__(self):
        self.lock = threading.Lock()
        self.mode = "well"
        self.inserts = []
        config = os.path.join(FOLDER, "config.xml")
        self.session = session.Session(os.path.join(FOLDER, "data") + (f"?config-file={config}" if os.path.exists(config) else ""))

    def ask(self, sql):
        with self.lock:
            return str(self.session.query(sql, "TabSeparated"))

    def insert(self, sql, token, body):
        """The engine reads files, not bodies."""
        head, form = re.fullmatch(r"(INSERT INTO .*\)) FORMAT (RowBinary)", sql).groups()
        path = os.path.join(FOLDER, "body.zst")
        with self.lock:
            with open(path, "wb") as file:
                file.write(body)
            self.inserts.append(sql)
            self.session.query(f"{head} FROM INFILE '{path}' COMPRESSION 'zstd' SETTINGS insert_deduplication_token='{token}' FORMAT {form}")


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, text, code=None):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if code is not None:
            self.send_header("X-ClickHouse-Exception-Code", str(code))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        url = urllib.parse.urlsplit(self.path)
        asked = dict(urllib.parse.parse_qsl(url.query))
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if url.path.startswith("/test/"):
            ENGINE.mode = url.path.removeprefix("/test/")
            return self.answer(200, "")
        if ENGINE.mode == "down":
            self.close_connection = True
            return None
        if ENGINE.mode == "busy":
            return self.answer(503, "Code: 202. DB::Exception: Too many simultaneous queries", 202)
        if (self.headers.get("X-ClickHouse-User", ""), self.headers.get("X-ClickHouse-Key", "")) != (USER, PASSWORD):
            return self.answer(403, "Code: 516. DB::Exception: default: Authentication failed: password is incorrect, or there is no user with such name.", 516)
        if ENGINE.mode == "old" and body == b"SELECT version()":
            return self.answer(200, "18.16.1\n")
        try:
            if "query" in asked:
                ENGINE.insert(asked["query"], asked["insert_deduplication_token"], body)
                said = ""
            else:
                said = ENGINE.ask(body.decode())
        except Exception as error:  # pylint: disable=broad-except
            found = re.match(r"Code: (\d+)", str(error))
            code = int(found[1]) if found else 1002
            return self.answer(STATUS.get(code, 500), str(error), code)
        if ENGINE.mode == "late":
            self.close_connection = True
            return None
        return self.answer(200, said)

    def log_message(self, *_):
        pass


ENGINE = Engine()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front)
server.daemon_threads = True
print(server.server_port, file=sys.stderr, flush=True)
server.serve_forever()
