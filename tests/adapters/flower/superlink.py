"""A real SuperLink and SuperNodes, each a process, on loopback and free ports; all ended in the end."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
APP = Path(__file__).parents[3] / "examples" / "flower_app"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def surroundings(home: Path) -> dict[str, str]:
    """No telemetry, no look for updates, no installation, and nothing outside of a folder."""
    quiet = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(home),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    return {**os.environ, **quiet}


class Deployment:
    """A SuperLink and its nodes."""

    def __init__(self, place: Path, nodes: int) -> None:
        self.place = place
        self.home = place / "home"
        self.home.mkdir()
        self.env = surroundings(self.home)
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (self.home / "config.toml").write_text(
            '[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        self.app = place / "app"
        shutil.copytree(APP, self.app)
        try:
            self._begin(nodes)
        except BaseException:
            self.end()
            raise

    def start_link(self) -> None:
        """Start the SuperLink, with all that it knew before."""
        self._start(
            "superlink",
            "flower-superlink",
            "--insecure",
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--database", str(self.place / "superlink.db")),
        )
        self._wait_for(self.port)

    def _begin(self, nodes: int) -> None:
        self.start_link()
        for number in range(nodes):
            self.join(number, nodes)

    def join(self, number: int, nodes: int) -> None:
        """Start a node."""
        self._start(
            f"node-{number}",
            "flower-supernode",
            "--insecure",
            *("--superlink", f"127.0.0.1:{self.port}"),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *("--node-config", f"partition-id={number} num-partitions={nodes}"),
        )

    def _start(self, name: str, *words: str) -> None:
        log = open(self.place / f"{name}.log", "wb")  # noqa: SIM115
        self.processes[name] = subprocess.Popen(
            [str(BIN / words[0]), *words[1:]],
            cwd=self.place,
            env=self.env,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        log.close()

    def _wait_for(self, port: int, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        raise TimeoutError((self.place / "superlink.log").read_text()[-2000:])

    def run(self, **config: Any) -> str:
        """Submit the app; returns the run's number."""
        words = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in config.items())
        done = subprocess.run(
            [str(BIN / "flwr"), "run", str(self.app), "--format", "json", "-c", words],
            cwd=self.place,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return str(json.loads(done.stdout[done.stdout.index("{") :])["run-id"])

    def kill(self, name: str) -> None:
        """Kill a process and all that it has started."""
        end_all(self.processes.pop(name))

    def kill_server(self) -> None:
        """Kill the process that runs the ServerApp, and leave the rest."""
        for pid, words in running():
            if "flwr-serverapp" in words and str(self.port) in words:
                os.kill(pid, signal.SIGKILL)

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.place.glob("*.log"))
        )

    def end(self) -> None:
        for process in self.processes.values():
            end_all(process)


@contextmanager
def deployed(place: Path, nodes: int) -> Iterator[Deployment]:
    """A deployment for a while."""
    found = Deployment(place, nodes)
    try:
        yield found
    except BaseException:
        print(found.logs())
        raise
    finally:
        found.end()


def running() -> list[tuple[int, str]]:
    """All processes and their words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(
                (int(path.parent.name), path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
            )
        except OSError:
            continue
    return found


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid:
            found.append(int(path.parent.name))
    return found


def end_all(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process with everything below it, whatever groups they are in."""
    below, found = [process.pid], []
    while below:
        pid = below.pop()
        found.append(pid)
        below += _children(pid)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(30)


def wait_until(done: Any, seconds: float, deployment: Deployment | None = None) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(deployment.logs() if deployment else "it took too long")
        time.sleep(0.2)
