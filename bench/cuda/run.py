#!/usr/bin/env python3
"""Measures and checks compiled steps on a GPU, from a folder that `bench/run.py --suite cuda --pack FOLDER` has made.

usage: run.py [--only PART[:ROW] ...] [--json FILE] [--dry-run] [--seconds N] [--table]

Nothing but this folder is needed: Python, the driver, and CUDA's libcublasLt (found by the loader, in CUDA_HOME or CUDA_PATH, and
in Python's packages; updates alone need none). Without NumPy there are tests, products and determinism, and of optimizer and step
our times and the copy's. PyTorch and JAX are peers where they are installed. A row's results are written to FILE as soon as they are there, and rows that FILE has are not measured again. A part
begins no row after its seconds. --table only prints the tables of FILE, as bench/results/cuda-DEVICE.md has them. --dry-run runs the same programs on
the driver of tests, with tiny models: its times mean nothing.
"""
import argparse
import ctypes
import glob
import json
import os
import platform
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.dirname(os.path.dirname(HERE))
LIBRARIES = os.path.join(FOLDER, "build", "lib")
sys.path[:0] = [os.path.dirname(HERE), HERE]
FAKES = {"TRAINC_LIBCUDA": "cuda", "TRAINC_LIBCUBLASLT": "cublaslt", "TRAINC_LIBNCCL": "nccl"}


@dataclass(frozen=True)
class Part:
    about: str
    rows: Callable  # (kit) -> {name: what to measure}
    measure: Callable  # (kit, what) -> row, a dict of what JSON can hold
    columns: list
    cells: Callable  # (row) -> (texts, whether it is as it should be, or None)
    timed: bool = False  # what is compared are times


def parts():
    import checks
    import parts as p
    return {
        "tests": Part("Test programs of the runtime on this device.", checks.test_rows, checks.measure_test,
                      checks.TEST_COLUMNS, checks.test_cells),
        "losses": Part("Losses and gradient norms of the first 5 updates: largest relative error.", checks.loss_rows,
                       checks.measure_losses, checks.LOSS_COLUMNS, checks.loss_cells),
        "products": Part("Products of a GPT-2's step in bf16, one by one.", checks.product_rows, checks.measure_products,
                         checks.TEST_COLUMNS, checks.test_cells),
        "determinism": Part("A training done twice while another stream copies memory all the time: losses, norms and parameters.",
                            checks.repeated_rows, checks.measure_repeated, checks.TEST_COLUMNS, checks.test_cells),
        "operations": Part("Every op and its gradient against JAX in f64: the norm of the difference over the norm.",
                           checks.operation_rows, checks.measure_operations, checks.OPERATION_COLUMNS,
                           checks.operation_cells),
        "optimizer": Part("Clip and AdamW of 124 M parameters, gradients in place; the copy is of as many bytes as ours "
                          "moves. A ratio is a peer's time over ours: of the whole call or, with copies in bf16, of the "
                          "device in the commands of clip and update.", p.update_rows, p.measure_update,
                          p.UPDATE_COLUMNS, p.update_cells, True),
        "step": Part("Whole steps. A ratio is a peer's time over ours.", p.step_rows, p.measure_step, p.STEP_COLUMNS,
                     p.step_cells, True),
        "autotuned": Part("Whole steps against PyTorch's slowest compilation.", p.autotuned_rows, p.measure_autotuned,
                          p.STEP_COLUMNS, p.step_cells, True),
        "ablation": Part("A step without a pass, per micro-batch: its time over that with it.", p.ablation_rows,
                         p.measure_ablation, p.ABLATION_COLUMNS, p.ablation_cells),
        "profile": Part("Commands one by one, by the device's clock; the limit is what memory (measured by copies) or "
                        "products (measured by PyTorch's) would take.", p.profile_rows, p.measure_profile,
                        p.PROFILE_COLUMNS, p.profile_cells),
        "conversion": Part("The optimizer's state to bf16 on the device, with as much free memory as it needs beside the old "
                           "one, and with less.", checks.conversion_rows, checks.measure_conversion,
                           checks.CONVERSION_COLUMNS, checks.conversion_cells),
        "sanitizer": Part("compute-sanitizer over two steps.", p.sanitizer_rows, p.measure_sanitizer,
                          p.SANITIZER_COLUMNS, p.sanitizer_cells),
    }


def prepare(dry):
    """The environment of the programs that are run, before `common` takes it."""
    for path in [os.path.join(FOLDER, "build", "bin", "trainc-run"), *glob.glob(os.path.join(FOLDER, "build", "tests", "*"))]:
        if not os.access(path, os.X_OK):  # not every way to carry files keeps that
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    for variable, library in FAKES.items():
        if dry:
            os.environ[variable] = os.path.join(LIBRARIES, f"libtrainc_fake_{library}.so")
    if dry:
        # They need the emulator, which was somewhere else where they were built.
        ctypes.CDLL(os.path.join(LIBRARIES, "libtrainc_emulator.so"), ctypes.RTLD_GLOBAL)
        for name in ("cuda", "cublaslt"):
            ctypes.CDLL(os.path.join(LIBRARIES, f"libtrainc_fake_{name}.so"), ctypes.RTLD_GLOBAL)
        os.environ["LD_LIBRARY_PATH"] = LIBRARIES
        os.environ["OMP_NUM_THREADS"] = "1"
    else:
        for variable, *names in (("TRAINC_LIBCUBLASLT", "libcublasLt.so.13", "libcublasLt.so.12"), ("TRAINC_LIBNCCL", "libnccl.so.2")):
            path = find_library(names)
            if path and variable not in os.environ:
                os.environ[variable] = path
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(FOLDER, "inductor"))


