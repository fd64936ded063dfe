# RUN: rm -rf %t && mkdir %t && %python %s %trainc_build/bin/trainc %cc %trainc_src/runtime/include %t
"""The header of an artifact is C11 and C++17 whatever inputs, outputs, entries and the module are called: reserved words,
macros, names of the header's own, text that ends comments, and names that differ in what no identifier has."""
import pathlib
import re
import subprocess
import sys

TRAINC, CC, INCLUDE, FOLDER = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
WORDS = ["class", "new", "template", "int", "this", "and", "co_await", "typeof", "status", "trainer", "result", "out_result",
         "out_class", "NULL", "EOF", "linux", "unix", "I", "errno", "assert", "stdin", "TRAINC_OK", "trainc_step", "trainc_status",
         "in_x", "x", "x.y", "x-y", "x_y", "x_y_2", "x$y", "_", "descriptor", "entry_step", "entry_x", "step.b", "step_b"]
TEXTS = [*WORDS, "1", "*/ int main;", "/* //", "/*/", "a\\0Ab", "größe", "?" + "?/", "x y", "\\\\"]
VALUE, PARAMETER = "tensor<2xf32>", '@"*/ int w;"'


def module(name, inputs, outputs, entries):
    """A module whose step has `inputs`, and which has an evaluation of each name in `entries`, with `outputs`."""
    lines = [f'module @"{name}" {{', "train.optimizer @g = sgd<lr = 0.1>",
             f"train.param {PARAMETER} : {VALUE} init(ones) optimizer(@g)",
             f"train.step @step({', '.join(f'%{i}: {VALUE}' for i in inputs)}) {{",
             f"  %w.w = train.read {PARAMETER} : {VALUE}", f"  %p.p = nn.mul %w.w, %{inputs[0]} : {VALUE}, {VALUE}",
             f"  %l.l = nn.reduce sum %p.p dims [0] : {VALUE}", "  train.yield loss(%l.l) : tensor<f32>", "}"]
    for entry in entries:
        names = ", ".join(f'"{o}"' for o in outputs)
        lines += [f'train.eval @"{entry}"(%x: {VALUE}) -> ({names}) {{',
                  f"  train.yield {', '.join(['%x'] * len(outputs))} : {', '.join([VALUE] * len(outputs))}", "}"]
    return "\n".join([*lines, "}", ""])


def check(text, what):
    """Compiles the header in both languages; returns it."""
    path = FOLDER / "header.h"
    done = subprocess.run([TRAINC, "-", "--emit=header", "-o", path], input=text, capture_output=True, text=True)
    assert done.returncode == 0, f"{what}: {done.stderr}"
    for language, standard in ("c", "c11"), ("c++", "c++17"):
        done = subprocess.run([CC, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function",
                               f"-I{INCLUDE}", "-fsyntax-only", path], capture_output=True, text=True)
        assert done.returncode == 0, f"{what}, {standard}: {done.stderr}"
    return path.read_text()


def main():
    text = check(module("class", WORDS, TEXTS, TEXTS), "all together")
    functions = re.findall(r"^static inline trainc_status (\w+)\(", text, re.M)
    constants = re.findall(r"^enum \{ (\w+) = (\d+) \};", text, re.M)
    assert len(set(functions)) == len(functions) == len(constants) == 1 + len(TEXTS), (functions, constants)
    for expected in ("class_step", "class_x", "class_x_y", "class_descriptor_2", "class_x_y_2", "class_x_y_2_2", "class_entry_step_2"):
        assert expected in functions, f"no {expected} in {functions}"
    assert "in_class, const float *in_new" in text and "*out_class, float *out_new" in text, text
    for name in "int", "new", "NULL", "trainc", "trainc_bind", "linux", "1", "größe", "x.y":
        check(module(name, ["x"], ["x"], ["input"]), f"module {name}")


if __name__ == "__main__":
    main()
