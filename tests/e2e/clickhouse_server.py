"""ClickHouse's current engine behind HTTP, for tests whose hub writes to it (scripts/clickhouse-env.sh makes its environment)."""
import json
import os
import re
import sys
import urllib.error
import urllib.request

import harness
from harness import SOURCE

PYTHON = os.path.join(os.environ.get("GPUPROBE_CLICKHOUSE_ENV") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuprobe", "clickhouse-env"),
                      "bin", "python")


def is_there():
    return os.path.exists(PYTHON)


def skip_without():
    if not is_there():
        print(f"skipped: there is no {PYTHON}; scripts/clickhouse-env.sh makes it")
        sys.exit(77)


def documented_questions(job, attempt):
    """Those of docs/clickhouse.md, and their SQL."""
    with open(os.path.join(SOURCE, "docs", "clickhouse.md"), encoding="utf-8") as file:
        asked = re.findall(r"^([^\n]+):\n```sql\n(.*?)```", file.read(), re.DOTALL | re.MULTILINE)
    return [(question, sql.replace("{job:String}", f"'{job}'").replace("{attempt:UInt16}", str(attempt))) for question, sql in asked]


class WithClickHouse(harness.EndToEndTest):

    def start_server(self, *credentials):
        os.makedirs(self.path("server"), exist_ok=True)
        server = self.start([PYTHON, os.path.join(SOURCE, "tests", "e2e", "clickhouse_front.py"), self.path("server"), *credentials])
        harness.wait_until(lambda: re.search(rb"^\d+\n", server.so_far()) or not server.alive(), "server")
        self.credentials = credentials
        self.url = "http://127.0.0.1:" + server.so_far().decode().strip()
        return server

    def post(self, path, body=b""):
        headers = dict(zip(("X-ClickHouse-User", "X-ClickHouse-Key"), self.credentials))
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data=body, headers=headers), timeout=20) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{body.decode()}: {error.read().decode()}") from None

    def behave(self, mode):
        self.post("/test/" + mode)

    def ask(self, sql):
        """Rows, their values as Python's."""
        return [json.loads(line) for line in self.post("/", (sql + " SETTINGS output_format_json_quote_64bit_integers = 0 FORMAT JSONCompactEachRow").encode()).splitlines()]

    def questions(self, job, attempt):
        """Answers to the documented ones, by the first words of each."""
        return {question.split(",")[0].split(" ", 1)[1][:12]: self.ask(sql) for question, sql in documented_questions(job, attempt)}
