"""The rules in the host (CONTRIBUTING.md): no call of the probe's breaks one, however it is loaded; a probe that does is found out."""
import os

import harness
from harness import CUDA_SCRIPT, DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, LIBRARY, PATIENT, SMALL_TRAINING

HOST_RULES = os.path.join(harness.BUILD, "tests", "host_rules", "libhost_rules.so")
BAD_LIBRARY = os.path.join(harness.BUILD, "tests", "host_rules", "libgpuprobe.so")
E2E = os.path.join(harness.BUILD, "tests", "e2e")
# What the bad probe calls, by the rule that it breaks: first what a program survives, then what ends it.
CALLS = {
    "environment": ["clearenv", "setenv", "putenv", "unsetenv"],
    "descriptors": ["close", "dup2", "dup3", "close_range", "read", "recv", "recvmsg", "fcntl", "send", "sendto", "sendmsg", "sendmmsg", "pwrite", "pwrite64", "pwritev"],
    "standard-error": ["write", "writev"],
    "signals": ["sigaction", "signal", "sigprocmask", "pthread_sigmask", "sigaltstack", "kill", "raise"],
    "allocation": ["malloc", "calloc", "realloc", "aligned_alloc", "free"],
    "locks": ["pthread_mutex_lock"],
    "waiting": ["nanosleep", "usleep", "sleep", "poll", "pthread_join"],
    "process": ["fork", "_Fork", "vfork", "clone", "system", "popen", "execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve",
                "execveat", "posix_spawn", "posix_spawnp", "waitpid", "wait", "waitid"],
    "process-state": ["chdir", "umask", "setlocale", "setrlimit", "prlimit"],
    "priority": ["sched_setscheduler", "sched_setparam", "sched_setaffinity", "setpriority", "nice"],
    "threads": ["pthread_create"],
    "system-calls": ["syscall"],
}
LAST_CALLS = ["exit", "_exit", "_Exit", "quick_exit", "abort", "daemon"]

PROGRAMS = {
    "kernels, copies, threads, children": ([CUDA_SCRIPT, "kernels:20", "copies:5", "thread:10", "fork:exit", "fork-exec:kernels:2", "kernels:5", "exit:0"], 1),
    "a training": ([LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], 2),
    "graphs": ([LAUNCH_RANKS, "2", os.path.join(E2E, "captured_collectives")], 2),
    "memory": ([os.path.join(E2E, "memory_calls")], 1),
    "functions named as the C library's": ([os.path.join(E2E, "own_names")], 1),
    "ranges": ([os.path.join(E2E, "nvtx_calls")], 1),
    "Python threads, which are sampled": (["/usr/bin/python3", "-B", os.path.join(harness.SOURCE, "tests", "e2e", "programs", "host_samples.py"), "churn", "1"], 1),
}


class HostRules(harness.EndToEndTest):

    def watched(self, command, devices, extra):
        """Runs the command under the rules; returns the rules that were broken, and how many calls were looked at."""
        path = self.path("rules")
        if os.path.exists(path):
            os.unlink(path)
        self.run_program(command, devices=devices, env={**PATIENT, "HOST_RULES_REPORT": path, **extra})
        self.assert_nothing_runs()
        with open(path, encoding="utf-8") as file:
            lines = [line.split() for line in file]
        checked = sum(int(what) for rule, what in lines if rule == "checked")
        return sorted({(rule, what) for rule, what in lines if rule != "checked"}), checked

    def check(self, loading):
        for name, (command, devices) in PROGRAMS.items():
            with self.subTest(program=name):
                broken, checked = self.watched(command, devices, loading)
                self.assertEqual(broken, [])
                self.assertGreater(checked, 20, "the rules did not see the probe")

    def test_injection(self):
        self.check({"LD_PRELOAD": HOST_RULES, "CUDA_INJECTION64_PATH": LIBRARY})

    def test_preload(self):
        self.check({"LD_PRELOAD": f"{HOST_RULES}:{LIBRARY}"})

    def test_run(self):
        for name, (command, devices) in PROGRAMS.items():
            with self.subTest(program=name):
                broken, checked = self.watched([GPUPROBE, "run", "--", *command], devices, {"LD_PRELOAD": HOST_RULES})
                self.assertEqual(broken, [])
                self.assertGreater(checked, 20, "the rules did not see the probe")

    def broken_by(self, calls):
        return self.watched([CUDA_SCRIPT, "kernels:1", "exit:0"], 1, {"LD_PRELOAD": HOST_RULES, "CUDA_INJECTION64_PATH": BAD_LIBRARY, "BREAK_CALLS": calls,
                                                                      "GPUPROBE_AUTOSTART": "0", "GPUPROBE_EXIT_WAIT_MS": "1000"})[0]

    def test_every_call_is_found_that_breaks_a_rule(self):
        self.assertEqual(self.broken_by("all"), sorted((rule, call) for rule, calls in CALLS.items() for call in calls))

    def test_every_call_is_found_that_ends_the_program(self):
        for call in LAST_CALLS:
            with self.subTest(call=call):
                self.assertEqual(self.broken_by(call), [("process", call)])

    def test_one_rule_is_broken_without_another(self):
        """Each by its first call."""
        for rule, (call, *_) in CALLS.items():
            with self.subTest(rule=rule):
                self.assertEqual({broken for broken, _ in self.broken_by(call)}, {rule})

    def test_the_rules_are_those_that_are_written_down(self):
        with open(os.path.join(harness.SOURCE, "CONTRIBUTING.md"), encoding="utf-8") as file:
            text = file.read()
        for rule in CALLS:
            self.assertIn(f"| `{rule}` |", text)


if __name__ == "__main__":
    harness.main()
