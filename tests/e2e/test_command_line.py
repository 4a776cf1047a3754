"""The command line as somebody meets it who has never seen it: misspelt words, values that cannot be used, output that cannot be written."""
import json
import os
import re

import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, LIBRARY, PATIENT, VECTOR_ADD, wait_until

TRUE = "/bin/true"


class CommandLine(harness.EndToEndTest):

    def refused(self, *arguments, says, code=2):
        finished = self.run_program([GPUPROBE, *arguments])
        said = finished.stderr.decode()
        self.assertEqual(finished.returncode, code, str(finished))
        for text in says if isinstance(says, tuple) else (says,):
            self.assertIn(text, said, str(finished))
        self.assertEqual(said.count("\n"), 1, "one line: " + said)
        given = " ".join(arguments)
        self.assertEqual([n for n in re.findall(r"\d{15,}", said) if n not in given], [], "a number that nobody gave")
        self.assertEqual(finished.stdout, b"", "errors belong on standard error")
        return said

    def simulated(self, ranks=2, steps=20, scenario="healthy"):
        out = self.path(f"{scenario}-{ranks}")
        self.run_well([GPUPROBE, "simulate", "--scenario", scenario, "--ranks", str(ranks), "--steps", str(steps), "--out", out])
        return out

    def test_help_and_version_are_where_people_look(self):
        version = self.run_well([GPUPROBE, "--version"]).stdout
        for arguments in (("-V",), ("version",)):
            self.assertEqual(self.run_well([GPUPROBE, *arguments]).stdout, version)
        for command in ("run", "collect", "report", "diff", "top", "trace", "export", "query", "simulate", "version"):
            with self.subTest(command):
                shown = self.run_well([GPUPROBE, "help", command])
                self.assertEqual(shown.stdout, self.run_well([GPUPROBE, command, "--help"]).stdout)
                self.assertIn(f"gpuprobe {command}".encode(), shown.stdout)

    def test_near_misses_are_recognised(self):
        self.refused("reprot", "x", says="did you mean report?")
        self.refused("--versoin", says="did you mean --version?")
        self.refused("run", "--hang-afer", "5", "--", TRUE, says="unknown option --hang-afer; did you mean --hang-after?")
        self.refused("run", "--chekc=5", "--", TRUE, says="unknown option --chekc; did you mean --check?")
        self.refused("report", "--jsn", self.cwd, says="unknown option --jsn; did you mean --json?")
        self.refused("simulate", "--scenario", "helthy", says="did you mean healthy?")
        self.refused("help", "enviroment", says="did you mean environment?")
        self.refused("report", "--flops-type", "bf61", self.cwd, says="did you mean bf16?")
        self.refused(self.cwd, says=f"did you mean gpuprobe report {self.cwd}?")
        self.refused("cat", "file", says="did you mean gpuprobe run -- cat?")
        self.refused("--", TRUE, says="gpuprobe run --")

    def test_what_is_near_to_nothing_suggests_nothing(self):
        for arguments in (("frobnicate",), ("report", "--frobnicate", self.cwd), ("run", "--frobnicate", "--", TRUE)):
            said = self.refused(*arguments, says="frobnicate")
            self.assertNotIn("did you mean", said)
        # Options of a subcommand are no subcommands.
        self.assertNotIn("simulate", self.refused("--frobnicate", says="unknown option"))

    def test_values_that_cannot_be_used_are_named_with_what_can(self):
        run = ("run", *("--", TRUE))
        for option, value, says in (("--keep", "-5GiB", "must be a size of at least 16.0 MiB"), ("--keep", "5XB", "such as 512MiB"),
                                    ("--keep", "99999999999999999999GiB", "must be a size"), ("--keep", "16", "at least 16.0 MiB"),
                                    ("--hang-after", "abc", "must be a whole number from 1 to 31536000"), ("--hang-after", "0", "from 1 to 31536000"),
                                    ("--hang-after", "-3", "from 1 to 31536000"), ("--hang-after", "1e3", "must be a whole number"),
                                    ("--check", "99999999999999999999", "must be a whole number from 1 to 1000000"),
                                    ("--link-peak", "fast", "must be a positive number"), ("--every-steps", "0", "from 1 to 1000000"),
                                    ("--status", "-1", "from 0 to 86400")):
            with self.subTest(f"{option} {value}"):
                self.refused(run[0], option, value, *run[1:], says=(option, says, "got"))
        self.refused("simulate", "--scenario", "healthy", "--seed", "-1", says="must be a whole number")
        self.refused("report", "--json=abc", self.cwd, says="--json takes no value")

    def test_values_that_are_missing(self):
        self.refused("run", "--out=", "--", TRUE, says="--out needs a value")
        self.refused("run", "--out", "", "--", TRUE, says="--out: must not be empty")
        self.refused("run", "--hang-after", "--", TRUE, says="--hang-after needs a value")
        self.refused("collect", "--socket", "", says="--socket: must not be empty")
        self.refused("export", self.cwd, "another", says='unexpected argument "another"')

    def test_top_says_what_a_directory_is(self):
        self.refused("top", "nodir", says="nodir: no such directory", code=1)
        self.refused("top", self.cwd, says="is not a run directory", code=1)
        self.refused("top", "/dev/null", says="is a file, not a run directory", code=1)
        run = self.simulated()
        self.refused("top", run, says=("not being recorded", f"gpuprobe report {run}"), code=1)
        # As a collector that was killed leaves it.
        with open(os.path.join(run, "live.json"), "w", encoding="utf-8"):
            pass
        os.utime(os.path.join(run, "live.json"), (0, 0))
        self.refused("top", run, says="has written nothing for", code=1)

    def test_a_socket_does_not_make_its_folder(self):
        folder = self.path("not", "there")
        self.refused("collect", "--socket", os.path.join(folder, "x.sock"), "--out", self.path("out"), says=(f"{folder}: no such directory", "--socket"), code=1)
        self.assertFalse(os.path.exists(self.path("not")))
        self.assertFalse(os.path.exists(self.path("out")))

    def test_output_that_cannot_be_written_is_a_failure(self):
        run = self.simulated()
        for arguments in (("report", run), ("report", run, "--json"), ("report", run, "--html"), ("export", run), ("diff", run, run), ("simulate", "--list"),
                          ("help",), ("help", "environment"), ("--help",), ("report", "--help"), ("version",), ("--version",)):
            with self.subTest(" ".join(arguments)):
                for output, why in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
                    finished = self.run_program(["/bin/sh", "-c", f'exec "$0" "$@" {output}', GPUPROBE, *arguments])
                    self.assertEqual(finished.returncode, 1, str(finished))
                    self.assertEqual(finished.stderr.decode().splitlines()[-1:], [f"gpuprobe: {arguments[0]}: cannot write to standard output: {why}"])

    def test_a_command_whose_output_is_closed_finds_it_closed(self):
        finished = self.run_program(["/bin/sh", "-c", 'exec "$0" run -- /bin/sh -c "echo x" >&-', GPUPROBE])
        self.assertNotEqual(finished.returncode, 0)
        self.assertIn(b"echo: I/O error", finished.stderr)  # what the shell says without us


