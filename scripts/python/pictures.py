"""Makes docs/pictures/ and samples/report.png; scripts/pictures.sh runs it.

A finding's picture is the one that the page draws beside it, after the commands that the finding's own page in docs/findings shows. Findings that no simulated
job has are caused for real, in programs on the simulated node. The pictures of the page itself are of one run, in which a GPU becomes slow.
"""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid

from playwright.sync_api import sync_playwright

SOURCE = os.environ["GPUPROBE_SOURCE_DIR"]
BUILD = os.environ["GPUPROBE_BUILD_DIR"]
sys.path.append(os.path.join(SOURCE, "tests", "e2e"))
import finding_pages

GPUPROBE = finding_pages.GPUPROBE
PICTURES = os.path.join(SOURCE, "docs", "pictures")
MOST_BYTES = 60_000
PAGE_RUN = ["--scenario", "straggler-late", "--ranks", "8", "--steps", "120", "--slow-from", "0.3", "--nvtx"]
# Parts of the page, by the name of their picture.
PARTS = {"page-header": "header", "page-findings": "#findings", "page-steps": "#steps", "page-heat-map": "#ranks-by-steps", "page-timeline": "#timeline", "page-where": "#step-times",
         "page-bandwidth": "#bandwidth", "page-memory": "#memory", "page-ranks": "#ranks", "page-ranges": "#phases .icicle", "page-conditions": "#conditions"}
COMPARED_RUNS = {"my-run": "straggler-kernels", "fixed-run": "healthy"}
LAUNCH_RANKS = os.path.join(SOURCE, "samples", "launch_ranks.sh")
DDP_TRAIN = os.path.join(BUILD, "samples", "ddp_train")
TRAINING = ["--layers", "12", "--width", "512", "--batch", "64", "--bucket-mib", "4"]
NODE = {"GPUSIM_DEVICE_NAME": "NVIDIA L40S", "GPUSIM_MEMORY_GIB": "48", "GPUSIM_LINK": "alpha=25us,beta=12GB/s",
        "GPUSIM_KERNELS": "LinearForward=300us;LinearBackwardInput=320us;LinearBackwardWeight=340us;AdamStep=40us;MseLoss=25us"}
REFUSED = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
for gib, refused in ((20, 0), (24, 0), (6, 2), (2, 0)):
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(gib << 30)) == refused
    time.sleep(1)
