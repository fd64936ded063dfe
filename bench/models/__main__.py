"""Lists the corpus, or builds each model and runs it once in eager mode. See README.md."""

import argparse
import time

import torch

from . import Entry, build, draws, entries, loss_of


def check(entry: Entry) -> str:
    """Builds, runs forward and backward in f32, checks what is said of randomness. Returns the line to print."""
    start = time.perf_counter()
    example = build(entry.name)
    torch.manual_seed(1)
    loss = loss_of(example)
    if loss.dim() != 0 or not torch.isfinite(loss):
        raise ValueError(f"the loss is {loss}, expected a finite scalar")
    loss.backward()
    gradients = [p.grad for p in example.model.parameters() if p.grad is not None]
    if not gradients or not all(torch.isfinite(g).all() for g in gradients):
        raise ValueError("no gradient, or one that is not finite")

    count = sum(p.numel() for p in example.model.parameters())
    elapsed = time.perf_counter() - start
    if draws(entry, rates=True) != bool(entry.random):
        raise ValueError(f"is said to draw {entry.random or 'nothing'!r}: losses of six seeds say otherwise")
    if draws(entry, rates=False) == entry.rates:
        raise ValueError(f"is said to have rates={entry.rates}: losses of six seeds with all rates 0 say otherwise")
    return f"{entry.name:22} {float(loss.detach()):12.6f} {count:10,d} {elapsed:6.1f} s  {entry.random}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="models", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--list", action="store_true", help="print the table")
    action.add_argument("--check", nargs="*", metavar="NAME", help="build and run these models, all by default")
    arguments = parser.parse_args()
    table = entries()
    if arguments.list:
        for entry in table.values():
            print(
                f"{entry.name:22} {entry.set}  {entry.file:12} {entry.source:13} {entry.random or '-':40} {entry.what}"
            )
        return 0

    torch.set_num_threads(1)
    failed = []
    for name in arguments.check or table:
        try:
            print(check(table[name]), flush=True)
        except Exception as error:  # every model is tried: what fails is printed with its name
            failed.append(name)
            print(f"{name:22} FAILED: {type(error).__name__}: {error}", flush=True)
    print(f"{len(arguments.check or table) - len(failed)} run, {len(failed)} failed {failed or ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