class Environment(harness.EndToEndTest):

    def said_with(self, **settings):
        env = {"CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_AUTOSTART": "0", **PATIENT, **settings}
        return self.run_well([VECTOR_ADD], env=env).stderr.decode()

    def test_a_setting_that_cannot_be_used_is_said_with_its_value_and_what_can(self):
        self.assertIn("gpuprobe: GPUPROBE_OVERHEAD_BUDGET=0.01 is ignored: must be a whole number from 0 to 100 %\n",
                      self.said_with(GPUPROBE_OVERHEAD_BUDGET="0.01"))
        self.assertIn("GPUPROBE_VERBOSE=yes is ignored: must be 0 or 1\n", self.said_with(GPUPROBE_VERBOSE="yes"))

    def test_every_setting_says_what_it_must_be(self):
        """All at once, from the table that --help shows."""
        rows = re.findall(r"^\| `(GPUPROBE_\w+)` \| ([^|]+) \|", self.run_well([GPUPROBE, "help", "environment", "--markdown"]).stdout.decode(), re.M)
        self.assertGreater(len(rows), 15)
        for name, values in rows:
            number = re.match(r"(\d+) to (\d+)", values)
            if not number and values != "0 or 1" or name in ("GPUPROBE_AUTOSTART", "GPUPROBE_DISABLE"):
                continue
            with self.subTest(name):
                said = self.said_with(**{name: "-7"})
                self.assertIn(f"{name}=-7 is ignored: must be {'a whole number from ' if number else ''}{values}", said)

    def test_settings_that_contradict_each_other(self):
        said = self.said_with(GPUPROBE_STOP_AFTER_S="3", GPUPROBE_START_AFTER_S="5", GPUPROBE_EVERY_STEPS="2", GPUPROBE_KINDS="kernel")
        self.assertIn("GPUPROBE_KINDS=kernel is ignored: must be a list of kernels, copies", said)
        self.assertIn("GPUPROBE_STOP_AFTER_S=3 is ignored: must be greater than GPUPROBE_START_AFTER_S", said)
        self.assertIn("GPUPROBE_EVERY_STEPS=2 is ignored: needs GPUPROBE_STEP_MARKER", said)

    def test_a_name_that_is_misspelt(self):
        self.assertIn("unknown setting GPUPROBE_OVERHEAD_BUGDET; did you mean GPUPROBE_OVERHEAD_BUDGET?", self.said_with(GPUPROBE_OVERHEAD_BUGDET="3"))


