"""Rows on models of PyTorch. PyTorch and the libraries of models are in .venv-torch, which scripts/setup.sh --torch makes."""
import json
import os
import shutil
import time
from statistics import geometric_mean, mean, median

import audit
import results as tables
from common import BUILD, ENVIRONMENT, ROOT, Failed, largest, last_line, run
from rows import Outcome, judge, judge_ratios, worst
from rows.install import fresh_debian
from timing import limit_program, take_turns
from pass_tests import lit_codes

PYTHON = os.path.join(ROOT, ".venv-torch", "bin", "python")
AGREES = ("agrees", "agrees in f64")
TESTS = os.path.join(ROOT, "test", "Python")


def in_torch(*command, timeout=3 * 3600, check=True, python=PYTHON, **options):
    """A program of bench/ in the environment of PyTorch."""
    if not os.path.exists(python):
        raise Failed("there is no .venv-torch: run scripts/setup.sh --torch")
    return run([python, "-W", "ignore", *command], timeout=timeout, check=check, env={**ENVIRONMENT, "TRAINC_BUILD": BUILD}, **options)


def corpus_results(*models):
    """Of these models, or of all; those that this code has done are kept."""
    path = os.path.join(BUILD, "bench", f"agreement-{tables.code(folders=(*tables.OF_TORCH, 'bench/models', 'bench/agreement.py'))}.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return agreement_results(path, *models)


def agreement_results(path, *options, **environment):
    """What bench/agreement.py says; it goes on where `path` stopped."""
    in_torch(os.path.join(ROOT, "bench", "agreement.py"), *options, "--json", path, **environment)
    with open(path) as f:
        return json.load(f)


def named(results, *statuses):
    return [name for name, result in results.items() if result["status"] in statuses]


def corpus(folder):
    results = corpus_results()
    agree, refused = named(results, *AGREES), named(results, "refused")
    wrong, late = named(results, "wrong"), named(results, "fails later")
    share = len(agree) / len(results)
    return judge(share >= 0.9 and not wrong and not late and len(results) == 110, "; ".join([
        f"{len(agree)} of {len(results)} models ({100 * share:.0f} %) export, compile and agree in float64, {len(named(results, 'agrees'))} of"
        f" them in float32, too (row agreement); refused at export with a reason:"
        f" {', '.join(refused) or 'none'}", f"wrong: {', '.join(wrong) or 'none'}", f"fail later: {', '.join(late) or 'none'}"]))


QUICK = ("mlp-digits", "cnn-digits", "nanogpt", "bert", "ernie", "llama", "lora", "vit-tv")


def few_models(folder):
    results = {name: r for name, r in corpus_results(*QUICK).items() if name in QUICK}
    bad = [f"{name}: {r['status']}" for name, r in results.items() if r["status"] not in AGREES]
    return judge(len(results) == len(QUICK) and not bad, "; ".join([f"{len(results) - len(bad)} of {len(QUICK)} agree", *bad]))


def agreement(folder):
    """Five of PyTorch's results, drawn by the commit's hash, are made anew."""
    draw = str(int(tables.git("rev-parse", "HEAD")[:8], 16))
    anew = in_torch("-m", "models.reference", "--check", "5", draw, cwd=os.path.join(ROOT, "bench"), check=False)
    results = {name: r for name, r in corpus_results().items() if r["status"] in (*AGREES, "wrong")}
    drawn = [r["drawn"] for r in results.values() if "drawn" in r]
    ill = {name: r for name, r in results.items() if r.get("drawn", 0.0) > 1}
    both = {name: r for name, r in results.items() if "loss" in r}
    apart = {name: r for name, r in both.items() if r["status"] == "agrees in f64"}
    worst = {key: max(r[key] for r in both.values()) for key in ("loss", "norm", "state")}
    text = [f"f64, 5 updates of AdamW: losses {worst['loss']:.0e}, norms {worst['norm']:.0e}, parameters {worst['state']:.0e};"
            f" with dropout and noise: {len(drawn)} models, worst {max(drawn):.0e} of the bar;"
            f" f32: {len(both) - len(apart)} of {len(both)} within the bar"]
    text += [f"{name}: losses {r['loss32']:.0e} from PyTorch's float32, which is {r['limit']:.0e} from float64, and {r['moves']:.0e} from starts"
             " that are off by a rounding" for name, r in apart.items()]
    text += [f"{name}, with dropout and noise: {r['drawn']:.1f} of the bar, PyTorch's own {r['drawn_moves']:.1f} from starts that are off by a"
             " rounding" for name, r in ill.items()]
    text.append("5 results of PyTorch made anew are equal" if not anew.returncode else f"results made anew differ: {last_line(anew.stdout)}")
    return judge(not named(results, "wrong") and not apart and not ill and not anew.returncode, "; ".join(text))


EARLIER = ("2.14", "2.13")  # of bench/models/requirements-VERSION.txt
OF_EARLIER = ("resnet18", "convnext-t", "swin-t", "vit-tv", "deit-ti", "xcit", "vit-hf", "segformer", "bert", "ernie", "t5", "bart", "gpt2",
              "llama-padmask", "gemma2", "whisper", "unet2d-condition", "lstm", "transformer-encdec", "lora")


def earlier(folder):
    """Of each version by PyTorch's results of that version."""
    notes, bad = [], []
    for version in EARLIER:
        run([os.path.join(ROOT, "scripts", "setup.sh"), "--torch", version], timeout=3600)
        results = agreement_results(os.path.join(folder, f"{version}.json"), "--anew", *OF_EARLIER,
                                    python=os.path.join(ROOT, f".venv-torch-{version}", "bin", "python"))
        bad += [f"{version} {name}: {r['status']}" for name, r in results.items() if r["status"] not in AGREES]
        notes.append(f"torch {version}: {len(named(results, *AGREES))} of {len(results)} agree")
    return judge(not bad, "; ".join([*notes, *bad]))


def bf16(folder):
    results = agreement_results(os.path.join(folder, "bf16.json"), "--bf16")
    agree = named(results, "agrees")
    notes = [f"{name} {r['bf16']:.1e} and {r['autocast']:.1e} of {r['torch']:.1e}" if "torch" in r else f"{name}: {r['reason'][:80]}"
             for name, r in results.items()]
    return judge(len(agree) == len(results) == 10, f"{len(agree)} of {len(results)}: losses from float64 in bf16 and by autocast's rules, of"
                 f" PyTorch's: {'; '.join(notes)}")


DRAWS = os.path.join(tables.FOLDER, "held-out.json")  # by commit, the first result of each draw; it is never changed


def held_out(folder):
    """Drawn by the commit's hash: its first result stands. Earlier draws are printed, with what their defects give by now."""
    commit = tables.git("rev-parse", "HEAD")
    with open(DRAWS) as f:
        draws = json.load(f)
    if commit not in draws:
        draws[commit] = agreement_results(os.path.join(folder, "held-out.json"), "--held-out", commit)
        with open(DRAWS, "w") as f:
            json.dump(draws, f, indent=1)
            f.write("\n")
    notes = []
    for drawn_by, results in draws.items():
        note = f"draw of {drawn_by[:12]}: {drawn(results)}"
        defects = named(results, "wrong", "fails later")
        if defects and drawn_by != commit:
            again = agreement_results(os.path.join(folder, f"{drawn_by}.json"), "--held-out", drawn_by, *defects)
            note += "; by now: " + ", ".join(f"{name} {result['status']}" for name, result in again.items())
        notes.append(note)
    results = draws[commit]
    agree, defects = named(results, *AGREES), named(results, "wrong", "fails later")
    return judge(len(results) == 30 and len(agree) >= 24 and not defects, "; ".join(reversed(notes)))


def drawn(results):
    refused = {name: r["reason"].splitlines()[1].split()[0] if "\n" in r["reason"] else r["reason"][:60]
               for name, r in results.items() if r["status"] == "refused"}
    return "; ".join([f"{len(named(results, *AGREES))} of {len(results)} agree",
                      f"refused: {', '.join(f'{n} ({why})' for n, why in refused.items()) or 'none'}",
                      f"wrong: {', '.join(named(results, 'wrong')) or 'none'}", f"fail later: {', '.join(named(results, 'fails later')) or 'none'}"])


def real_training(folder):
    """The mean of our last losses is within PyTorch's spread over the seeds."""
    found = json.loads(in_torch(os.path.join(ROOT, "bench", "model_training.py")).stdout.splitlines()[-1])
    notes, good = [], True
    for name, sides in found.items():
        ours, low, high = mean(sides["trainc"]), min(sides["torch"]), max(sides["torch"])
        good &= low <= ours <= high
        notes.append(f"{name} {ours:.4f}, PyTorch's {low:.4f} to {high:.4f}")
    return judge(good, "; ".join(notes))


LORA_SEEDS, LORA_LAST, LORA_MB = 3, 3, 3000


def lora(folder):
    """The last losses with 8 bits are no farther from those in bf16, seed by seed, than these are from each other."""
    found = {kind: [json.loads(in_torch(os.path.join(ROOT, "bench", "lora_training.py"), kind, str(seed)).stdout.splitlines()[-1])
                    for seed in range(LORA_SEEDS)] for kind in ("int8", "bf16")}
    last = {kind: [mean(run["losses"][-LORA_LAST:]) for run in runs] for kind, runs in found.items()}
    spread = max(last["bf16"]) - min(last["bf16"])
    apart = largest(abs(a - b) for a, b in zip(last["int8"], last["bf16"]))
    peak, other = (max(run["peak_mb"] for run in found[kind]) * 2**20 / 1e6 for kind in ("int8", "bf16"))
    first = mean(run["losses"][0] for run in found["int8"])
    return judge(peak <= LORA_MB and apart <= spread, f"peak {peak:.0f} MB (bf16 {other:.0f} MB); loss from {first:.3f} to"
                 f" {mean(last['int8']):.4f}, {apart:.4f} from bf16's, whose seeds are {spread:.4f} apart")


def tests(*names):
    """A row of lit tests."""
    def measure(folder):
        codes = lit_codes([os.path.join(TESTS, name) for name in names])
        bad = [f"{name}: {code}" for name, code in codes.items() if code not in ("PASS", "FLAKYPASS")]
        return judge(len(codes) == len(names) and not bad, f"{len(codes) - len(bad)} of {len(names)} tests pass{''.join('; ' + b for b in bad)}")
    return measure


WAY = """
import sys, time
sys.path[:0] = [{python!r}, {bench!r}]
import torch, trainc, trainc.torch, transformers
torch.manual_seed(0)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
ids = torch.randint(0, 50257, (1, 256))
begin = time.perf_counter()
exported = trainc.torch.export(model, dict(input_ids=ids, labels=ids))
trainc.compile(exported, {output!r}, cache_dir={cache!r})
print(time.perf_counter() - begin)
"""


def way(folder):
    program = WAY.format(python=os.path.join(ROOT, "python"), bench=os.path.join(ROOT, "bench"), output=os.path.join(folder, "gpt2.so"),
                         cache=os.path.join(folder, "cache"))
    cold, warm = (float(in_torch("-c", program).stdout) for _ in range(2))
    return judge(cold <= 12 and warm <= 3, f"GPT-2 small, 1 x 256: {cold:.1f} s, again from the cache {warm:.1f} s")


def call_cost(folder):
    programs = ("timing_python.py", "--torch"), ("timing_loader.py",)
    done = [in_torch(os.path.join(ROOT, "bench", program), *options, check=False) for program, *options in programs]
    said = [line for d in done for line in d.stdout.strip().splitlines() or [last_line(d.stderr)]]
    return judge(not any(d.returncode for d in done), "; ".join(said))


def package(folder):
    """On a fresh Debian with Python alone the wheel runs an example; behind scripts/setup.sh `pip install .` of a clean clone does, too."""
    begin = time.perf_counter()
    run([os.path.join(ROOT, "scripts", "wheel.sh")], timeout=3600)
    wheels = os.path.join(ROOT, "dist")
    wheel = max((os.path.join(wheels, name) for name in os.listdir(wheels) if name.endswith(".whl")), key=os.path.getmtime)
    size, notes, good = os.path.getsize(wheel), [f"built in {time.perf_counter() - begin:.0f} s"], True
    with fresh_debian(folder) as (root, inside):
        shutil.copy(wheel, os.path.join(root, "root"))
        inside("apt-get", "install", "-qy", "--no-install-recommends", "python3", "python3-venv")
        for way, source, prepare in ("wheel", f"/root/{os.path.basename(wheel)}", None), ("pip install .", "/trainc", "/trainc/scripts/setup.sh"):
            if prepare:
                inside(prepare, timeout=1800)
            python = f"/root/{way.split()[0]}/bin/python"
            inside("python3", "-m", "venv", os.path.dirname(os.path.dirname(python)))
            inside(python, "-m", "pip", "install", "-q", source, "numpy", timeout=3600)
            done = inside(python, "/trainc/test/Python/Inputs/installed.py", check=False)
            good &= not done.returncode
            notes.append(f"{way}: {done.stdout.strip() or last_line(done.stderr)}")
    return judge(good and size <= 120e6, f"wheel of {size / 1e6:.1f} MB, {'; '.join(notes)}")


# Whole steps of models at their real sizes (bench/models/full.py).

TRANSFORMERS = ("gpt2", "bert-base", "ernie-3.0-medium", "llama-100m", "vit-b-16")
OTHERS = ("resnet50", "convnext-t", "unet", "dlrm")
PEERS = ("eager", "compile", "max-autotune")
ROUNDS, STEPS, LIMIT = 7, 2, 600  # of blocks; steps of a block; seconds that a program may take to get ready
FASTER = {"AMX": 1.6, "AVX-512": 1.25, "AVX2": 1.15}  # the mean over transformers, by the widest unit of the CPU
OF_MEMORY = 0.55


def step_of(model, by, *options):
    return [PYTHON, "-W", "ignore", os.path.join(ROOT, "bench", "model_step.py"), model, by, *options]


def for_each_model(name, measure, models=TRANSFORMERS + OTHERS, anywhere=False):
    """{model: measure(model)}. Those that a run of this code had on this CPU when it was cut off are not measured again; with `anywhere`
    nor those that it had on another CPU, of which audit says so."""
    path = os.path.join(tables.FOLDER, "rows", f"models-{name}.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    found = dict(code=tables.code(folders=tables.OF_TORCH), models={})
    if os.path.exists(path):
        with open(path) as f:
            saved = json.load(f)
        if saved["code"] == found["code"]:
            found = saved
    results, here = {}, tables.cpu()
    for model in models:
        known = found["models"].setdefault(model, {})
        if here not in known and not (anywhere and known):
            before = audit.sides()
            result = measure(model)
            known[here] = dict(result=result, sides=[side for side in audit.sides() if side not in before])
            with open(path, "w") as f:
                json.dump(found, f)
        cpu = here if here in known else next(iter(known))
        for side, settings, *more in known[cpu]["sides"]:
            audit.note(side, settings if cpu == here else f"{settings}; on {cpu}", *more)
        results[model] = known[cpu]["result"]
    os.remove(path)
    return results


def peers_of(model):
    return {peer: step_of(model, peer) for peer in PEERS}


def timed(model, folder, ours=(), held=(), peers=None):
    """({peer: [its time / ours of each round]}, milliseconds of ours, how far the limit moved, {program: why it failed}). `ours` are
    options of our step; `peers` are their commands, if not as they are; the words `held` stand before the command of each program."""
    failed, peers = {}, peers or peers_of(model)
    commands = {"trainc": step_of(model, "trainc", *ours), **peers}
    commands = {name: [*held, *command, "--serve"] for name, command in commands.items()}
    commands["limit"] = [limit_program(), "serve", "sgemm_char_fc"]
    times = {name: parts["step_ms"] for name, parts in
             take_turns(commands, folder, ROUNDS, STEPS, failed=failed, limit=LIMIT).items()}
    broken = [f"{name}: {why}" for name, why in failed.items() if "no answer after" not in why]
    if broken or "trainc" not in times or not set(times) & set(peers):
        raise Failed(f"{model}: {'; '.join(broken or failed.values())}")
    limit = times.pop("limit")
    ratios = {peer: [p / t for p, t in zip(ms, times["trainc"])] for peer, ms in times.items() if peer != "trainc"}
    return ratios, median(times["trainc"]), max(limit) / min(limit), failed


def against_best(model, timing):
    """(a note, the ratios to the best peer, how far the limit moved) of what `timed` gave."""
    ratios, ours, drift, failed = timing
    best = min(ratios, key=lambda peer: median(ratios[peer]))
    return (f"{model} {ours:.0f} ms, {median(ratios[best]):.2f}x {best} (limit moved {drift:.2f}x)"
            + "".join(f", {peer} failed: {why}" for peer, why in failed.items()), ratios[best], drift)


def group(times, models, mean_bar, least_bar):
    """(notes, statuses) of the models' ratios to their best peers, and of their geometric mean in each round."""
    notes, statuses, reached, moved = [], [], [], 1.0
    for model in models:
        note, ratios, drift = against_best(model, times[model])
        notes.append(note)
        reached.append(ratios)
        moved = max(moved, drift)
        statuses.append(judge_ratios(ratios, lambda r: r >= least_bar, drift))
    means = [geometric_mean(round) for round in zip(*reached)]
    statuses.append(judge_ratios(means, lambda mean: mean >= mean_bar, moved))
    return [f"mean {median(means):.2f}x (bar {mean_bar}x, each {least_bar}x)", *notes], statuses


def speed(folder):
    """The mean over transformers is judged, and that none is slower than a peer; of the others the ratios are printed."""
    times = for_each_model("speed", lambda model: timed(model, folder))
    notes, statuses = group(times, TRANSFORMERS, FASTER[next(unit for unit in FASTER if unit in tables.family())], 1.0)
    return Outcome("; ".join([f"transformers {notes[0]}", *notes[1:], *(against_best(m, times[m])[0] for m in OTHERS)]), worst(statuses))


def peaks_of(model):
    """What a process with our step and one with PyTorch's say of their memory."""
    return [json.loads(run([*step_of(model, by), "--memory"], env=ENVIRONMENT, timeout=1800).stdout.splitlines()[-1])
            for by in ("trainc", "eager")]


def memory(folder):
    """Peak over the steps, less 16 bytes a parameter: the master, its gradient and two moments. Ours is that of a process that has
    loaded the artifact (trainc.load). Printed, too, are what it is beside PyTorch, in the process that exported, and what is left of
    both without what their imports take."""
    notes, ratios, bad = [], [], []
    for model, (ours, theirs) in for_each_model("memory", peaks_of).items():
        state = 16 * ours["parameters"] / 2**20
        total, beside, other = ours["alone_peak_mb"], ours["peak_mb"], theirs["peak_mb"]
        notes.append(f"{model} {total:.0f} of {other:.0f} MB, beyond 16 bytes a parameter {total - state:.0f} of {other - state:.0f}"
                     f" (in the exporting process {beside - state:.0f})")
        if model in TRANSFORMERS:
            ratios.append([max(peak - state, 1) / (other - state) for peak in (total, beside)]
                          + [max(total - ours["alone_imports_mb"] - state, 1) / max(other - theirs["imports_mb"] - state, 1)])
        if total > other:
            bad.append(f"{model} takes more than PyTorch")
        if ours["alone_loss"] != ours["loss"]:
            bad.append(f"{model} has other losses without PyTorch")
    reached, beside, without = (geometric_mean(column) for column in zip(*ratios))
    return judge(reached <= OF_MEMORY and not bad, f"transformers {reached:.2f}x of PyTorch's (in the exporting process"
                 f" {beside:.2f}x; without both sides' imports {without:.2f}x); {', '.join(bad) or 'none takes more in all'}; {'; '.join(notes)}")


def shapes(folder):
    done = in_torch(os.path.join(ROOT, "bench", "timing_shapes.py"), check=False)
    outcome = tests("torch-shapes.py")(folder)
    return judge(outcome.status == "ok" and not done.returncode, f"{outcome.value}; {last_line(done.stdout or done.stderr)}")


def random_graphs(folder, *options):
    done = in_torch(os.path.join(ROOT, "bench", "random_graphs.py"), *options, check=False)
    return judge(done.returncode == 0, last_line(done.stderr if done.returncode else done.stdout))


def few_graphs(folder):
    return random_graphs(folder, "--graphs", "100")
