"""Rows on machines other than the developer's: a fresh Debian, and an installed tree that was moved."""
import contextlib
import glob
import os
import re
import shutil
import threading
import time

from common import BUILD, ENVIRONMENT, ROOT, RUNTIME_LIBRARY, Failed, generate, last_line, run, tool
from rows import judge
from trainc_ctypes import Runtime, Trainer

FORBIDDEN = re.compile(r"LLVM|MLIR|libpython", re.I)
MINUTES = 12


# A fresh machine.

def copy_if_there(path, root):
    if os.path.exists(path):
        target = os.path.join(root, os.path.dirname(path).lstrip("/"))
        os.makedirs(target, exist_ok=True)
        run(["cp", "-rL", "--remove-destination", path, target])


@contextlib.contextmanager
def fresh_debian(folder):
    """Debian 12 as debootstrap makes it, with this machine's package sources and a clean clone of the last commit in /trainc: gives its
    folder, and a function that runs a command in it."""
    if os.geteuid() != 0:
        raise Failed("a fresh machine needs root: debootstrap and chroot")
    if not shutil.which("debootstrap"):
        run(["apt-get", "install", "-qy", "--no-install-recommends", "debootstrap"])
    root = os.path.join(folder, "debian")
    run(["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root], timeout=1200)
    for path in ("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/apt.conf.d", "/etc/resolv.conf",
                 "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        copy_if_there(path, root)
    run(["git", "clone", "-q", "--no-hardlinks", f"file://{ROOT}", os.path.join(root, "trainc")])
    environment = {**ENVIRONMENT, "HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    def inside(*command, **options):
        return run(["chroot", root, *command], env=environment, **options)

    with contextlib.ExitStack() as mounted:
        for mount, *how in (("proc", "-t", "proc", "proc"), ("dev", "--bind", "/dev")):
            path = os.path.join(root, mount)
            run(["mount", *how, path])
            mounted.callback(run, ["umount", path])
        inside("apt-get", "update", "-q")
        yield root, inside


def download_seconds(output):
    """The time that apt says it spent on downloads."""
    total = 0
    for amount in re.findall(r"^Fetched .* in ((?:\d+(?:min|h|s) ?)+)", output, re.M):
        total += sum(int(n) * {"h": 3600, "min": 60, "s": 1}[unit] for n, unit in re.findall(r"(\d+)(min|h|s)", amount))
    return total


def newcomer(folder):
    with fresh_debian(folder) as (_, inside):
        start = time.perf_counter()
        done = inside("bash", "/trainc/scripts/demo.sh", timeout=3600, check=False)
        seconds = time.perf_counter() - start - download_seconds(done.stdout + done.stderr)
    if done.returncode:
        raise Failed(f"scripts/demo.sh: {last_line(done.stderr)}")
    found = [re.search(rf"^{which} loss ([\d.]+)", done.stdout, re.M) for which in ("first", "final")]
    if not all(found):
        raise Failed("scripts/demo.sh printed no first and final loss")
    first, final = (float(m[1]) for m in found)
    sample = done.stdout[found[1].end():].strip()
    return judge(final <= first - 1.0 and seconds <= MINUTES * 60 and len(sample) >= 100,
                 f"first loss {first:.3f}, final loss {final:.3f}, {len(sample)} characters of sample,"
                 f" {seconds / 60:.1f} minutes without downloads")


# An installed tree.

PROGRAMS = os.path.join(ROOT, "bench", "programs")


def moved_prefix(folder):
    first, prefix = os.path.join(folder, "first"), os.path.join(folder, "moved", "here")
    run(["cmake", "--install", BUILD, "--prefix", first])
    os.makedirs(os.path.dirname(prefix))
    os.rename(first, prefix)
    return prefix


def build_programs(prefix, folder):
    """{how: command} of the three ways to use the installed tree, built as its users build."""
    pkgconfig = next(iter(glob.glob(os.path.join(prefix, "**", "pkgconfig"), recursive=True)), None)
    if not pkgconfig:
        raise Failed("the installed tree has no pkg-config file")
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PKG_CONFIG_PATH": pkgconfig}
    source = os.path.join(folder, "digits.mlir")
    with open(source, "w") as f:
        f.write(generate("mlp", "--digits"))
    for kind, suffix in (("obj", "o"), ("so", "so"), ("header", "h")):
        run([tool("trainc"), source, f"--emit={kind}", "-o", os.path.join(folder, f"digits.{suffix}")])
    flags = run(["pkg-config", "--cflags", "--libs", "trainc"], env=environment).stdout.split()
    by_object, by_library = os.path.join(folder, "by_object"), os.path.join(folder, "by_library")
    run(["cc", "-Wall", "-Werror", f"-I{folder}", os.path.join(PROGRAMS, "object.c"), os.path.join(folder, "digits.o"),
         *flags, "-o", by_object], env=environment)
    run(["cc", "-Wall", "-Werror", os.path.join(PROGRAMS, "library.c"), *flags, "-o", by_library], env=environment)
    build = os.path.join(folder, "cmake")
    run(["cmake", "-S", PROGRAMS, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DDIGITS={folder}"], env=environment)
    run(["cmake", "--build", build], env=environment)
    return {"cc with pkg-config": [by_object], "CMake": [os.path.join(build, "by_cmake")],
            "opening the .so": [by_library, os.path.join(folder, "digits.so")]}, os.path.dirname(pkgconfig)


def linking(folder):
    programs, libraries = build_programs(moved_prefix(folder), folder)
    environment = {"PATH": "/nonexistent", "LD_LIBRARY_PATH": libraries, "LD_DEBUG": "libs"}
    notes, losses = [], {}
    for how, command in programs.items():
        done = run(command, env=environment)
        losses[how] = done.stdout
        opened = set(re.findall(r"calling init: (\S+)", done.stderr))  # also what is opened at run time
        linked = set(run(["ldd", command[0]], env={**environment, "PATH": "/usr/bin:/bin", "LD_DEBUG": ""}).stdout.split())
        if found := [lib for lib in opened | linked if FORBIDDEN.search(lib)]:
            notes.append(f"{how}: uses {', '.join(found)}")
    if len(set(losses.values())) > 1:
        notes.append("the programs print different losses")
    first, *_, last = (float.fromhex(line) for line in losses["CMake"].split())
    if not last < first - 1:
        notes.append(f"no training: loss {first:.3f} to {last:.3f}")
    alone, both = losses_of_threads(os.path.join(folder, "digits.so"))
    if any(losses != alone for losses in both):
        notes.append("two trainers in two threads give other bits than alone")
    return judge(not notes, "; ".join(notes) or f"all three train, loss {first:.3f} to {last:.3f}; two threads equal")


def losses_of_threads(library, steps=200):
    """The losses of a trainer alone, and of two that run at the same time."""
    import numpy as np
    x, y = (np.load(os.path.join(ROOT, "examples", "data", f"digits_train_{name}.npy"))[:32] for name in "xy")
    runtime = Runtime(RUNTIME_LIBRARY)

    def train(losses):
        with Trainer(runtime, library, threads=2) as trainer:
            losses += [trainer.step(x=x, y=y).loss for _ in range(steps)]

    alone, both = [], ([], [])
    train(alone)
    threads = [threading.Thread(target=train, args=(losses,)) for losses in both]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return alone, both
