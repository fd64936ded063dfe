# RUN: rm -rf %t && mkdir %t && %python %S/Inputs/arrays.py toy %t
# RUN: %cc -shared -nostdlib -fPIC -O1 -I %trainc_src/runtime/include %S/Inputs/toy_artifact.c -o %t/toy.so
# RUN: %cc -shared -fPIC -O1 -Wall -Wextra -Werror %S/Inputs/crash_layer.c -ldl -o %t/layer.so
# RUN: %python %s %trainc_build/bin/trainc-run %t
"""The system crashes while a training saves: of what was not synced, any part may be lost. The last checkpoint that was
complete loads, and no file is there that looks like a checkpoint and is none.

A layer writes down what the program does to its folder. Here, after each operation, the disk is made as a crash may leave it:
what fsync has put there is there; of the operations on names since the folder was synced any prefix, or any choice that
a generator draws; the bytes of a file that was not synced are absent, zero, half there or there.
"""
import os
import random
import re
import shutil
import subprocess
import sys

tool, base = sys.argv[1], os.path.realpath(sys.argv[2])
STEPS, CHOICES = 5, 6
DATA = [f"--data=x={base}/x.npy", f"--data=y={base}/y.npy"]


def run(folder, steps, *options, **environment):
    return subprocess.run([tool, f"{base}/toy.so", *DATA, f"--steps={steps}", f"--checkpoint-dir={folder}", *options],
                          env=dict(os.environ, **environment), capture_output=True, text=True)


def journal_of(name, drop=""):
    """What a training does to its folder, and that folder's inode."""
    folder, journal = f"{base}/{name}", f"{base}/{name}.journal"
    os.mkdir(folder)  # the folder itself is on the disk
    result = run(folder, STEPS, "--checkpoint-every=1", "--keep=2", LD_PRELOAD=f"{base}/layer.so", CRASH_FOLDER=folder,
                 CRASH_JOURNAL=journal, CRASH_DROP=drop)
    assert result.returncode == 0, result
    records = []
    with open(journal, "rb") as f:
        while line := f.readline():
            operation, file, number, size, argument = line.decode().rstrip("\n").split(" ", 4)
            records.append((operation, int(file), int(number), f.read(int(size)), argument))
    return records, os.stat(folder).st_ino


class Disk:
    """Files by a number of their own (an inode is used again), names, and what of both is on the disk."""

    def __init__(self, folder):
        self.folder, self.number = folder, {}  # inode: file
        self.files, self.synced = {}, {}
        self.names, self.onDisk, self.changes = {}, {}, []  # changes: of names, since the folder was synced

    def change(self, names, operation, file, argument):
        if operation == "rename":
            old, new = argument.split("/")
            if names.get(old) == file:
                names.pop(old)
            names[new] = file
        elif operation == "unlink":
            names.pop(argument, None)
        else:
            names[argument] = file

    def do(self, record):
        operation, inode, number, data, argument = record
        if operation == "create":
            self.number[inode] = len(self.files)
            self.files[len(self.files)] = b""
        if operation == "fsync" and inode == self.folder:
            self.onDisk, self.changes = dict(self.names), []
            return
        file = self.number[inode]
        if operation == "write":
            old = self.files[file].ljust(number, b"\0")
            self.files[file] = old[:number] + data + old[number + len(data):]
        elif operation == "truncate":
            self.files[file] = b""
        elif operation == "fsync":
            self.synced[file] = self.files[file]
        else:
            self.change(self.names, operation, file, argument)
            self.changes.append((operation, file, argument))

    def crashes(self, draw):
        """Names with their contents, as a crash now may leave them."""
        kept = [self.changes[:i] for i in range(len(self.changes) + 1)]
        kept += [[c for c in self.changes if draw.random() < 0.5] for _ in range(CHOICES)]
        for changes in kept:
            names = dict(self.onDisk)
            for change in changes:
                self.change(names, *change)
            yield {name: self.content(file, draw) for name, file in names.items()}

    def content(self, file, draw):
        now, synced = self.files[file], self.synced.get(file, b"")
        if now == synced:
            return now
        half = draw.randrange(len(now) + 1)
        return draw.choice([synced, now, now[:half], bytes(len(now)), now[:half] + bytes(len(now) - half)])


