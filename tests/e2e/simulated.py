"""What is true of a job of `gpuprobe simulate`: the expected report, computed from its schedule alone (tests/collector/simulate/truth.h)."""
import json
import os
import subprocess
import sys

BUILD = os.environ.get("GPUPROBE_BUILD_DIR") or sys.exit("GPUPROBE_BUILD_DIR is not set")
GPUPROBE = os.path.join(BUILD, "collector", "gpuprobe")
TRUTH = os.path.join(BUILD, "tests", "collector", "simulate_truth")


def truth(*arguments):
    """Of the job that `gpuprobe simulate` makes with these arguments."""
    passed = []
    for word in arguments:
        if word.startswith("--"):
            passed.append(word + "=1")
        else:
            passed[-1] = passed[-1].removesuffix("=1") + "=" + word
    return json.loads(subprocess.run([TRUTH, *passed], check=True, capture_output=True, text=True, timeout=300).stdout)
