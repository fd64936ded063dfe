# RUN: %python %s
"""trainc.compile: sources of each kind, options as those of the program, errors with diagnostics."""
import os
import pathlib
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import LINEAR, RANKS, linear, refused, trainc  # noqa: E402

MODULE = LINEAR.replace("ACCUMULATE", "1")


class Exported:
    text = MODULE


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    # Text, an object with text, a path; with an output and without.
    assert trainc.compile(MODULE) == "step.so" and os.path.exists("step.so") and os.path.exists("step.h")
    assert trainc.compile(Exported(), pathlib.Path("a.so")) == "a.so"
    with open("model.mlir", "w", encoding="utf-8") as file:
        file.write(MODULE)
    assert trainc.compile("model.mlir") == trainc.compile(pathlib.Path("model.mlir")) == "model.so"
    assert os.path.exists("model.so")

    # Options reach the program.
    trainc.compile(MODULE, "o.so", target_cpu="x86-64-v3", opt_level=1, threads=1, dump="forms", cache_dir="cache",
                   cache_size=1 << 20, align_size=64, split_f32=False, disable_pass=["reuse-memory"])
    trainc.compile(MODULE, "o2.so", disable_pass=[], mesh={}, target=())
    assert os.listdir("forms") and os.listdir("cache")
    with trainc.load("o.so", threads=1) as step:
        assert "x86-64-v3" in step.report()
    trainc.compile(RANKS, "o.so", mesh={"host": 1, "data": 2}, shard="optimizer", merge_buffer="full",
                   bucket_size=1 << 20, memory_limit="1G")
    trainc.compile(RANKS, "o.so", mesh="data=2", memory_limit=1 << 30)
    for options, words in [(dict(opt_level=7), ["-O7"]), (dict(shard="all"), ["--shard", "all"]),
                           (dict(memory_limit="much"), ["--memory-limit", "much"]),
                           (dict(tf32=True), ["--tf32", "--target=cuda"]), (dict(target="tpu"), ["--target", "tpu"]),
                           (dict(cuda_arch=["sm_90"]), ["--cuda-arch"]), (dict(mesh="data"), ["--mesh=axis=size"]),
                           (dict(mesh={"rows": 2}), ["rows"]), (dict(merge_buffer="half"), ["--merge-buffer", "half"]),
                           (dict(bucket_size=0), ["--bucket-size"]), (dict(cache_size=1), ["--cache-dir"]),
                           (dict(cuda_path="/x"), ["--cuda-path"])]:
        with refused(trainc.CompileError, *words):
            trainc.compile(MODULE, "refused.so", **options)
        assert not os.path.exists("refused.so")
    try:
        trainc.compile(MODULE, no_such_option=1)
    except TypeError as error:
        assert "no_such_option" in str(error)
    else:
        raise AssertionError("an unknown option was taken")

    # Errors: the compiler's diagnostics, with places in the file; nothing is written.
    with open("wrong.mlir", "w", encoding="utf-8") as file:
        file.write(MODULE.replace("tensor<3x1xf32> init", "tensor<5x1xf32> init"))
    with refused(trainc.CompileError, "wrong.mlir:3", "error:", "5x1"):
        trainc.compile("wrong.mlir", "wrong.so")
    try:
        trainc.compile("not a module\n")
    except trainc.CompileError as error:
        assert "error:" in error.diagnostics and error.status == "TRAINC_INVALID_ARGUMENT"
    assert not os.path.exists("wrong.so")
    with refused(trainc.NotFoundError, "none.mlir"):
        trainc.compile("none.mlir")
    with refused(trainc.CompileError, "/nowhere/x.so"):
        trainc.compile(MODULE, "/nowhere/x.so")

    # A warning of the compiler is one of Python.
    os.mkdir("open", 0o777)
    os.chmod("open", 0o777)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        linear(folder, cache_dir="open")
    assert len(said) == 1 and "cache" in str(said[0].message) and said[0].filename.endswith("tiny.py"), said
