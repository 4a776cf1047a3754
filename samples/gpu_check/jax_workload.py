#!/usr/bin/env python3
"""A little JAX; with --profile FOLDER, a third of it under JAX's profiler. Its last line is one JSON object."""
import argparse
import glob
import gzip
import json

import jax
import jax.numpy as jnp

ROUNDS = 100


def gpu_events(folder):
    """How many events of GPUs JAX's profiler wrote."""
    count = 0
    for path in glob.glob(folder + "/**/*.trace.json.gz", recursive=True):
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
        gpus = {event["pid"] for event in events if event.get("name") == "process_name" and "GPU" in event["args"]["name"]}
        count += sum(event.get("ph") == "X" and event["pid"] in gpus for event in events)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", metavar="FOLDER", default="")
    options = parser.parse_args()
    function = jax.jit(lambda a: (a @ a.T).sum())
    x = jnp.ones((1024, 1024))

    def work():
        for _ in range(ROUNDS):
            y = function(x)
        y.block_until_ready()

    work()
    if options.profile:
        jax.profiler.start_trace(options.profile)
    work()
    if options.profile:
        jax.profiler.stop_trace()
    work()
    print(json.dumps({"gpu_events": gpu_events(options.profile) if options.profile else 0, "kernels_at_least": 3 * ROUNDS}))


if __name__ == "__main__":
    main()
