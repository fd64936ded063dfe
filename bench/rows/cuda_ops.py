"""Rows on kernels for GPUs: every op and every update on the emulator."""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from common import BUILD, ROOT, Failed, last_line, run
from rows import judge

EMULATOR = os.path.join(BUILD, "lib", "libtrainc_emulator.so")
BARS = {"f32": 1e-4, "bf16": 2**-7, "f16": 2**-10}
WORSE = 1.5  # how much worse than the CPU target's an error may be where that is above the bar


HOURS = 2  # of the emulator, per type: a case of attention takes minutes


def results_of(script, folder, *options):
    """What a harness writes as JSON."""
    path = os.path.join(folder, "-".join([script, *options]) + ".json")
    if os.path.exists(path):
        os.remove(path)
    done = run([sys.executable, os.path.join(ROOT, "test", "Conversion", "Kernels", "GPU", script), EMULATOR, "--json",
                path, *options], timeout=3600 * HOURS, check=False)
    if not os.path.exists(path):
        raise Failed(f"{script}: {last_line(done.stderr)}")
    with open(path) as f:
        return json.load(f)


def failures(results):
    """Text on what did not run."""
    broken = {k: v for k, v in results.items() if isinstance(v, str)}
    return [f"{len(broken)} did not run ({next(iter(broken.items()))})"] if broken else []


def operations(folder):
    """Every op and its gradient, against JAX; the CPU target's error beside it."""
    texts, good = [], True
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        by_type = list(pool.map(lambda element: results_of("operations.py", folder, "--types", element), BARS))
    for (element, bar), results in zip(BARS.items(), by_type):
        bad = failures(results)
        errors = {k: v for k, v in results.items() if not isinstance(v, str)}
        over = [k for k, (gpu, cpu) in errors.items() if not gpu < max(bar, WORSE * cpu)]
        above = sum(cpu >= bar for _, cpu in errors.values())
        worst = max(errors, key=lambda k: errors[k][0] / max(bar, WORSE * errors[k][1]))
        texts.append(f"{len(errors)} cases in {element}, nearest to its bar {worst} ({errors[worst][0]:.1e}, CPU"
                     f" {errors[worst][1]:.1e}), {above} where the CPU target is above {bar:.1e} itself")
        texts += [f"over the bar: {name}" for name in over[:3]] + bad
        good = good and not over and not bad and bool(errors)
    return judge(good, "; ".join(texts))


def updates(folder):
    """Norms with every clip, every optimizer, moving averages, loss scales, rounding, against the CPU target."""
    results = results_of("whole-updates.py", folder)
    bad = failures(results)
    errors = {k: v for k, v in results.items() if not isinstance(v, str)}
    over = [k for k, v in errors.items() if not v <= 1]
    worst = max(errors, key=errors.get, default="none")
    text = f"{len(errors)} kinds, worst {errors.get(worst, 0):.2f} of its bar ({worst})"
    return judge(not over and not bad and bool(errors),
                 "; ".join([text, *(f"over the bar: {name}" for name in over[:3]), *bad]))