class Counts(harness.EndToEndTest):

    def test_devices_that_every_rank_sees_count_once(self):
        """Four ranks, each of which sees four devices."""
        out = self.path("run")
        program = self.start([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, "4", DDP_TRAIN, "--steps", "100000"], devices=4, env=PATIENT)

        def screen_of_all():
            screen = self.run_program([GPUPROBE, "top", out, "--once"]).stdout.decode()
            # A rank has memory once it has described its devices.
            return screen if len(re.findall(r"[1-9][\d.]* [KMG]iB$", screen, re.M)) >= 4 else ""

        screen = wait_until(screen_of_all, "four ranks on the screen")
        program.signal(harness.signal.SIGTERM)
        program.wait()
        self.assertIn("4x Simulated GPU", screen)

    def test_devices_of_two_hosts_with_the_same_ordinals_count_all(self):
        out = self.path("run")
        self.run_well([GPUPROBE, "simulate", "--scenario", "pipeline-hosts", "--out", out, "--steps", "12"])
        with open(out + "/report.json", encoding="utf-8") as file:
            report = json.load(file)
        self.assertGreater(len(report["conditions"]["hosts"]), 1)
        self.assertEqual(len(report["conditions"]["devices"]), len(report["ranks"]))


class ManyRanks(harness.EndToEndTest):
    RANKS = 1024

    def test_the_page_and_the_report_of_1024_ranks_show_what_matters(self):
        out = self.path("run")
        self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-at-scale", "--ranks", str(self.RANKS), "--steps", "12", "--out", out])
        sizes = {name: os.path.getsize(os.path.join(out, name)) for name in ("report.json", "ranks.json", "report.html")}
        self.assertLess(sizes["report.json"], 1_000_000)
        self.assertLess(sizes["report.html"], 5_000_000, "a page that opens soon")
        with open(out + "/report.json", encoding="utf-8") as file:
            report = json.load(file)
        with open(out + "/ranks.json", encoding="utf-8") as file:
            detail = json.load(file)
        self.assertEqual(report["ranks_in"], "ranks.json")
        self.assertEqual(detail["schema_version"], report["schema_version"])
        self.assertEqual([r["rank"] for r in report["ranks"]], list(range(self.RANKS)))
        for brief, whole in zip(report["ranks"], detail["ranks"]):
            self.assertPartOf(brief, whole)
        shown = json.loads(self.run_well([GPUPROBE, "report", out, "--json"]).stdout)
        self.assertEqual(shown["ranks"], report["ranks"])
        whole = json.loads(self.run_well([GPUPROBE, "report", out, "--json", "--ranks"]).stdout)
        self.assertEqual(whole["ranks"], detail["ranks"])
        self.assertIsNone(whole["ranks_in"])
        with open(out + "/report.html", encoding="utf-8") as file:
            page = file.read()
        culprit = report["stragglers"][0]["rank"]
        for table in ("ranks", "rank-steps"):
            rows = re.findall(r"<tr([^>]*)><td class=\"l\">([^<]*)</td>", page[page.index(f'<section id="{table}">'):page.index("</section>", page.index(f'<section id="{table}">'))])
            self.assertIn("named", rows[0][0], "the rank that the finding names comes first, and is marked")
            self.assertTrue(rows[0][1].endswith(f"/{culprit}") or rows[0][1] == str(culprit), rows[0])
        self.assertIn(f"{self.RANKS:,}x NVIDIA", page)

    def assertPartOf(self, part, whole):
        if isinstance(part, dict):
            for name, value in part.items():
                self.assertIn(name, whole)
                self.assertPartOf(value, whole[name])
        else:
            self.assertEqual(part, whole)

    def test_a_few_ranks_stay_in_one_file(self):
        out = self.path("run")
        self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-kernels", "--ranks", "8", "--steps", "20", "--out", out])
        self.assertFalse(os.path.exists(out + "/ranks.json"))
        with open(out + "/report.json", encoding="utf-8") as file:
            report = json.load(file)
        self.assertIsNone(report["ranks_in"])
        self.assertTrue(all(r["top_kernels"] for r in report["ranks"]))


