# Ctrl-C, and whatever else asks to end, ends a training at the end of a step, saved, so that it goes on as if it had not been
# stopped. What is ignored when it starts stays so. A reader that is gone, and a limit on files, do not kill it.
# On a terminal the training shows a bar.
#
# RUN: rm -rf %t && mkdir %t && %python %S/Inputs/arrays.py text %t
# RUN: %cc -DCHARS -shared -nostdlib -fPIC -O1 -I %trainc_src/runtime/include %S/Inputs/toy_artifact.c -o %t/chars.so
# RUN: %python %s %trainc_build/bin/trainc-run %t

import atexit
import json
import os
import pathlib
import pty
import resource
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


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)


def start(*arguments, ignored=(), log=folder / "log.jsonl", **options):
    """Starts a training that was not told to ignore any signal but `ignored`, and waits for some steps."""

    def prepare():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    log.unlink(missing_ok=True)
    process = subprocess.Popen(command("--log", log, *arguments), preexec_fn=prepare, text=True,
                               **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options})
    atexit.register(process.kill)  # it never ends by itself
    while lines(log) < 20 and process.poll() is None:
        time.sleep(0.01)
    return process


def finish(process):
    """Exit status and output."""
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, output


def last_step(log=folder / "log.jsonl"):
    whole, _, _ = log.read_text().rpartition("\n")  # a line may be half written
    return json.loads(whole.splitlines()[-1])["step"]


def stop(number, *arguments):
    """Starts a training, sends it the signal `number` after some steps; returns exit status, output and last step."""
    process = start("--steps", steps, *arguments)
    process.send_signal(number)
    return *finish(process), last_step()


for number in SIGNALS:
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

# Ignored by who started it, as nohup does and a shell with what it starts behind it.
process = start("--steps", steps, ignored=SIGNALS)
for number in SIGNALS:
    process.send_signal(number)
before = last_step()
while last_step() < before + 1000:
    assert process.poll() is None
    time.sleep(0.01)
process.send_signal(signal.SIGUSR1)
status, output = finish(process)
assert status == 130, (status, output)

# A long evaluation does not keep a stop waiting.
text = (folder / "tokens.npy").read_bytes()
header = text[:128].replace(b"(1001,)", b"(3000000,)")
assert header != text[:128]
many = folder / "many.npy"
many.write_bytes(header[:10] + header[10:].replace(b"   \n", b"\n") + b"the cat sat on the mat. " * 125000)
process = start("--steps", steps, "--eval-data", many, "--eval-every", 20, "--checkpoint-dir", folder / "evaluated")
time.sleep(0.1)
process.send_signal(signal.SIGTERM)
status, output = finish(process)
assert status == 130 and "which is saved" in output and "eval loss" not in output, (status, output)

# Nobody reads what it prints: it goes on, saves, and says that something was lost.
reading, writing = os.pipe()
os.close(reading)
process = start("--steps", 200, "--eval-data", folder / "eval_tokens.npy", "--eval-every", 10, "--save", folder / "unread",
                stdout=writing, stderr=subprocess.PIPE)
os.close(writing)
_, errors = process.communicate(timeout=60)
assert process.returncode == 1 and "cannot write to stdout" in errors, (process.returncode, errors)
assert (folder / "unread").exists() and last_step() == 200

# A limit on files ends the log; the training and its save go on.
size = (folder / "unread").stat().st_size
process = start("--steps", 4 * size // 100, "--save", folder / "limited")
resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2 * size, 2 * size))
status, output = finish(process)
assert status == 1 and "log.jsonl': File too large; going on without it" in output and "final loss" in output, output
assert abs((folder / "limited").stat().st_size - size) <= 64  # whole; its header counts more updates

# A second run finds the folder in use, and says by whom.
process = start("--steps", steps, "--checkpoint-dir", folder / "shared")
second = subprocess.run(command("--steps", 5, "--checkpoint-dir", folder / "shared"), capture_output=True, text=True)
assert second.returncode == 1 and f"shared': process {process.pid} on host" in second.stderr, second
process.send_signal(signal.SIGTERM)
status, output = finish(process)
assert status == 130 and "which is saved" in output, (status, output)


def peak(count):
    """KiB that a training of so many steps has at most."""
    process = subprocess.Popen(command("--steps", count, "--eval-data", folder / "eval_tokens.npy"), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    return os.wait4(process.pid, 0)[2].ru_maxrss


few, many = peak(1000), peak(201_000)
assert many < few + 1000, (few, many)  # 16 bytes per step were 3.1 MiB

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