def find_library(names):
    """Where a library of CUDA is if the loader knows none of its names: in a toolkit, or in the wheels that PyTorch brings."""
    for name in names:
        try:
            ctypes.CDLL(name)
            return None
        except OSError:
            pass
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    roots = [*filter(None, toolkits), *(os.path.join(p, "nvidia", "*") for p in sys.path)]
    return next((path for name in names for root in roots for lib in ("lib64", "lib")
                 for path in glob.glob(os.path.join(root, lib, name))), None)


def about(dry):
    from driver import Device
    result = Device().about()
    with open(os.path.join(FOLDER, "artifacts", "pack.json")) as f:
        result["pack"] = json.load(f)["about"]
    result["python"] = platform.python_version()
    result["dry"] = dry
    if not dry:
        query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem,power.limit", "--format=csv,noheader"]
        try:
            result["smi"] = subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip()
        except (OSError, subprocess.TimeoutExpired) as e:
            result["smi"] = str(e)
        from importlib.metadata import PackageNotFoundError, version
        for package in ("torch", "triton", "jax", "numpy"):
            try:
                result[package] = version(package)
            except PackageNotFoundError:
                result[package] = "-"
    return result


def keep(path, results):
    if path:
        with open(path + ".tmp", "w") as f:
            json.dump(results, f)
        os.replace(path + ".tmp", path)


def line(part, name, row, dry):
    """(a row of the table, whether it is as it should be)"""
    if "error" in row:
        return f"| {name} | {row['error']} |", False
    texts, verdict = part.cells(row)
    if dry and part.timed:
        verdict = None
    mark = {True: "ok", False: "short", None: ""}[verdict]
    return f"| {name} | {' | '.join([*texts, mark])} |", verdict is not False


def header(name, part):
    return f"\n### {name}\n{part.about}\n\n| | {' | '.join(part.columns)} | |\n|{'---|' * (2 + len(part.columns))}"


def footnotes(rows):
    texts = [f"{name}: {peer}: {text}" for name, row in rows.items() for peer, text in row.get("failed", {}).items()]
    return texts + [f"{name}:\n\n{row['text']}" for name, row in rows.items() if "text" in row]


def print_tables(every, results):
    print(f"# Steps on {results['about']['name']}, measured\n\nWritten by run.py of a pack of `bench/run.py --suite cuda`. Programs "
          "took turns in one run; a ratio is the median over the rounds.\n")
    print("\n".join(f"- {key}: {value}" for key, value in results["about"].items()))
    failed = False
    for name, part in every.items():
        rows = results["parts"].get(name, {})
        if rows:
            print(header(name, part))
        for row_name, row in rows.items():
            text, good = line(part, row_name, row, results["about"]["dry"])
            failed |= not good
            print(text)
        for text in footnotes(rows):
            print(f"\n{text}")
    return failed


def measure(every, kit, chosen, results, path, seconds):
    from common import Failed
    failed = False
    for name, part in every.items():
        wanted = [c.partition(":")[2] for c in chosen if c.partition(":")[0] == name]
        if chosen and not wanted:
            continue
        print(header(name, part), flush=True)
        begin, rows = time.monotonic(), results["parts"].setdefault(name, {})
        for row_name, what in part.rows(kit).items():
            if wanted and "" not in wanted and row_name not in wanted:
                continue
            if row_name not in rows or "error" in rows[row_name]:
                if time.monotonic() - begin > seconds:
                    print(f"| {row_name} | not begun: {seconds} s are over |", flush=True)
                    failed = True
                    continue
                try:
                    rows[row_name] = part.measure(kit, what) | dict(name=row_name)
                    part.cells(rows[row_name])
                except Failed as e:
                    rows[row_name] = dict(name=row_name, error=str(e))
                except Exception as e:  # the other rows go on
                    rows[row_name] = dict(name=row_name, error=f"{type(e).__name__}: {e}")
                keep(path, results)
            text, good = line(part, row_name, rows[row_name], kit.dry)
            failed |= not good
            print(text, flush=True)
        for text in footnotes(rows):
            print(f"\n{text}", flush=True)
    return failed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", action="append", default=[], metavar="PART[:ROW]", help="only this part, or row of a part")
    p.add_argument("--json", metavar="FILE", help="write results here, and go on from those that it has")
    p.add_argument("--seconds", type=int, default=280, help="that a part may begin rows (default: 280)")
    p.add_argument("--dry-run", action="store_true", help="tiny models, on the driver of tests")
    p.add_argument("--table", action="store_true", help="print the tables of FILE")
    a = p.parse_args()
    prepare(a.dry_run)
    every = parts()
    for word in a.only:
        if word.partition(":")[0] not in every:
            p.error(f"expected one of the parts {', '.join(every)}, got '{word}'")
    results = {}
    if a.json and os.path.exists(a.json):
        with open(a.json) as f:
            results = json.load(f)
    if a.table:
        return print_tables(every, results)
    from driver import Refused
    from parts import Kit
    try:
        here = about(a.dry_run)
    except (OSError, Refused) as e:
        sys.exit(f"run.py: there is no GPU: {e}")
    if results and (results["about"]["name"], results["about"]["pack"]) != (here["name"], here["pack"]):
        sys.exit(f"run.py: {a.json} has results of another device or pack")
    results = results or dict(about=here, parts={})
    print("\n".join(f"- {key}: {value}" for key, value in here.items()), flush=True)
    return measure(every, Kit(a.dry_run), a.only, results, a.json, a.seconds)


if __name__ == "__main__":
    sys.exit(main())