time.sleep(10)
"""


class RealRun:
    """A command under `gpuprobe run` on the simulated node."""

    def __init__(self, folder, command, ranks=1, options=(), **env):
        self.out = os.path.join(folder, "run")
        self._mark = uuid.uuid4().hex
        env = {**os.environ, **NODE, "GPUSIM_DEVICES": str(ranks), "LD_LIBRARY_PATH": os.path.join(BUILD, "tests", "sim", "lib"), "PICTURE": self._mark, **env}
        self.process = subprocess.Popen([GPUPROBE, "run", "--quiet", "--out", self.out, *options, "--", *command], env=env, cwd=folder,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def pid_of(self, rank):
        """The process of a rank, once it is there."""
        wanted = {b"PICTURE=" + self._mark.encode(), b"RANK=%d" % rank}
        while True:
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    with open(f"/proc/{pid}/environ", "rb") as file:
                        found = wanted <= set(file.read().split(b"\0"))
                    if found and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(DDP_TRAIN):
                        return int(pid)
            time.sleep(0.1)

    def end(self):
        self.process.wait(120)
        return self.out


def rank_died(folder):
    run = RealRun(folder, [LAUNCH_RANKS, "4", DDP_TRAIN, "--steps", "3000", *TRAINING], ranks=4)
    pid = run.pid_of(2)
    time.sleep(4)
    os.kill(pid, signal.SIGKILL)
    return run.end()


def rank_stopped(folder):
    run = RealRun(folder, [LAUNCH_RANKS, "4", DDP_TRAIN, "--steps", "400", *TRAINING], ranks=4)
    pid = run.pid_of(2)
    for number, seconds in ((signal.SIGSTOP, 3), (signal.SIGCONT, 0)):
        time.sleep(2 if number == signal.SIGSTOP else 0)
        os.kill(pid, number)
        time.sleep(seconds)
    return run.end()


def hang_over(folder):
    run = RealRun(folder, [LAUNCH_RANKS, "3", os.path.join(BUILD, "tests", "e2e", "collective_troubles"), "held", "0"], ranks=3, options=["--hang-after", "2"],
                  GPUSIM_LINK="alpha=10us,beta=100GB/s")
    for name, seconds in (("go", 6), ("end", 2)):
        time.sleep(seconds)
        with open(os.path.join(folder, name), "w", encoding="utf-8"):
            pass
    return run.end()


def allocation_failed(folder):
    return RealRun(folder, ["python3", "-c", REFUSED], RANK="0", WORLD_SIZE="1").end()


def costly_capture(folder):
    return RealRun(folder, [os.path.join(BUILD, "tests", "e2e", "eager_launches"), "300000", "1"], GPUSIM_KERNELS=".*=100ns").end()


REAL = {"rank-died": rank_died, "rank-stopped": rank_stopped, "hang-over": hang_over, "allocation-failed": allocation_failed, "costly-capture": costly_capture}


def page_of(finding, folder):
    """A page that reports the finding."""
    if finding in REAL:
        return os.path.join(REAL[finding](folder), "report.html")
    text = finding_pages.text_of(finding)
    finding_pages.run_screen(text, folder)
    last = finding_pages.screen_on(text)[0][-1]
    if not last.startswith("gpuprobe report"):
        return os.path.join(folder, finding, "report.html")
    path = os.path.join(folder, "report.html")
    with open(path, "wb") as file:
        subprocess.run(["bash", "-euc", f"{last} --html"], cwd=folder, env={**os.environ, "PATH": f"{os.path.dirname(GPUPROBE)}:/usr/bin:/bin"}, stdout=file, check=True)
    return path


class Camera:
    def __init__(self, browser):
        self._browser = browser

    @contextlib.contextmanager
    def open(self, path, width=1280, height=1000, scale=1):
        context = self._browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=scale, color_scheme="light", reduced_motion="reduce")
        page = context.new_page()
        page.goto("file://" + path)
        page.wait_for_selector("html[data-ready=true]")
        yield page
        context.close()

    def keep(self, path, picture, colours=64):
        """Writes the PNG with few colours: text and charts have few."""
        small = subprocess.run(["pngquant", "--speed", "1", "--strip", str(colours), "-"], input=picture, capture_output=True, check=True).stdout
        if len(small) > MOST_BYTES and colours > 16:
            return self.keep(path, picture, colours // 2)
        with open(path, "wb") as file:
            file.write(small)
        print(f"{os.path.relpath(path, SOURCE)}: {len(small):,} bytes")


def pictured():
    """The findings whose page shows a picture."""
    return [finding for finding in finding_pages.conditions()[0] if f"../pictures/{finding}.png" in finding_pages.text_of(finding)]


def take_finding(camera, finding):
    with tempfile.TemporaryDirectory(prefix="gpuprobe-picture-") as folder, camera.open(page_of(finding, folder), scale=2) as page:
        camera.keep(os.path.join(PICTURES, finding + ".png"), page.locator(f".finding[data-id={finding}] .picture").first.screenshot())


def take_page(camera, chosen):
    with tempfile.TemporaryDirectory(prefix="gpuprobe-picture-") as folder:
        run = os.path.join(folder, "straggler")
        subprocess.run([GPUPROBE, "simulate", *PAGE_RUN, "--out", run], check=True, capture_output=True)
        with camera.open(os.path.join(run, "report.html")) as page:
            for name, part in PARTS.items():
                if name in chosen:
                    camera.keep(os.path.join(PICTURES, name + ".png"), page.locator(part).first.screenshot())
            if "page-kernel" in chosen:
                page.locator("#kernel-table tbody tr", has_text="gemm").first.locator("th button").click()
                camera.keep(os.path.join(PICTURES, "page-kernel.png"), page.locator("#kernel-detail").screenshot())
                page.get_by_role("button", name="Close the chosen kernel").click()
            if "report" in chosen:
                page.evaluate("scrollTo(0, 0)")
                camera.keep(os.path.join(SOURCE, "samples", "report.png"), page.screenshot())


def take_diff(camera, chosen):
    if "page-diff" not in chosen:
        return
    with tempfile.TemporaryDirectory(prefix="gpuprobe-picture-") as folder:
        for name, scenario in COMPARED_RUNS.items():
            subprocess.run([GPUPROBE, "simulate", "--scenario", scenario, *PAGE_RUN[2:6], "--out", os.path.join(folder, name)], check=True, capture_output=True)
        path = os.path.join(folder, "change.html")
        with open(path, "wb") as file:
            subprocess.run([GPUPROBE, "diff", "my-run", "fixed-run", "--html"], cwd=folder, stdout=file, check=True)
        with camera.open(path) as page:
            camera.keep(os.path.join(PICTURES, "page-diff.png"), page.screenshot())


def main():
    os.makedirs(PICTURES, exist_ok=True)
    all_names = [*pictured(), *PARTS, "page-kernel", "page-diff", "report"]
    chosen = sys.argv[1:] or all_names
    if unknown := set(chosen) - set(all_names):
        sys.exit(f"no such picture: {', '.join(sorted(unknown))}; there are {', '.join(all_names)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        camera = Camera(browser)
        for finding in pictured():
            if finding in chosen:
                take_finding(camera, finding)
        take_page(camera, chosen)
        take_diff(camera, chosen)
        browser.close()


if __name__ == "__main__":
    main()
