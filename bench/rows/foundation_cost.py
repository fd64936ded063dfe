"""The row on the cost model: one owner of every count, held against the loops that define the operations."""
import os

from common import ROOT
from pass_tests import lit_codes
from rows import judge

COST = ["Analysis/cost.mlir", "Project/owners.py", "Transforms/Memory/recompute-rates.mlir", "Transforms/Memory/recompute.mlir",
        "Driver/estimate.py"]


def cost_model(folder):
    codes = lit_codes([os.path.join(ROOT, "test", name) for name in COST])
    bad = [f"{name}: {code}" for name, code in codes.items() if code not in ("PASS", "FLAKYPASS")]
    return judge(len(codes) == len(COST) and not bad, "; ".join([f"{len(codes) - len(bad)} of {len(COST)} tests pass", *bad]))