class StepMarker(harness.EndToEndTest):
    """One marker means the same to the collector and to the probe."""
    STEPS = 14
    TRAINING = ["--steps", str(STEPS), "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.01", "--epoch", "100", "--log-every", "100"]

    def steps_of(self, marker, *options):
        out = self.path(f"run-{len(os.listdir(self.folder))}")
        self.run_well([GPUPROBE, "run", "--out", out, "--step-marker", marker, *options, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *self.TRAINING], devices=2,
                      env={**PATIENT, "GPUSIM_KERNELS": ".*=50us"})
        return self.report(out)["steps"]

    def test_a_name_is_the_whole_name_and_a_star_any_text_with_and_without_chosen_steps(self):
        for marker in ("nvtx:step", "nvtx:st*p"):
            self.assertEqual(self.steps_of(marker)["count"], self.STEPS, marker)
            self.assertEqual(self.steps_of(marker, "--start-step", "4")["count"], self.STEPS - 4, marker)
        self.assertIsNone(self.steps_of("nvtx:ste"))
        self.assertIsNone(self.steps_of("nvtx:ste", "--start-step", "4"))

    def test_calls_are_counted_alike(self):
        self.assertEqual(self.steps_of("collective:allreduce/4")["count"], self.STEPS)
        # Only the end of the last step is not seen, because no next step begins.
        self.assertIn(self.steps_of("collective:allreduce/4", "--start-step", "4")["count"], (self.STEPS - 4, self.STEPS - 3))

    def test_regular_expressions_are_refused_with_what_to_write(self):
        for marker in ("nvtx:^step$", "nvtx:step.*", "kernel:fwd|bwd"):
            finished = self.run_program([GPUPROBE, "run", "--step-marker", marker, "--", TRUE])
            self.assertEqual(finished.returncode, 2)
            self.assertIn(b"a * stands for any text", finished.stderr)


class Check(harness.EndToEndTest):

    def test_more_steps_than_were_asked_for_are_explained(self):
        finished = self.run_well([GPUPROBE, "run", "--out", self.path("run"), "--check", "5", "--", LAUNCH_RANKS, "2", DDP_TRAIN, "--steps", "60"], devices=2, env=PATIENT)
        said = re.search(r"check after (\d+) steps( \([^)]*\))?:", finished.stderr.decode())
        self.assertIsNotNone(said, str(finished))
        self.assertGreaterEqual(int(said[1]), 5)
        self.assertEqual(said[2] is not None and "5 requested" in said[2], int(said[1]) > 5)

    def test_the_help_says_what_is_counted(self):
        help_text = " ".join(self.run_well([GPUPROBE, "run", "--help"]).stdout.decode().split())
        self.assertIn("steps after the warm-up are known", help_text)


if __name__ == "__main__":
    harness.main()