def complaints(records, folder, expected):
    """What is wrong with the disks that crashes leave; and how many there were, and of how many kinds."""
    disk, draw, found, kinds, count = Disk(folder), random.Random(1), [], {}, 0
    published = None  # the checkpoint whose save was done
    for i, record in enumerate(records):
        disk.do(record)
        if record[0] == "fsync" and record[1] == folder and "latest" in disk.onDisk:
            published = int(re.findall(rb"\d+", disk.files[disk.onDisk["latest"]])[0])
        for state in disk.crashes(draw):
            count += 1
            kinds[tuple(sorted(state.items()))] = state
            for name, content in state.items():
                if re.fullmatch(r"step-\d+\.safetensors", name) and content != expected[name]:
                    found.append(f"after operation {i}: {name} is not what was saved")
            latest = state.get("latest")
            if latest is None:
                if published is not None:
                    found.append(f"after operation {i}: 'latest' is gone")
            elif not re.fullmatch(rb"step-\d+\.safetensors\n", latest) or latest.decode().strip() not in state:
                found.append(f"after operation {i}: 'latest' names {latest!r}")
            elif published and int(re.findall(rb"\d+", latest)[0]) < published:
                found.append(f"after operation {i}: 'latest' is older than what was saved")
    return found, count, list(kinds.values())


reference = f"{base}/reference"
assert run(reference, STEPS, "--checkpoint-every=1").returncode == 0
expected = {}
for name in os.listdir(reference):
    if name.endswith(".safetensors"):
        with open(f"{reference}/{name}", "rb") as f:
            expected[name] = f.read()
assert len(expected) == STEPS

records, folder = journal_of("run")
kinds = {operation: sum(r[0] == operation for r in records) for operation in {r[0] for r in records}}
# Per step a checkpoint and 'latest': a file's sync and the folder's each.
assert kinds["fsync"] == 4 * STEPS and kinds["rename"] == 2 * STEPS and kinds["write"] >= 4 * STEPS, kinds
found, count, states = complaints(records, folder, expected)
print(f"{len(records)} operations, {count} crashes, {len(states)} kinds of disks")
assert not found, found[:5]
assert count > 500 and len(states) > 100, (count, len(states))

# Some of these disks: the program goes on from them, to the end that was expected.
resumed = 0
for i, state in enumerate(random.Random(2).sample(states, 25)):
    crashed = f"{base}/crashed{i}"
    os.mkdir(crashed)
    for name, content in state.items():
        with open(f"{crashed}/{name}", "wb") as f:
            f.write(content)
    result = run(crashed, STEPS, "--keep=2", *(["--resume"] if "latest" in state else []))
    assert result.returncode == 0, (sorted(state), result)
    with open(f"{crashed}/step-{STEPS:06d}.safetensors", "rb") as f:
        assert f.read() == expected[f"step-{STEPS:06d}.safetensors"]
    assert not [n for n in os.listdir(crashed) if re.match(r"\.(latest|step.*safetensors)\.\w{16}\.tmp", n)], os.listdir(crashed)
    resumed += "latest" in state
    shutil.rmtree(crashed)
assert resumed > 10, resumed

# A program that did not sync would be found out.
records, folder = journal_of("unsynced", drop="fsync")
assert complaints(records, folder, expected)[0], "a program without fsync is not noticed"
# Nor is one that synced folders, and not files.
records, folder = journal_of("half")
records = [r for r in records if r[0] != "fsync" or r[1] == folder]
assert complaints(records, folder, expected)[0], "a program that does not sync its files is not noticed"
