# RUN: %python %s %trainc_src
"""Facts that stand in one place of the compiler stand in no other: who counts arithmetic and bytes, rates, lanes, alignments, what
erases dead operations, identity elements of reductions."""
import glob
import os
import re
import sys

# What, how it looks, and where it has to stand; None: nowhere.
OWNED = [
    ("counts flops", r"\b[fF]lops\s*[+*]=|\b[fF]lops\s*=[^=;]*\*", None),
    ("counts a kind of work", r"\bwork\.(matrix|vector|functions)\s*[-+*]?=(?!=)", r"lib/Dialect/(NN/NN|Train/Train)Work\.cpp"),
    ("assumes a rate", r"\b\d+(\.\d+)?e\+?1\d\b", r"lib/Analysis/Rates\.cpp"),
    ("names the rate of a command", r"TRAINC_RATE_(UPDATE|ATTENTION|CONVOLUTION|F64|F32|BF16|F16)\b", r"lib/Analysis/.*"),
    ("counts bytes of a type", r"getNumElements\(\)\s*\*\s*[\w:.>-]*(get\w*Bytes|width)\b"
     r"|\bget\w*Bytes\([^;]*\)\s*\*\s*[\w:.>-]*getNumElements|BitWidth\(\)\s*/\s*8\b|divideCeil\([^;]*BitWidth",
     r"lib/Dialect/NN/NNDialect\.cpp"),
    ("sets the lanes", r"constexpr\s+\w+\s+\w*[lL]anes?(Count)?\w*\s*=\s*32\b", r"include/trainc/Dialect/NN/NNOps\.h"),
    ("sets an alignment", r"constexpr\s+\w+\s+\w*([aA]lignment|CacheLine)\w*\s*=\s*\d", r"include/trainc/Dialect/Train/Alignment\.h"),
    ("erases dead operations", r"\bisOpTriviallyDead\b", r"include/trainc/Transforms/EraseDead\.h"),
    ("makes the identity of a reduction", r"\bgetSignedMinValue\b", r"lib/Dialect/NN/NNReductionOps\.cpp"),
]

root = sys.argv[1]
errors, owners = [], set()
for top in ("include", "lib"):
    for path in sorted(glob.glob(os.path.join(root, top, "**", "*.*"), recursive=True)):
        if not path.endswith((".cpp", ".h", ".td")):
            continue
        with open(path, encoding="utf-8") as f:
            text = re.sub(r"//.*|/\*.*?\*/", "", f.read())
        name = os.path.relpath(path, root)
        for what, pattern, owner in OWNED:
            for found in re.finditer(pattern, text):
                if owner and re.fullmatch(owner, name):
                    owners.add(what)
                else:
                    errors.append(f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {what}: {' '.join(found[0].split())}")
errors += [f"nothing {what}: {owner}" for what, _, owner in OWNED if owner and what not in owners]
print(f"{len(OWNED)} facts")
sys.exit("\n".join(errors) or 0)
