"""Whatever is wrong around the probe, the program's output and exit status are byte for byte those of a run without it."""
import os
import socket

import harness
from harness import CUDA_SCRIPT, DDP_TRAIN, LAUNCH_RANKS, LIBRARY, SIM_LIB, SMALL_TRAINING, VECTOR_ADD
from hazards import hazard

LOADINGS = {"injection": {"CUDA_INJECTION64_PATH": LIBRARY}, "preload": {"LD_PRELOAD": LIBRARY}}


class HostIsSacred(harness.EndToEndTest):

    def same_as_without(self, extra, sim_lib=None, commands=None):
        training = [LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING]
        failing = [CUDA_SCRIPT, "print:begin", "kernels:10", "copies:2", "print:end", "return:7"]
        for command in commands or [[VECTOR_ADD], failing, training]:
            plain = self.run_program(command, devices=2, sim_lib=sim_lib)
            for name, loading in LOADINGS.items():
                with self.subTest(command=os.path.basename(command[0]), loading=name):
                    probed = self.run_program(command, devices=2, sim_lib=sim_lib, env={**loading, **extra})
                    self.assertEqual(probed.outcome, plain.outcome, str(probed))
        self.assert_nothing_runs()
        self.assertEqual(os.listdir(self.cwd), [])
        self.assertEqual(os.listdir(self.path("tmp")), [])

    @hazard("no collector is running, and none may be started", sees="output and status unchanged, nothing written",
            counted="nothing is recorded")
    def test_no_collector_and_none_to_be_started(self):
        self.same_as_without({"GPUPROBE_AUTOSTART": "0"})

    @hazard("GPUPROBE_SOCKET names a folder that does not exist", sees="output and status unchanged, nothing written",
            counted="nothing is recorded")
    def test_socket_in_a_folder_that_is_not_there(self):
        self.same_as_without({"GPUPROBE_SOCKET": self.path("no-such-folder", "x.sock"), "GPUPROBE_AUTOSTART": "0"})

    @hazard("GPUPROBE_SOCKET names a file that is not a socket", sees="output and status unchanged, the file is left alone",
            counted="nothing is recorded")
    def test_socket_that_is_a_file(self):
        with open(self.path("not-a-socket"), "w", encoding="utf-8") as file:
            file.write("text")
        self.same_as_without({"GPUPROBE_SOCKET": self.path("not-a-socket"), "GPUPROBE_AUTOSTART": "0"})

    @hazard("GPUPROBE_SOCKET is too long for a socket path", sees="output and status unchanged",
            counted="one line says so; nothing is recorded")
    def test_socket_path_that_is_too_long(self):
        self.says_one_line({"GPUPROBE_SOCKET": "/tmp/" + "x" * 300, "GPUPROBE_AUTOSTART": "0"}, b"GPUPROBE_SOCKET is too long")

    @hazard("the socket's owner never accepts", sees="no wait beyond GPUPROBE_EXIT_WAIT_MS, output and status unchanged",
            counted="nothing is recorded")
    def test_listener_that_never_accepts(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
            mute.bind(self.path("mute.sock"))
            mute.listen(1)
            self.same_as_without({"GPUPROBE_SOCKET": self.path("mute.sock"), "GPUPROBE_AUTOSTART": "0"})

    @hazard("GPUPROBE_DISABLE=1", sees="output and status unchanged",
            counted="nothing is recorded")
    def test_disabled(self):
        self.same_as_without({"GPUPROBE_DISABLE": "1"})

    def says_one_line(self, settings, word):
        """What a person got wrong is said once, and changes nothing else."""
        plain = self.run_well([VECTOR_ADD])
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                probed = self.run_well([VECTOR_ADD], env={**loading, "GPUPROBE_AUTOSTART": "0", **settings})
                self.assertEqual(probed.stdout, plain.stdout)
                self.assertEqual(len(probed.stderr.splitlines()), 1, str(probed))
                self.assertIn(word, probed.stderr)

    @hazard("settings have unusable values", sees="output and status unchanged",
            counted="one line names each with its range; defaults are used")
    def test_settings_that_make_no_sense_are_said_in_one_line(self):
        self.says_one_line({"GPUPROBE_BUFFERS": "many", "GPUPROBE_QUEUE_MIB": "-5"}, b"GPUPROBE_BUFFERS=many is ignored: must be a whole number from 2 to 256; GPUPROBE_QUEUE_MIB=-5 is ignored")

    @hazard("an unknown GPUPROBE_... variable is set", sees="output and status unchanged",
            counted="one line names it")
    def test_unknown_setting_is_said_in_one_line(self):
        self.says_one_line({"GPUPROBE_NO_SUCH": "1"}, b"GPUPROBE_NO_SUCH")

    @hazard("there is no libcupti", sees="output and status unchanged",
            counted="no GPU work is recorded")
    def test_no_libcupti_on_the_node(self):
        """The toolkit's own libcupti, if the loader knows one, is then what the probe meets, on a driver that is not its own."""
        self.same_as_without({"GPUPROBE_AUTOSTART": "0"}, sim_lib=self.node_without_cupti())

    @hazard("libcupti is not a library", sees="output and status unchanged",
            counted="no GPU work is recorded")
    def test_libcupti_that_is_no_library(self):
        folder = self.node_without_cupti()
        for name in ("libcupti.so.13", "libcupti.so.12", "libcupti.so"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"not an object file")
        self.same_as_without({"GPUPROBE_AUTOSTART": "0"}, sim_lib=folder)

    @hazard("there is a collector, but no usable libcupti", sees="output and status unchanged",
            counted="collectives and ranges are recorded, kernels are not")
    def test_no_libcupti_with_a_collector(self):
        """Collectives and ranges can still be recorded, and the report says that GPU activity was not."""
        folder = self.node_without_cupti()
        with open(os.path.join(folder, "libcupti.so.13"), "wb") as file:
            file.write(b"not an object file")
        command = [LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING]
        plain = self.run_well(command, devices=2, sim_lib=folder)
        collector = harness.Collector(self)
        probed = self.run_well(command, devices=2, sim_lib=folder, env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY})
        self.assertEqual(probed.outcome, plain.outcome)
        self.assertEqual(collector.stop().returncode, 0)
        report = self.report(collector.out)
        self.assertEqual(len(report["ranks"]), 2)
        self.assertEqual([rank["kernels"]["count"] for rank in report["ranks"]], [0, 0])

    def node_without_cupti(self):
        folder = self.path("node-without-cupti")
        os.mkdir(folder)
        for name in os.listdir(SIM_LIB):
            if "cupti" not in name:
                os.symlink(os.path.join(SIM_LIB, name), os.path.join(folder, name))
        return folder

    def test_output_is_the_same_while_recording(self):
        collector = harness.Collector(self)
        for command in ([VECTOR_ADD], [CUDA_SCRIPT, "print:begin", "kernels:10", "print:end", "return:7"]):
            plain = self.run_program(command)
            probed = self.run_program(command, env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY})
            self.assertEqual(probed.outcome, plain.outcome)
        self.assertEqual(collector.stop().returncode, 0)


if __name__ == "__main__":
    harness.main()
