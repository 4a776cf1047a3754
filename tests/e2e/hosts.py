"""Hosts of a job: namespaces with a name, a network address and an /etc/hosts of their own on one switch, which sees no other network."""
import subprocess

import harness

NETWORK = "10.77.0"


class Hosts:
    """For an EndToEndTest: n1 is 10.77.0.1, and so on. Files and processes are shared."""

    COUNT = 2

    def setUp(self):
        super().setUp()
        if subprocess.run(["unshare", "--net", "--uts", "--mount", "ip", "link", "add", "try", "type", "bridge"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no network namespace can be made here")
        names = {f"n{number}": f"{NETWORK}.{number}" for number in range(1, self.COUNT + 1)}
        with open(self.path("hosts"), "w", encoding="ascii") as file:
            file.writelines(f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **names}.items())
        self.switch = self._namespace("ip link add switch type bridge && ip link set switch up")
        self.holders = {}
        for name, address in names.items():
            holder = self._namespace(f"hostname {name} && mount --bind {self.path('hosts')} /etc/hosts && ip link set lo up")
            self.holders[name] = holder
            self._in(self.switch, "ip", "link", "add", f"port-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
            self._in(self.switch, "ip", "link", "set", f"port-{name}", "master", "switch", "up")
            self._in(holder, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
            self._in(holder, "ip", "link", "set", "eth0", "up")

    def _namespace(self, script):
        holder = self.start(["unshare", "--net", "--uts", "--mount", "sh", "-c", f"{script} && echo made && exec sleep 1000"])
        harness.wait_until(lambda: b"made\n" in holder.finished().stdout, "namespace")
        return holder

    def _in(self, holder, *command):
        subprocess.run(["nsenter", f"--target={holder.pid}", "--net", "--uts", "--mount", *command], check=True)

    def unplug(self, name, plugged=False):
        """A cable that is pulled, or put back."""
        self._in(self.switch, "ip", "link", "set", f"port-{name}", "up" if plugged else "down")

    def start_on(self, name, command, **options):
        self.assertIn(name, self.holders)
        return self.start(["nsenter", f"--target={self.holders[name].pid}", "--net", "--uts", "--mount", f"--wdns={options.get('cwd', self.cwd)}", *command], **options)

    def run_on(self, name, command, **options):
        return self.start_on(name, command, **options).wait(harness.LIMIT_S)
