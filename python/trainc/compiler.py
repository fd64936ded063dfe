"""Compiling a module: the `trainc` program, with its options as keywords."""
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ._runtime import PACKAGE, find
from .errors import CompileError, NotFoundError, warn


def program_environment() -> dict:
    """The environment of the compiler: it finds the linker that this package may have."""
    return {**os.environ, "PATH": os.pathsep.join([os.path.join(PACKAGE, "bin"), os.environ.get("PATH", os.defpath)])}


def _listed(values) -> str | None:
    """None of nothing."""
    if not values:
        return None
    if isinstance(values, Mapping):
        return ",".join(f"{name}={size}" for name, size in values.items())
    return values if isinstance(values, str) else ",".join(values)


def compile(source: Any, output: str | os.PathLike | None = None, *, target: str | Sequence[str] | None = None,
            target_cpu: str | None = None, target_triple: str | None = None, portable_bits: bool = False,
            opt_level: int | None = None, mesh: str | Mapping[str, int] | None = None, shard: str | None = None,
            merge_buffer: str | None = None, bucket_size: int | None = None, memory_limit: int | str | None = None,
            align_size: int | None = None, tf32: bool = False, split_f32: bool = True,
            cuda_arch: str | Sequence[str] | None = None, cuda_path: str | os.PathLike | None = None,
            cache_dir: str | os.PathLike | None = None, cache_size: int | None = None, threads: int | None = None,
            disable_pass: str | Sequence[str] | None = None, dump: str | os.PathLike | None = None) -> str:
    """Compiles a module to a shared library, and writes a C header beside it. Returns the library's path.

    source: what docs/Language.md describes: a path, text (it has a line break), or an object with `.text`, such as
        what `trainc.torch.export` returns; `.words`, if it has some, are its own for phrases of the diagnostics.
    output: where to; without, NAME.so of NAME.mlir, or step.so of text, in the working directory.
    target: "cpu" (default), "cuda", or both.
    target_cpu: "native" (default), "x86-64-v3", "x86-64-v4", "neoverse-n1", ...
    target_triple: "x86_64-linux-gnu" or "aarch64-linux-gnu"; without, this machine's.
    portable_bits: the same bits on every CPU; no library multiplies.
    opt_level: 0 to 3 (default).
    mesh: the ranks to compile for, {"data": 4} or "host=2,data=2".
    shard: what ranks divide: "none" (default), "optimizer", "gradients" or "parameters".
    merge_buffer: gradients of an accumulation window: "full", or "sharded", summed in each micro-step.
    bucket_size: bytes of gradients that ranks exchange at a time, about.
    memory_limit: state and workspace stay below, in bytes or as "3G": values are computed again.
    align_size: bytes that tensors of the state are aligned to.
    tf32, split_f32: whether factors of f32 products may be rounded to TF32 on GPUs, and split into bf16 on CPUs with
        AMX.
    cuda_arch, cuda_path: GPUs to make code for, "sm_90" or several; the CUDA toolkit.
    cache_dir, cache_size: a folder that keeps compiled kernels, and what it may grow to in bytes. Without: no cache.
    threads: to compile on.
    disable_pass: passes to leave out.
    dump: a folder for the module in each form.

    CompileError has the compiler's diagnostics. Its warnings are Python's.
    """
    options = [("target", _listed(target)), ("target-cpu", target_cpu), ("target-triple", target_triple),
               ("mesh", _listed(mesh)),
               ("shard", shard), ("merge-buffer", merge_buffer), ("bucket-size", bucket_size),
               ("memory-limit", memory_limit), ("align-size", align_size),
               ("cuda-arch", _listed(cuda_arch)), ("cuda-path", cuda_path), ("cache-dir", cache_dir),
               ("cache-size", cache_size), ("threads", threads),
               ("disable-pass", _listed(disable_pass)), ("dump", dump)]
    command = [find("bin", "trainc"), *(f"--{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}"
                                        for name, value in options if value is not None)]
    command += [f"-O{opt_level}"] if opt_level is not None else []
    command += ["--portable-bits"] if portable_bits else []
    command += ["--tf32"] if tf32 else []
    command += [] if split_f32 else ["--no-split-f32"]
    text = getattr(source, "text", source)
    if isinstance(text, str) and "\n" in text:
        name, text = "step.so", text.encode()
        command.append("-")
    else:
        path, text = os.fspath(source), None
        if not os.path.exists(path):
            raise NotFoundError(f"there is no module {path} (the text of one has a line break)")
        name = os.path.splitext(os.path.basename(path))[0] + ".so"
        command.append(os.path.abspath(path))
    output = os.fspath(output) if output is not None else name
    done = subprocess.run([*command, "-o", output], input=text, stdin=subprocess.DEVNULL if text is None else None,
                          capture_output=True, env=program_environment())
    said = (done.stderr + done.stdout).decode(errors="replace")
    for phrase, own in getattr(source, "words", {}).items():
        said = said.replace(phrase, own)
    if done.returncode < 0:
        raise CompileError(f"{said}\nthe compiler was ended by signal {-done.returncode}")
    if done.returncode:
        advice = getattr(source, "advice", {})  # of an export
        raise CompileError(said, "\n".join(text for pattern, text in advice.items() if re.search(pattern, said)))
    if said.strip():
        warn(said.strip())
    return output
