"""What the tests and rows on processors share: the targets, small modules for them, and what their code may need and use."""
import os
import re
import shutil
import subprocess

from common import ROOT, Failed, generate

WITHOUT_AVX512 = ["x86-64-v3", "haswell", "alderlake", "znver2", "znver3"]
TARGETS = [*WITHOUT_AVX512, "x86-64-v4", "skylake-avx512", "icelake-server", "sapphirerapids", "znver4", "znver5"]
AARCH64 = ["generic", "neoverse-n1", "neoverse-v1", "cortex-a76", "apple-m1"]
TYPES = ["f32", "bf16", "f16"]
EXAMPLES = {
    "mlp": ["--batch", 5, "--accumulate", 2],
    "cnn": ["--batch", 3],
    "gpt": ["--layers", 2, "--width", 21, "--heads", 3, "--vocab", 37, "--batch", 3, "--seq", 11, "--context", 16],
    "llama": ["--layers", 2, "--width", 24, "--heads", 4, "--kv-heads", 2, "--vocab", 37, "--batch", 3, "--seq", 11],
}
PAD = os.path.join(ROOT, "test", "Driver", "Inputs", "pad.mlir")


def options_of(target):
    """How trainc is told of a processor."""
    return ["--target-cpu=" + target] + (["--target-triple=aarch64-linux-gnu"] if target in AARCH64 else [])


def of_type(text, element):
    """A module whose step computes in bf16, in another type."""
    return text.replace(" precision(compute = bf16)", "" if element == "f32" else f" precision(compute = {element})")


def example(model, element, *options):
    return of_type(generate(model, *EXAMPLES[model], "--bf16", *options), element)


def pad(element):
    """A random module with what did not link for most processors."""
    with open(PAD) as f:
        return of_type(f.read(), element)


def llvm_tool(name):
    folder = "/usr/lib/llvm-22/bin"
    path = shutil.which(name) or shutil.which(name, path=folder)
    if not path:
        raise Failed(f"{name} is not installed (package llvm-22)")
    return path


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def undefined(path):
    """The symbols that an artifact needs of others."""
    flags = ["-D"] if path.endswith(".so") else []
    return re.findall(r"^\s+[Uw] (\S+)", output(llvm_tool("llvm-nm"), *flags, "-u", path), re.M)


# In 64 bits the byte 62 begins an EVEX instruction, behind prefixes that are its own.
INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\s+(?:(?:26|2e|36|3e|64|65|67) )*(62 )?[0-9a-f ]*\t(.*)$", re.M)


def beyond_avx2(text):
    """The instructions of a disassembly that AVX2 does not have: with an EVEX prefix, or on wide or mask registers."""
    return [code.strip() for evex, code in INSTRUCTION.findall(text)
            if evex or re.search(r"%(zmm|[xy]mm(1[6-9]|2\d|3[01])|k[0-7]|tmm)", code)]


def disassembled(path):
    return output(llvm_tool("llvm-objdump"), "-d", path)


def undispatched(archive):
    """{member of a static library: its instructions beyond AVX2}, but of what the runtime chooses by the processor."""
    found = {}
    members = re.split(r"^\S+\((\S+)\):\s+file format .*$", disassembled(archive), flags=re.M)[1:]
    symbols = re.split(r"^(?:\S+[(:])?(\S+\.o)\)?:$", output(llvm_tool("llvm-nm"), archive), flags=re.M)[1:]
    if not members or members[::2] != symbols[::2]:
        raise Failed(f"the members of {archive} are not known")
    for name, text, table in zip(members[::2], members[1::2], symbols[1::2]):
        if name != "amx.cpp.o" and "kernelsV4" not in table:
            found.setdefault(name, []).extend(beyond_avx2(text))
    return found
