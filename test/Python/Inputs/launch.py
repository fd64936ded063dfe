"""Starts ranks as a launcher does."""
import os
import socket
import subprocess
import sys


def free_port():
    """One whose successor is free, at which ranks meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1] - 1


def started(ranks, *command):
    """A Python program as so many ranks, which read from and write to pipes."""
    environment = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "PYTHONWARNINGS": "ignore"}
    return [subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**environment, "RANK": str(rank)}) for rank in range(ranks)]
