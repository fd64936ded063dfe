"""Rows on gradients and optimizers: the tables of test/Integration, and whole models."""
import json
import os
import sys

from common import ROOT, Failed, last_line, run
from rows import judge


def results_of(script, folder, *options):
    """What a harness writes as JSON: {case: relative error, or text if it could not run}."""
    path = os.path.join(folder, "results.json")
    if os.path.exists(path):
        os.remove(path)
    done = run([sys.executable, os.path.join(ROOT, *script.split("/")), "--json", path, *options], timeout=3000,
               check=False)
    if not os.path.exists(path):
        raise Failed(f"{script}: {last_line(done.stderr)}")
    with open(path) as f:
        return json.load(f)


def summary(results, bar, what):
    """(all good, text) of {case: error}."""
    broken = {k: v for k, v in results.items() if isinstance(v, str)}
    errors = {k: v for k, v in results.items() if k not in broken}
    over = {k: v for k, v in errors.items() if not v <= bar}
    text = f"{len(errors)} {what}"
    if errors:
        worst = max(errors, key=errors.get)
        text += f", worst {errors[worst]:.1e} ({worst})"
    if over:
        text += f", {len(over)} over the bar"
    if broken:
        name, why = next(iter(broken.items()))
        text += f", {len(broken)} did not run ({name}: {why[:120]})"
    return not broken and not over and bool(errors), text


def gradients(folder):
    script = "test/Integration/gradients.py"
    verdicts = [summary(results_of(script, folder), 1e-6, "cases")]
    for name, bar in (("bf16", 2**-7), ("f16", 2**-10)):
        results = results_of(script, folder, "--type", name, "attention", "packed_attention")
        verdicts.append(summary(results, bar, f"attentions in {name}"))
    verdicts.append(summary(results_of("bench/model_gradients.py", folder), 1e-3, "models"))
    return judge(all(good for good, _ in verdicts), "; ".join(text for _, text in verdicts))


def optimizers(folder):
    results = results_of("test/Integration/optimizers.py", folder)
    f64 = {k: v["f64"] if isinstance(v, dict) else v for k, v in results.items()}
    f32 = {k: v["f32"] if isinstance(v, dict) else v for k, v in results.items()}
    good, text = summary(f64, 1e-12, "rules in f64")
    good32, text32 = summary(f32, 2, "in f32, times optax's error")
    return judge(good and good32, f"{text}; {text32}")
