"""Training in which the host keeps the GPU waiting for a known reason: host_causes.py KIND [--annotate] [--steps N]

The line that is to blame ends in `# KIND`. --annotate: with NVTX ranges around what a careful program has ranges around.
"""
import contextlib
import gc
import logging
import os
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

KIND = sys.argv[1]
ANNOTATE = "--annotate" in sys.argv
STEPS = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else {"checkpoint": 70, "evaluation": 70, "starved": 100, "item": 160, "optimizer": 300}.get(KIND, 40)
HOST = torch.zeros(16384, 4096) if KIND == "pageable" else None
WIDTH, BATCH = 32 if KIND == "optimizer" else 256, 64


@contextlib.contextmanager
def named(name):
    if not ANNOTATE:
        yield
        return
    torch.cuda.nvtx.range_push(name)
    yield
    torch.cuda.nvtx.range_pop()


class Samples(torch.utils.data.Dataset):
    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return BATCH * (STEPS + 1)

    def __getitem__(self, index):
        if self.slow and index % BATCH == 0:
            end = time.perf_counter() + 0.05
            while time.perf_counter() < end:
                sum(range(10_000))  # dataset
        return torch.full((WIDTH,), float(index))


def loader():
    slow = KIND in ("dataset", "workers")
    return torch.utils.data.DataLoader(Samples(slow), batch_size=BATCH, num_workers=1 if KIND == "workers" else 0, prefetch_factor=2 if KIND == "workers" else None)


class Node:
    """Garbage with a circle in it, which only the collector finds."""

    def __init__(self, before):
        self.before, self.me = before, self


class Tired(nn.Module):
    """Another number of rows each time, which a graph of fixed shapes does not serve."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.relu(self.layer(x)) * 2 + 1


def update_by_hand(parameters, moments, norms):
    """Adam, as it is in the paper, with gradients cut at a percentile of what was before."""
    for parameter in parameters:
        limit = sorted(norms)[len(norms) * 9 // 10]  # optimizer
        gradient, (first, second) = parameter.grad.clamp(-limit, limit), moments[parameter]
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        step = first / 0.19
        step /= (second / 0.002).sqrt_().add_(1e-8)
        parameter.data.add_(step, alpha=-1e-3)


def evaluate(model):
    with torch.no_grad():
        for _ in range(20):
            model(torch.zeros(BATCH, WIDTH, device="cuda"))
            time.sleep(0.01)  # evaluation


def save(model):
    torch.save({"model": [p.cpu() for p in model.parameters()], "state": list(range(1_500_000))}, "checkpoint.pt")  # checkpoint


def crunch(stop):
    while not stop.is_set():
        sum(range(400_000))  # gil


class Hog:
    """Takes three quarters of the one processor that this process leaves itself."""

    def __init__(self):
        self.allowed = os.sched_getaffinity(0)
        processor = min(self.allowed)
        busy = f"import os, time\nos.sched_setaffinity(0, {{{processor}}})\nend = time.monotonic() + 60\nwhile time.monotonic() < end and os.getppid() == {os.getpid()}: pass"
        self.processes = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(3)]
        self.restrict({processor})

    @staticmethod
    def restrict(processors):
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(task), processors)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.restrict(self.allowed)


def hold(lock, stop):
    while not stop.is_set():
        with lock:
            time.sleep(0.05)
        time.sleep(0.001)


def main():
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if ranks > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    layers = 12 if KIND == "optimizer" else 6
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(layers))).cuda()
    trained = DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    offloaded = torch.optim.Adam([nn.Parameter(torch.zeros(1024, 1024)) for _ in range(4)], foreach=False)
    lock, stop = threading.Lock(), threading.Event()
    holder = threading.Thread(target=hold, args=(lock, stop))
    cruncher = threading.Thread(target=crunch, args=(stop,))
    if KIND == "lock":
        holder.start()
    if KIND == "gil":
        cruncher.start()
    if KIND == "garbage":
        gc.set_threshold(20_000, 2, 1)
        old = [Node(None) for _ in range(300_000)]  # noqa: F841
    log = logging.getLogger("training")
    if KIND == "log":
        with contextlib.suppress(FileNotFoundError):
            os.remove("log")
        os.mkfifo("log")
        reader = subprocess.Popen([sys.executable, "-c", "import time\nwith open('log', 'rb', buffering=0) as f:\n while f.read(4096): time.sleep(0.005)"])
        log.addHandler(logging.FileHandler("log"))
        log.setLevel(logging.INFO)
    compiled = torch.compile(Tired().cuda(), dynamic=False, backend="eager") if KIND == "compile" else None
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000  # pylint: disable=protected-access

    moments = {parameter: (torch.zeros_like(parameter), torch.zeros_like(parameter)) for parameter in model.parameters()}
    norms = [float(hash((i, "norm")) % 1000) for i in range(4000)]
    large = HOST.cuda() if KIND == "pageable" else torch.zeros(2048, 2048, device="cuda")
    hog = Hog() if KIND == "starved" and rank == 0 else None

    batches = iter(loader())
    for step in range(STEPS):
        with named("step"):
            with named("load"):
                batch = next(batches)  # workers
                batch = batch.cuda()
            with named("forward"):
                loss = trained(batch).square().mean()
                if compiled is not None:
                    loss = loss + compiled(torch.zeros(step + 2, WIDTH, device="cuda")).mean()  # compile
            with named("backward"):
                loss.backward()
            with named("optimizer"):
                if KIND == "offload":
                    for kept in offloaded.param_groups[0]["params"]:
                        kept.grad = large[:1024, :1024].cpu()
                    offloaded.step()  # offload
                if KIND == "optimizer":
                    update_by_hand(model.parameters(), moments, norms)
                else:
                    optimizer.step()
                optimizer.zero_grad()
            if KIND == "empty_cache":
                made = [torch.empty(32 << 20, dtype=torch.uint8, device="cuda") for _ in range(400)]
                del made
                torch.cuda.empty_cache()  # empty_cache
            elif KIND == "garbage":
                made = [Node(None) for _ in range(40_000)]  # garbage
                del made
            elif KIND == "checkpoint" and rank == 0 and step % 20 == 19:
                save(model)
            elif KIND == "evaluation" and rank == 0 and step % 20 == 19:
                evaluate(model)
            elif KIND == "pageable":
                large.copy_(HOST)  # pageable
            elif KIND == "item":
                for _ in range(20):
                    large = large @ large
                    large.sum().item()  # item
            elif KIND == "lock":
                with lock:  # lock
                    pass
            elif KIND == "log":
                log.info("%d %s", step, "x" * 40_000)  # log
    torch.cuda.synchronize()
    stop.set()
    if hog is not None:
        hog.end()
    if KIND == "lock":
        holder.join()
    if KIND == "gil":
        cruncher.join()
    if KIND == "log":
        logging.shutdown()
        reader.wait()
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()
    print(f"rank {rank}: {STEPS} steps", flush=True)


main()
