"""Runs a command as a unit of systemd has it run, without systemd: unit_sandbox.py UNIT FOLDER -- COMMAND...

Applied are the restrictions that could break the command, from the unit's own lines: its user, mounts (ProtectSystem, ProtectHome, PrivateTmp, and the folders that it may
write), capabilities, NoNewPrivileges, address families, system calls, MemoryDenyWriteExecute and RestrictNamespaces. Not applied are those that these cover (ProtectKernel...,
ProtectClock, ProtectHostname, RestrictRealtime: their calls or capabilities are gone), and DevicePolicy, PrivateUsers and cgroup limits, which need systemd as PID 1.
FOLDER stays writable: the test's workspace. Must be root, in a mount namespace that nobody else uses.
"""
import ctypes
import os
import pwd
import re
import struct
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, EPERM, KILL = 0x7FFF0000, 0x00050001, 0x80000000
AUDIT_ARCH_X86_64 = 0xC000003E
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
NAMESPACES = 0x7E020080  # CLONE_NEW*
WRITABLE = {"RuntimeDirectory": "/run", "LogsDirectory": "/var/log", "StateDirectory": "/var/lib"}


def settings(unit):
    """[(name, value)] in their order."""
    with open(unit, encoding="utf-8") as file:
        return re.findall(r"^(\w+)=(.*)$", file.read(), re.MULTILINE)


def last(unit, name, default=""):
    return ([value for key, value in unit if key == name] or [default])[-1]


def numbers():
    with open("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", encoding="ascii") as file:
        return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", file.read())}


def calls_of(name):
    """A call, or those of a group."""
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True).stdout.splitlines()
    return set().union(*(calls_of(line.strip()) for line in listed[1:] if line.startswith("    ") and not line.strip().startswith("#")))


def allowed_calls(unit):
    allowed = set()
    for key, value in unit:
        if key == "SystemCallFilter":
            named = set().union(*(calls_of(name) for name in value.lstrip("~").split()))
            allowed = allowed - named if value.startswith("~") else allowed | named
    return allowed


def program(unit):
    """What the kernel asks before each call."""
    known = numbers()
    code = []

    def add(operation, value, yes=0, no=0):
        code.append(struct.pack("HBBI", operation, yes, no, value))

    def load(offset):
        add(0x20, offset)

    def refuse_if(name, argument, tests):
        """Of one call: leaves with EPERM where the tests say so."""
        body = len(tests) + 1
        load(0)
        add(0x15, known[name], 0, body)
        load(16 + 8 * argument)
        for test in tests:
            add(*test)

    load(4)
    add(0x15, AUDIT_ARCH_X86_64, 1, 0)
    add(0x06, KILL)
    if families := last(unit, "RestrictAddressFamilies").split():
        allowed = [FAMILIES[name] for name in families]
        refuse_if("socket", 0, [*((0x15, family, len(allowed) - i, 0) for i, family in enumerate(allowed)), (0x06, EPERM)])
    if last(unit, "MemoryDenyWriteExecute") == "yes":
        refuse_if("mmap", 2, [(0x54, 6), (0x15, 6, 0, 1), (0x06, EPERM)])
        refuse_if("mprotect", 2, [(0x54, 4), (0x15, 4, 0, 1), (0x06, EPERM)])
    if last(unit, "RestrictNamespaces") == "yes":
        refuse_if("unshare", 0, [(0x54, NAMESPACES), (0x15, 0, 1, 0), (0x06, EPERM)])
        refuse_if("clone", 0, [(0x54, NAMESPACES), (0x15, 0, 1, 0), (0x06, EPERM)])
    load(0)
    for name in sorted(allowed_calls(unit) & known.keys()):
        add(0x15, known[name], 0, 1)
        add(0x06, ALLOW)
    add(0x06, EPERM)
    return b"".join(code), len(code)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def restrict_files(unit, folder):
    writable = [os.path.join(root, name) for key, root in WRITABLE.items() for name in last(unit, key).split()]
    user = last(unit, "User", "root")
    for path in writable:
        os.makedirs(path, 0o755, exist_ok=True)
        os.chown(path, pwd.getpwnam(user).pw_uid, -1)
        mount("--bind", path, path)
    mount("--bind", folder, folder)
    if last(unit, "ProtectSystem") == "strict":
        for line in open("/proc/self/mounts", encoding="utf-8").read().splitlines():
            path = line.split()[1].replace("\\040", " ")
            if path != folder and path not in writable and not re.match(r"/(dev|proc|sys)(/|$)", path):
                subprocess.run(["mount", "-o", "remount,bind,ro", path], stderr=subprocess.DEVNULL, check=False)
    if last(unit, "PrivateTmp") == "yes":
        kept = os.open(folder, os.O_PATH)
        mount("-t", "tmpfs", "-o", "mode=1777", "none", "/tmp")
        os.mkdir(folder)
        subprocess.run(["mount", "--bind", f"/proc/{os.getpid()}/fd/{kept}", folder], check=True)
        os.close(kept)
    if last(unit, "ProtectHome") == "yes":
        for home in ("/root", "/home"):
            mount("-t", "tmpfs", "-o", "mode=0,ro", "none", home)


def main():
    at = sys.argv.index("--")
    unit, folder = settings(sys.argv[1]), sys.argv[2]
    code, size = program(unit)
    restrict_files(unit, folder)
    os.umask(int(last(unit, "UMask", "0022"), 8))
    name = last(unit, "User", "root")
    capabilities = "".join(f",+{capability.removeprefix('CAP_').lower()}" for capability in last(unit, "CapabilityBoundingSet").split())
    command = ["setpriv", f"--bounding-set=-all{capabilities}", "--inh-caps=-all"]
    if name != "root":
        user = pwd.getpwnam(name)
        command += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    # setpriv needs calls that the unit may not have: the filter comes after it, by this program again.
    if os.environ.get("UNIT_SANDBOX_READY") is None:
        os.environ["UNIT_SANDBOX_READY"] = "1"
        filter_path = os.path.join(folder, "filter")
        with open(filter_path, "wb") as file:
            file.write(code)
        os.chmod(filter_path, 0o644)
        os.execvp(command[0], [*command, "--", "/usr/bin/python3", "-c", SECOND, filter_path, str(size), *sys.argv[at + 1:]])


# No new privileges, then the filter, then the command.
SECOND = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
code = open(sys.argv[1], "rb").read()
held = ctypes.create_string_buffer(code, len(code))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(int(sys.argv[2]), ctypes.addressof(held))
del os.environ["UNIT_SANDBOX_READY"]
if libc.prctl({PR_SET_NO_NEW_PRIVS}, 1, 0, 0, 0) != 0 or libc.prctl({PR_SET_SECCOMP}, {SECCOMP_MODE_FILTER}, ctypes.byref(program), 0, 0) != 0:
    sys.exit("the filter was refused: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[3], sys.argv[3:])
"""

if __name__ == "__main__":
    main()
