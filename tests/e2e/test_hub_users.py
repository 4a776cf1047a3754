"""A hub of several users (`gpuprobe hub --users`): each sees his own jobs, whatever he asks for, and nobody else's."""
import contextlib
import glob
import hashlib
import hmac
import http.client
import json
import os
import re
import ssl
import unittest
import urllib.parse

import harness
import local_hub
from harness import GPUPROBE

OPERATOR = "the-operators-reading-token"
HUB = {name: f"the-hub-token-of-{name}" for name in ("alice", "bob", "carol")}
READ = {name: f"the-reading-token-of-{name}" for name in HUB}
FASTER = ["--steps", "150"]


class HubUsers(local_hub.LocalHub):

    def write_users(self, *names, text=None, mode=0o600):
        path = self.path("users")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text if text is not None else "# users of the test\n" + "".join(f"{name}\t{HUB[name]} {READ[name]}\n" for name in names))
        os.chmod(path + ".new", mode)
        os.rename(path + ".new", path)
        return path

    def start_hub(self, *options, **env):
        return super().start_hub("--users", self.path("users"), *options, **{"GPUPROBE_HTTP_TOKEN": OPERATOR, **env})

    def job_of(self, user, name="pretrain", arguments=FASTER, **env):
        return self.start_job(name, *arguments, GPUPROBE_HUB_TOKEN=HUB.get(user, user), DDP_ID_FILE=self.path(f"id-{user}-{name}"), **env)

    def as_(self, token, path):
        return self.ask(path, **({"Authorization": f"Bearer {token}"} if token else {}))

    def jobs_of(self, token):
        status, text = self.as_(token, "/api/jobs")
        self.assertEqual(status, 200, text)
        return json.loads(text)["jobs"]

    def over(self, count, token=OPERATOR):
        return harness.wait_until(lambda: (jobs := self.jobs_of(token)) and [job["state"] for job in jobs] == ["over"] * count and jobs, f"{count} jobs that are over")

    def said(self, hub):
        return " ".join(hub.so_far().decode().split())

    def post(self, named, signing, body=b"this is no post"):
        def sign(secret, purpose, text):
            return hmac.new(secret.encode(), f"gpuprobe hub {purpose}\n{text}".encode(), hashlib.sha256).hexdigest()
        digest = hashlib.sha256(body).hexdigest()
        connection = http.client.HTTPSConnection("127.0.0.1", int(self.port), timeout=20, context=ssl._create_unverified_context())
        with contextlib.closing(connection):
            connection.request("POST", "/v1/hub", body, {"X-Gpuprobe-Digest": digest, "X-Gpuprobe-Signature": sign(signing, "post", digest), "X-Gpuprobe-Key": sign(named, "name", "")})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def shown(self, token, *command, code=0):
        done = self.run_program([GPUPROBE, *command], env={"GPUPROBE_HTTP_TOKEN": token})
        self.assertEqual(done.returncode, code, done)
        return done.stdout.decode(), done.stderr.decode()

    def paths_of(self, job):
        """All that there is of a job at its hub."""
        base = f"/jobs/{job['id']}"
        name, user = urllib.parse.quote(job["name"]), job["user"]
        files = json.loads(self.as_(OPERATOR, f"{base}/api/files")[1])["files"]
        self.assertTrue(files)
        return [f"{base}{rest}" for rest in ("", "/", "/report.json", "/api/report", "/api/text", "/api/ranks", "/api/status", "/api/files", *(f"/api/files/{file['name']}" for file in files))] + \
            [f"/api/attempts?job={name}&user={user}", f"/attempts?job={name}&user={user}"]

    def test_two_users_who_call_their_jobs_the_same(self):
        self.write_users("alice", "bob")
        hub = self.start_hub("--metrics", "ranks")
        self.assertIn(f"2 users in {self.path('users')}", self.said(hub))
        running = {user: self.job_of(user, arguments=["--steps", "100000"]) for user in ("alice", "bob")}
        for user in running:
            harness.wait_until(lambda: (jobs := self.jobs_of(READ[user])) and jobs[0]["ranks"] == 2 and jobs[0]["step_ns"], f"{user}'s job")
        (hers,), (his,) = self.jobs_of(READ["alice"]), self.jobs_of(READ["bob"])
        self.assertEqual((hers["name"], hers["attempt"], hers["user"]), (his["name"], 1, "alice"))
        self.assertEqual((his["attempt"], his["user"]), (1, "bob"))
        self.assertEqual({job["user"] for job in self.jobs_of(OPERATOR)}, {"alice", "bob"})
        pids = {user: [rank["pid"] for rank in json.loads(self.as_(READ[user], f"/jobs/{job['id']}/api/status")[1])["ranks"]] for user, job in (("alice", hers), ("bob", his))}
        self.assertFalse(set(pids["alice"]) & set(pids["bob"]))
        metrics = {who: self.as_(token, "/metrics")[1] for who, token in {**READ, "all": OPERATOR}.items() if who != "carol"}
        for user in ("alice", "bob"):
            self.assertEqual(set(re.findall(r'^gpuprobe_job_hosts\{.*user="(\w+)"', metrics[user], re.M)), {user})
            self.assertIn('gpuprobe_hub_jobs{state="open"} 1\n', metrics[user])
            for of_all in ("posts_total", "refused_total", "disk_free", "cpu_seconds"):
                self.assertNotIn(of_all, metrics[user])
        self.assertEqual(set(re.findall(r'^gpuprobe_job_hosts\{.*user="(\w+)"', metrics["all"], re.M)), {"alice", "bob"})
        self.assertIn("gpuprobe_hub_posts_total", metrics["all"])
        self.assertTrue(os.path.isdir(os.path.join(self.path("jobs"), hers["id"])))
        self.assertEqual(os.stat(self.path("jobs", "alice")).st_mode & 0o777, 0o700)
        for job in running.values():
            for pid in harness.processes_of_session(job.pid):
                if harness.read_proc(pid, "cmdline").split(b"\0")[0].endswith(b"ddp_train"):
                    os.kill(pid, 15)
            job.wait(harness.LIMIT_S)
        self.over(2)
        # Alice has two more, of which one has a name that Bob must not see; rank 1 is slow in both.
        for job in [self.job_of("alice", name, ["--steps", "200"], GPUSIM_SLOW="rank=1,factor=4") for name in ("pretrain", "her-secret-plan")]:
            job.wait(harness.LIMIT_S)
        self.over(4)
        jobs = {who: self.jobs_of(token) for who, token in (("alice", READ["alice"]), ("bob", READ["bob"]), ("all", OPERATOR))}
        self.assertEqual([sorted(job["attempt"] for job in jobs[user]) for user in ("alice", "bob")], [[1, 1, 2], [1]])
        self.assertEqual(len(jobs["all"]), 4)
        slow = [harness.read_report(self.path("jobs", job["id"])) for job in jobs["alice"] if not any(f["id"].startswith("straggler") for f in job["findings"])]
        with self.undisturbed(*slow):
            self.assertLessEqual(len(slow), 1)  # the one that was ended
        # Neither sees the other's, nor whether there is one.
        none = {kind: self.as_(READ["bob"], path) for kind, path in (("jobs", "/jobs/alice/20260101T000000Z-nothing/"), ("attempts", "/api/attempts?job=nothing&user=alice"))}
        self.assertEqual([status for status, _ in none.values()], [404, 404])
        for reader, other in (("bob", "alice"), ("alice", "bob")):
            for job in jobs[other]:
                for path in self.paths_of(job):
                    self.assertEqual(self.as_(READ[reader], path), none["attempts" if "attempts?" in path else "jobs"], f"{reader}: {path}")
                folder = job["id"].split("/")[1]
                for path in (f"/jobs/{folder}/", f"/jobs/{reader}/../{job['id']}/report.json", f"/jobs/{reader}/..%2f{job['id']}/report.json", f"/jobs/{reader}/{folder}x/",
                             f"/jobs/{jobs[reader][0]['id']}/api/files/../../{job['id']}/report.json", f"/jobs/{jobs[reader][0]['id']}/api/files/..%2f..%2f..%2f{job['id']}/job.txt"):
                    self.assertEqual(self.as_(READ[reader], path)[0], 404, f"{reader}: {path}")
        for path in ("/", "/?words=alice", "/api/jobs", "/hosts", "/api/hosts", "/metrics", f"/attempts?job={urllib.parse.quote(his['name'])}", f"/api/attempts?job={urllib.parse.quote(his['name'])}"):
            status, text = self.as_(READ["bob"], path)
            self.assertEqual(status, 200, path)
            for word in ("her-secret-plan", "alice/", "straggler"):
                self.assertNotIn(word, text, path)
            if "words" not in path and path != "/metrics":
                self.assertIn("straggler" if "hosts" in path else "alice/", self.as_(OPERATOR, path)[1], path)
        records = {who: json.loads(self.as_(token, "/api/hosts")[1])["gpus"] for who, token in (("alice", READ["alice"]), ("bob", READ["bob"]), ("all", OPERATOR))}
        self.assertEqual({who: (gpus[0]["jobs"], gpus[0]["jobs_against"]) for who, gpus in records.items()}, {"alice": (3, 2), "bob": (1, 0), "all": (4, 2)})
        # The same by command.
        hub_at = ("--hub", self.url)
        out, _ = self.shown(READ["bob"], "jobs", self.url)
        self.assertNotIn("her-secret-plan", out)
        self.assertEqual(json.loads(self.shown(READ["bob"], "jobs", "--json", self.url)[0])["jobs"], jobs["bob"])
        self.assertIn("has no job 'her-secret-plan'", self.shown(READ["bob"], "report", "her-secret-plan", *hub_at, code=1)[1])
        secret = next(job for job in jobs["all"] if "her-secret" in job["name"])
        for given in (secret["id"], f"{self.url}/jobs/{secret['id']}/"):
            for command in ("report", "query"):
                _, error = self.shown(READ["bob"], command, given, *(["SELECT 1"] if command == "query" else []), *hub_at, code=1)
                self.assertNotIn("her-secret", error.replace(secret["id"], ""))
        report = json.loads(self.shown(READ["bob"], "report", "--json", "pretrain", *hub_at)[0])
        self.assertEqual({rank["pid"] for rank in report["ranks"]}, set(pids["bob"]))
        report = json.loads(self.shown(READ["alice"], "report", "--json", "pretrain#1", *hub_at)[0])
        self.assertEqual({rank["pid"] for rank in report["ranks"]}, set(pids["alice"]))
        out, _ = self.shown(READ["bob"], "query", "--format", "jsonl", "pretrain", "SELECT DISTINCT pid FROM kernel", *hub_at)
        self.assertEqual({json.loads(line)["pid"] for line in out.splitlines()}, set(pids["bob"]))
        self.assertIn("Compute time on rank 1 is", self.shown(READ["alice"], "diff", "pretrain#1", "pretrain#2", *hub_at)[0])
        # A browser's cookie is as good as its token, which goes before another's cookie.
        cookie = f"gpuprobe-{self.url.rsplit(':', 1)[1]}="
        self.assertEqual(json.loads(self.ask("/api/jobs", Cookie=cookie + READ["bob"])[1])["jobs"], jobs["bob"])
        for headers in ({"Cookie": cookie + READ["bob"], "Authorization": f"Bearer {READ['alice']}"}, {"Cookie": cookie + OPERATOR, "Authorization": f"Bearer {READ['alice']}"}):
            self.assertEqual(json.loads(self.ask("/api/jobs", **headers)[1])["jobs"], jobs["alice"])
        self.assertEqual(json.loads(self.ask(f"/api/jobs?token={READ['alice']}", Cookie=cookie + OPERATOR)[1])["jobs"], jobs["alice"])
        # The operator tells them apart.
        out, _ = self.shown(OPERATOR, "jobs", self.url)
        self.assertRegex(out, r"(?m)^ *user +job ")
        self.assertRegex(out, r"(?m)^ *bob +\S+ pretrain ")
        self.assertIn("could be any of 2 jobs", self.shown(OPERATOR, "report", "pretrain", *hub_at, code=1)[1])
        self.assertEqual(*(self.shown(token, "report", "--json", given, *hub_at)[0] for token, given in ((OPERATOR, f"bob/{his['name']}"), (READ["bob"], "pretrain"))))
        self.assertIn("her-secret-plan", self.shown(OPERATOR, "report", "her-secret-plan", *hub_at)[1] + self.shown(OPERATOR, "jobs", "--attempts", "her-secret-plan", self.url)[0])
        self.assertIn(f"bob/{his['name']}", self.shown(OPERATOR, "jobs", "--attempts", f"bob/{his['name']}", self.url)[0])
        # Another hub in the same directory knows whose they are; one without users shows none of them to everybody.
        hub.signal(15)
        hub.wait(harness.LIMIT_S)
        self.start_hub()
        harness.wait_until(lambda: self.jobs_of(OPERATOR), "the list of another hub")
        self.assertEqual({who: self.jobs_of(token) for who, token in (("alice", READ["alice"]), ("bob", READ["bob"]), ("all", OPERATOR))}, jobs)

    def test_wrong_tokens_and_a_file_that_changes(self):
        self.write_users("alice", "bob")
        hub = self.start_hub()
        for token in ("", "a-token-of-nobody-at-all", HUB["alice"], READ["alice"][:-1], READ["carol"]):
            for path in ("/", "/api/jobs", "/metrics", "/hosts", "/jobs/alice/x/"):
                self.assertEqual(self.as_(token, path)[0], 401, (token, path))
        self.assertEqual(self.as_("", "/healthz")[0], 200)
        self.assertEqual(self.ask("/api/jobs", Authorization=f"Bearer {READ['alice']}", Host="evil.example")[0], 403)
        # What the hub would have without --users is nobody's.
        for token in (local_hub.SECRET, READ["alice"]):
            done = self.job_of(token).wait(harness.LIMIT_S)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(" ".join(done.stderr.decode().split()), r"knows no user by the token in GPUPROBE_HUB_TOKEN: ask whoever runs it")
        # Who names Alice's key and has Bob's posts nothing; with Alice's, the post is read, and is none.
        self.assertEqual([self.post(*(HUB[name] for name in ("alice", signs)))[0] for signs in ("bob", "alice")], [403, 400])
        self.assertEqual(self.jobs_of(OPERATOR), [])
        self.assertEqual(glob.glob(self.path("jobs", "*")), [])
        self.job_of("bob").wait(harness.LIMIT_S)
        his, = harness.wait_until(lambda: self.jobs_of(OPERATOR), "his job")
        # A file that says nothing clear changes nothing.
        self.write_users(text=f"carol {HUB['carol']} {READ['carol']}\nbob too-short\n")
        harness.wait_until(lambda: "users:2: " in self.said(hub), "the refusal")
        self.assertIn("the users before stay", self.said(hub))
        self.assertEqual((self.as_(READ["bob"], "/api/jobs")[0], self.as_(READ["carol"], "/api/jobs")[0]), (200, 401))
        self.write_users("alice", "carol")
        harness.wait_until(lambda: self.as_(READ["carol"], "/api/jobs")[0] == 200, "carol")
        self.assertEqual(self.as_(READ["bob"], f"/jobs/{his['id']}/report.json")[0], 401)
        self.assertEqual(self.said(hub).count("users:2: "), 1)
        self.assertIn("knows no user", " ".join(self.job_of("bob").wait(harness.LIMIT_S).stderr.decode().split()))
        self.job_of("carol").wait(harness.LIMIT_S)
        harness.wait_until(lambda: {job["user"] for job in self.jobs_of(OPERATOR)} == {"bob", "carol"}, "both in the list")
        self.assertEqual([job["user"] for job in self.jobs_of(READ["carol"])], ["carol"])

    def test_what_it_refuses(self):
        def refusal(*options, env=None):
            done = self.run_program([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--out", self.path("jobs"), "--users", self.path("users"), *options], env=env or {})
            self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1), done)
            return done.stderr.decode()
        self.assertIn("users: No such file", refusal())
        self.write_users("alice", mode=0o640)
        self.assertIn("chmod 600 ", refusal())
        self.write_users(text="alice short\n")
        self.assertIn("users:1: HUB-TOKEN: the token must have 16 to 512 characters; to make one: openssl rand -hex 32", refusal())
        self.write_users("alice")
        self.assertIn("--http-token", refusal("--http", "127.0.0.1:0", env={"GPUPROBE_HTTP_TOKEN": READ["alice"]}))
        done = self.run_program([GPUPROBE, "hub", "--user-jobs", "3"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("--users", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
