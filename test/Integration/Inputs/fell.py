"""Checks that the loss in the output of trainc-run FILE has fallen by at least a quarter."""
import re
import sys

with open(sys.argv[1]) as f:
    losses = dict(re.findall(r"^(first|final) loss (\S+)", f.read(), re.M))
if not float(losses["final"]) < 0.75 * float(losses["first"]):
    sys.exit(f"expected a final loss below 3/4 of the first, got {losses}")
