# trainc --cache-dir: what is in the cache is used for the same kernel alone, and never changes an artifact; compilers
# share a folder and may be killed; damaged and foreign files, and what others may write to, are not used.
#
# RUN: rm -rf %t && mkdir %t && %python %s %trainc_build/bin/trainc %S/Inputs/layers.mlir %t

import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(sys.argv[2]).parent))
from blake3 import blake3  # noqa: E402

tool, model, folder = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(), pathlib.Path(sys.argv[3])
cache = folder / "cache"
library = folder / "model.so"


def command(*options, program=tool, output=library):
    return [program, "-", "-o", output, "--time", *options]


def compile(text=model, *options, program=tool, output=library):
    """Compiles `text`; returns how many kernels were in the cache, how many there are, and all messages."""
    result = subprocess.run(
        command(*options, program=program, output=output), input=text, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    counts = re.search(r"kernels .* (\d+) of (\d+) from the cache", result.stderr)
    return (*(map(int, counts.groups()) if counts else (None, None)), result.stderr)


def cached(text=model, *options, **more):
    return compile(text, f"--cache-dir={cache}", *options, **more)


def entries():
    return sorted(cache.glob("*.trainc-cache"))


def check(actual, expected):
    assert actual == expected, f"expects {expected}, got {actual}"


def test_same_bytes():
    """The bytes depend neither on threads nor on the cache."""
    for kind, output in ("so", library), ("obj", folder / "model.o"):
        bytes = {}
        for options in [["--threads=1"], ["--threads=2"], ["--threads=7"], []]:
            compile(model, f"--emit={kind}", *options, output=output)
            bytes[f"{options}"] = output.read_bytes()
        shutil.rmtree(cache, ignore_errors=True)
        cold = cached(model, f"--emit={kind}", output=output)
        bytes["cold"] = output.read_bytes()
        warm = cached(model, f"--emit={kind}", "--threads=3", output=output)
        bytes["warm"] = output.read_bytes()
        check(len(set(bytes.values())), 1)
        check(cold[:2], (0, len(entries())))
        check(warm[:2], (cold[1], cold[1]))


def test_hits():
    """What is not part of a kernel may change: names, places in the source, hyperparameters, other kernels."""
    _, count, _ = cached()
    for text in (
        model.replace("lr = 0.1", "lr = 0.2").replace("global_norm<1.0>", "global_norm<2.0>"),
        "// A comment.\n" + model.replace("first", "weights").replace("@step", "@train"),
    ):
        check(cached(text)[:2], (count, count))
    found, count, _ = cached(model.replace("24", "28"))
    assert 0 < found < count, f"one layer's width changed, got {found} of {count} from the cache"


def test_misses():
    """All that decides a kernel's code is part of its key."""
    single = "--disable-pass=fuse-kernels"
    # This processor, by its features, and all with its name.
    version = subprocess.run(["llc", "--version"], capture_output=True, text=True, check=True).stdout
    host = re.search("Host CPU: (.*)", version).group(1)
    cached()
    cached(model, single)
    for options in [
        [single, "--reference"],  # the same kernels, lowered another way
        ["-O1"],
        ["-O2"],
        *([["--target-cpu=x86-64-v3"]] if not os.environ.get("TRAINC_AVX2_ONLY") else []),  # what is native there
        ["--target-cpu=alderlake"],
        ["--target-cpu=raptorlake"],  # the same features
        [f"--target-cpu={host}"],
    ]:
        check(cached(model, *options)[0], 0)
        found, count, _ = cached(model, *options)
        check(found, count)
    # A constant, a type, an attribute of an operation.
    before = cached()[1]
    for old, new in ("high 6.0", "high 5.0"), ("silu", "relu"), ("24", "28"):
        text = model.replace(old, new)
        shutil.rmtree(cache)
        compile(text)
        expected = library.read_bytes()
        cached()
        found, count, _ = cached(text)
        assert found < count and count == before, f"{old} -> {new}: {found} of {count} from the cache"
        check(library.read_bytes(), expected)
    # Another build of the compiler: its linker's hash differs, or its bytes if it has none.
    program = bytearray(pathlib.Path(tool).read_bytes())
    note = program.find(b"\x14\0\0\0\x03\0\0\0GNU\0")
    if note >= 0:
        program[note + 12] ^= 1
    other = folder / "trainc"
    other.write_bytes(program + b"\0")
    other.chmod(0o755)
    check(cached(program=other)[0], 0)
    check(cached(program=other)[0], before)


def test_damage():
    """A file that is not whole is not used; the next compilation has it again."""
    compile()
    expected = library.read_bytes()
    shutil.rmtree(cache)
    cached()
    whole = {path: path.read_bytes() for path in entries()}
    names = list(whole)

    def cut(path):
        path.write_bytes(whole[path][:-1])

    def lengthen(path):
        path.write_bytes(whole[path] + b"x")

    def clear(path):
        path.write_bytes(b"")

    def flip(path):
        data = bytearray(whole[path])
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    def swap(path):
        path.write_bytes(whole[names[names.index(path) - 1]])

    def foreign(path):
        path.write_text("This is no object.\n")

    for damage in (cut, lengthen, clear, flip, swap, foreign):
        for path in names:
            damage(path)
        found, count, messages = cached()
        check(found, 0)
        check(messages.count("is damaged; compiling again"), count)
        check(library.read_bytes(), expected)
        check({path: path.read_bytes() for path in entries()}, whole)
    # Nothing can be stored where a folder is.
    names[0].unlink()
    names[0].mkdir()
    found, count, messages = cached()
    check(found, count - 1)
    assert f"warning: cannot read '{names[0]}'" in messages, messages
    assert f"warning: cannot write '{names[0]}'" in messages, messages
    check(library.read_bytes(), expected)
    names[0].rmdir()


def test_wrong_parts():
    """A file with the right hashes whose parts are no attributes or no object: it is compiled again."""
    compile()
    expected = library.read_bytes()
    shutil.rmtree(cache)
    cached()
    whole = {path: path.read_bytes() for path in entries()}

    def part(data):
        return struct.pack("<Q", len(data)) + data

    for content in (
        b"",
        b"\1",
        struct.pack("<Q", 2**64 - 1),
        struct.pack("<Q", 100) + b"short",
        part(b"{}"),
        part(b"{}") + part(b""),
        part(b"{}") + part(b"no object") + part(b""),
        part(b"#train.abi<workgroups = 1>") + part(b"\x7fELF" + bytes(200)),
        part(b"#train.abi<workgroups = >") + part(b""),
        part(b"[1, 2]") + part(b""),
        part(b"#train.abi<workgroups = 99999999999999999999>") + part(b""),
        part(b"((((" * 100) + part(b""),
    ):
        for path, data in whole.items():
            head = data[: data.index(b"\n") + 33]  # the magic and the file's name
            path.write_bytes(head + blake3(content) + content)
        found, count, messages = cached()
        check(found, 0)
        check(messages.count("is damaged; compiling again"), count)
        assert "error" not in messages, messages
        check(library.read_bytes(), expected)
        check({path: path.read_bytes() for path in entries()}, whole)


def test_trust():
    """What others may write to is not used: it would run as this user."""
    compile()
    expected = library.read_bytes()
    shutil.rmtree(cache)
    mask = os.umask(0)
    _, count, _ = cached()
    os.umask(mask)
    for path in cache, *entries():
        check(path.stat().st_mode & 0o022, 0)
    check(cached()[:2], (count, count))
    first = entries()[0]
    for mode in 0o664, 0o646:
        first.chmod(mode)
        found, count, messages = cached()
        check(found, count - 1)
        assert f"warning: '{first}' can be written by others: it is not used" in messages, messages
        check(library.read_bytes(), expected)
        check(cached()[:2], (count, count))  # it has been replaced
    for mode in 0o775, 0o777, 0o1777:
        cache.chmod(mode)
        found, _, messages = cached()
        check(found, None)
        assert f"warning: the folder of the cache, '{cache}', can be written by others: it is not used" in messages, messages
        check(library.read_bytes(), expected)
    cache.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(first, 12345, -1)
        found, count, messages = cached()
        check(found, count - 1)
        assert f"warning: '{first}' belongs to user 12345: it is not used" in messages, messages
        os.chown(cache, 12345, -1)
        assert f"'{cache}', belongs to user 12345: it is not used" in cached()[2]
        os.chown(cache, 0, -1)
    first.unlink()
    first.symlink_to("/dev/zero")
    assert f"warning: cannot read '{first}'" in cached()[2]
    if first.exists():
        first.unlink()
    os.mkfifo(first)
    assert f"warning: cannot read '{first}'" in cached()[2]


def test_together():
    """Compilers that share a new folder, some of them killed."""
    compile()
    expected = library.read_bytes()
    shutil.rmtree(cache)

    def start(index):
        output = folder / f"{index}" / library.name
        output.parent.mkdir(exist_ok=True)
        process = subprocess.Popen(
            command(f"--cache-dir={cache}", output=output), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        process.stdin.write(model)
        process.stdin.close()
        return process, output

    processes = [start(index) for index in range(4)]
    for process, output in processes:
        messages = process.stderr.read()
        check(process.wait(timeout=300), 0)
        assert "warning" not in messages, messages
        check(output.read_bytes(), expected)
    count = len(entries())

    killed = 0
    for delay in range(10):
        shutil.rmtree(cache)
        process, output = start(0)
        # At the latest when there is the first entry, or a bit after it.
        while not (cache.is_dir() and entries()) and process.poll() is None:
            time.sleep(0.001)
        time.sleep(0.004 * delay)
        process.send_signal(signal.SIGKILL)
        process.stderr.close()
        killed += process.wait(timeout=300) == -signal.SIGKILL
        stored = len(entries())
        found, _, messages = cached()
        check(found, stored)
        assert "warning" not in messages, messages
        check(library.read_bytes(), expected)
    assert killed > 0, "no compiler was killed"
    check(len(entries()), count)


def test_size():
    """What was not used for the longest time goes; what killed compilers left goes after an hour."""
    shutil.rmtree(cache)
    _, count, _ = cached()
    used = set(entries())
    size = sum(path.stat().st_size for path in used)
    old = time.time() - 7200
    abandoned, recent, other = (cache / name for name in ("a.trainc-cache.tmp", "b.trainc-cache.tmp", "notes.txt"))
    for path in abandoned, recent, other:
        path.write_text("x" * 1000)
        if path != recent:
            os.utime(path, (old, old))
    for index, path in enumerate(sorted(used)):
        os.utime(path, (old + index, old + index))
    cached(model.replace("24", "28"))
    assert not abandoned.exists() and recent.exists() and other.exists()
    # The first model's kernels are used, the second's are not.
    newest = set(entries()) - used
    for path in newest:
        os.utime(path, (old, old))
    check(cached(model, f"--cache-size={size}")[0], count)
    check(set(entries()), used)
    cached(model, "--cache-size=0")
    check(entries(), [])
    assert recent.exists() and other.exists()


for test in test_same_bytes, test_hits, test_misses, test_damage, test_wrong_parts, test_trust, test_together, test_size:
    test()
