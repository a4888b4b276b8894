"""Start groups of processes as users do: with torchrun, or with a launcher that only sets the variables."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import smoothcert

SOURCE = Path(smoothcert.__file__).parents[1]
HANGS = 900
"""Seconds after which a process counts as hanging: far more than any takes, also on a busy machine."""


def environment(**more):
    path = os.pathsep.join([str(SOURCE), str(Path(__file__).parent)])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **{k: str(v) for k, v in more.items()}}


def torchrun(count, *arguments, restarts=0):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", count, "--max-restarts", restarts]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([str(part) for part in (*command, *arguments)], env=environment(), **pipes)


def smoothcert_group(*commands, **more):
    """Start one `smoothcert` per rank, each with its own command and variables, without torchrun."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = {"WORLD_SIZE": len(commands), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **more}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    group = []
    for rank, (command, own) in enumerate(commands):
        env = {**environment(RANK=rank, LOCAL_RANK=rank, **meeting), **own}
        arguments = [sys.executable, "-m", "smoothcert", *(str(part) for part in command)]
        group.append(subprocess.Popen(arguments, env=env, **pipes))
    return group


def finish(process):
    """Wait for a process and return its exit code and output; one that hangs is killed, which is an error."""
    try:
        out, err = process.communicate(timeout=HANGS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out + (err or "")


def kill_rank(launcher, rank, *, when):
    """Send SIGKILL to the process of a rank as soon as `when()` is true."""
    end = time.monotonic() + HANGS
    while not when():
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(rank_process(launcher, rank), signal.SIGKILL)


def rank_process(launcher, rank):
    """Return the id of the process of a rank that torchrun has started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if parent == launcher.pid and f"RANK={rank}".encode() in variables:
                return int(entry.name)
    raise AssertionError(f"rank {rank} is not running")
