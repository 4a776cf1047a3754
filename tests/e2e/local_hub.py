"""A hub on this host, and short jobs of two ranks that report to it."""
import json
import re
import urllib.error
import urllib.request

import harness
from harness import DDP_TRAIN, GPUPROBE

SECRET = "a-secret-of-hosts-and-their-hub"


class LocalHub(harness.EndToEndTest):

    def start_hub(self, *options, **env):
        hub = self.start([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--out", self.path("jobs"), *options],
                         env={"GPUPROBE_HUB_TOKEN": SECRET, "HOME": self.folder, **env})
        harness.wait_until(lambda: b"jobs: http://" in hub.so_far() or not hub.alive(), "hub")
        self.assertTrue(hub.alive(), hub.so_far().decode())
        said = hub.so_far().decode()
        self.port = re.search(r"GPUPROBE_HUB=\S+:(\d+)", said)[1]
        self.url = re.search(r"jobs: (http://\S+)", said)[1]
        return hub

    def start_job(self, name, *arguments, **env):
        script = " & ".join(f"RANK={rank} LOCAL_RANK={rank} {DDP_TRAIN} {' '.join(arguments)}" for rank in (0, 1)) + " & wait"
        return self.start([GPUPROBE, "run", "--", "bash", "-c", script], devices=2,
                          env={"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": name, "DDP_ID_FILE": self.path("id"),
                               "GPUPROBE_HUB": f"127.0.0.1:{self.port}", "GPUPROBE_HUB_TOKEN": SECRET, "HOME": self.folder, **env})

    def ask(self, path, **headers):
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def jobs(self):
        status, text = self.ask("/api/jobs")
        self.assertEqual(status, 200, text)
        return json.loads(text)["jobs"]
