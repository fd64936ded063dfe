# A shared library has a checksum of its file, and the runtime looks at it, and at what loading the library would do, before it loads it.
#
# RUN: rm -rf %t && mkdir %t && cd %t
# RUN: trainc %S/Inputs/model.mlir -o good.so && llvm-readelf --notes --dyn-symbols --dynamic good.so | FileCheck %s --check-prefix=LIBRARY
# LIBRARY-DAG: trainc
# LIBRARY-DAG: 0x00000008
# LIBRARY-NOT: {{NEEDED|INIT|FINI| UND .*[a-z]}}
#
# An object has no note: what others link of it has no checksum.
# RUN: trainc %S/Inputs/model.mlir --emit=obj -o m.o && llvm-readelf --notes m.o | FileCheck %s --check-prefix=OBJECT --allow-empty
# OBJECT-NOT: trainc
# RUN: ld.lld -shared m.o --defsym=trainc_descriptor=m_descriptor -o linked.so && trainc-run linked.so --memory-report | FileCheck %s --check-prefix=OPENED
# RUN: trainc-run good.so --memory-report | FileCheck %s --check-prefix=OPENED
# OPENED: in all
#
# Every change of the file is an error.
# RUN: %python %s %trainc_build/bin/trainc-run
#
# What a library would do when it is loaded: nothing of it is done.
# RUN: echo '#include <stdio.h>' >loud.c && echo 'const char trainc_descriptor[16] = {1};' >>loud.c
# RUN: echo '__attribute__((constructor)) static void say(void) { puts("it ran"); }' >>loud.c
# RUN: %cc -shared -fPIC loud.c -o loud.so
# RUN: not trainc-run loud.so --memory-report 2>&1 | FileCheck %s --check-prefix=LOUD
# LOUD-NOT: it ran
# LOUD: './loud.so' is no trainc artifact

# DEFINE: %{link} = ld.lld -shared --defsym=trainc_descriptor=m_descriptor m.o
# DEFINE: %{refused} = not trainc-run bad.so --memory-report 2>&1 | FileCheck %s
# RUN: echo '__attribute__((constructor)) static void say(void) {}' >init.c && %cc -c -fPIC init.c && %{link} init.o -o bad.so
# RUN: %{refused} --check-prefix=INIT
# INIT: './bad.so' is no trainc artifact: it has code that runs when it is loaded or unloaded
# RUN: echo 'static void (*find(void))(void) { return 0; } __attribute__((ifunc("find"))) void chosen(void);' >ifunc.c
# RUN: %cc -c -fPIC ifunc.c && %{link} ifunc.o -o bad.so
# RUN: %{refused} --check-prefix=INIT
# RUN: echo 'extern int other(void); int call(void) { return other(); }' >undefined.c && %cc -c -fPIC undefined.c && %{link} undefined.o -o bad.so
# RUN: %{refused} --check-prefix=SYMBOL
# SYMBOL: './bad.so' is no trainc artifact: it needs the symbol 'other' of another library
# RUN: ld.lld -shared loud.so --defsym=trainc_descriptor=m_descriptor m.o -o bad.so
# RUN: %{refused} --check-prefix=NEEDED
# NEEDED: './bad.so' is no trainc artifact: it needs other libraries

import pathlib
import random
import subprocess
import sys

tool = sys.argv[1]
whole = pathlib.Path("good.so").read_bytes()
numbers = random.Random(1)


def run(content):
    pathlib.Path("flipped.so").write_bytes(content)
    return subprocess.run([tool, "flipped.so", "--memory-report"], capture_output=True, text=True)


for count in [1] * 80 + [2, 3] * 20:
    content = bytearray(whole)
    for place in numbers.sample(range(64, len(whole)), count):
        content[place] ^= 1 << numbers.randrange(8)
    result = run(content)
    changed = [i for i, (a, b) in enumerate(zip(whole, content)) if a != b]
    assert result.returncode == 1 and "flipped.so' is " in result.stderr, (changed, result)
note = whole.index(b"trainc\0\0") - 12
for place in range(note, note + 20):  # the note's head: without it there is no checksum to compare
    content = bytearray(whole)
    content[place] ^= 1 << numbers.randrange(8)
    result = run(content)
    assert result.returncode == 1 and "flipped.so' is damaged" in result.stderr, (place, result)
for content in (whole + b"\0", whole[:-1]):
    result = run(content)
    assert result.returncode == 1 and "flipped.so' is " in result.stderr, result
assert run(whole).returncode == 0
