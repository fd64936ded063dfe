# Data or an artifact that become shorter while they are read: an error that names the file.
#
# RUN: rm -rf %t && mkdir %t && %python %S/Inputs/arrays.py toy %t
# RUN: %cc -shared -nostdlib -fPIC -O1 -I %trainc_src/runtime/include %S/Inputs/toy_artifact.c -o %t/toy.so
# RUN: %python %s %trainc_build/bin/trainc-run %t

import os
import pathlib
import subprocess
import sys
import time

tool, folder = sys.argv[1], pathlib.Path(sys.argv[2])

for name in ("x.npy", "toy.so"):
    log = folder / f"{name}.jsonl"
    command = [tool, folder / "toy.so", f"--data=x={folder / 'x.npy'}", f"--data=y={folder / 'y.npy'}",
               "--steps=100000000", f"--log={log}", "--threads=2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.time() + 60
    while time.time() < end and not (log.exists() and log.stat().st_size > 1000):
        time.sleep(0.01)
    content = (folder / name).read_bytes()
    os.truncate(folder / name, 0)
    error = process.communicate(timeout=60)[1]
    (folder / name).write_bytes(content)
    expected = f"{name}' could not be read: it has become shorter, or its disk has failed"
    assert process.returncode == 1 and expected in error, (name, process.returncode, error)
