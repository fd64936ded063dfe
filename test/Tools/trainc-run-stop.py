# Ctrl-C ends a training at the end of a step, saved, so that it goes on as if it had not been stopped.
# On a terminal the training shows a bar.
#
# RUN: rm -rf %t && mkdir %t && %python %S/Inputs/arrays.py text %t
# RUN: %cc -DCHARS -shared -fPIC -O1 -I %trainc_src/runtime/include %S/Inputs/toy_artifact.c -o %t/chars.so
# RUN: %python %s %trainc_build/bin/trainc-run %t

import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import time

tool, folder = sys.argv[1], pathlib.Path(sys.argv[2])
steps = 100_000_000  # never reached


def command(*arguments):
    return [tool, str(folder / "chars.so"), f"--data={folder / 'tokens.npy'}", *map(str, arguments)]


def lines(path):
    return path.read_text().count("\n") if path.exists() else 0


def stop(number, *arguments):
    """Starts a training, sends it the signal `number` after some steps; returns exit status, output and last step."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    process = subprocess.Popen(
        command("--steps", steps, "--log", log, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while lines(log) < 20 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output, json.loads(log.read_text().splitlines()[-1])["step"]


for number in (signal.SIGINT, signal.SIGTERM):
    saved = folder / f"saved{int(number)}"
    status, output, step = stop(number, "--checkpoint-dir", saved)
    assert status == 130, (status, output)
    assert f"trainc-run: stopped after step {step}, which is saved" in output, output
    assert "first loss" in output and "final loss" in output, output
    assert (saved / "latest").exists()

    more = step + 5
    subprocess.run(command("--steps", more, "--checkpoint-dir", saved, "--resume"), check=True, capture_output=True)
    whole = folder / f"whole{int(number)}"
    subprocess.run(command("--steps", more, "--checkpoint-dir", whole), check=True, capture_output=True)
    name = f"step-{more:06d}.safetensors"
    assert (saved / name).read_bytes() == (whole / name).read_bytes()

status, output, step = stop(signal.SIGINT)
assert status == 130 and "nothing is saved without --checkpoint-dir" in output, output

main, terminal = pty.openpty()
process = subprocess.Popen(command("--steps", 50), stdout=subprocess.DEVNULL, stderr=terminal)
os.close(terminal)
shown = b""
try:
    while piece := os.read(main, 4096):
        shown += piece
except OSError:  # the terminal's other end is closed
    pass
assert process.wait() == 0
bar = shown.decode().rstrip().split("\r")[-1]
assert "=] 50/50  loss " in bar and " lr " in bar and " norm " in bar, bar
assert " tokens/s" in bar and " left" in bar, bar
