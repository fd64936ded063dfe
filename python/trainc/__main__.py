"""The compiler's command line: `python -m trainc model.mlir -o model.so`; installed as `trainc`, too."""
import os
import sys

from ._runtime import find
from .compiler import program_environment
from .errors import Error


def main() -> None:
    try:
        program = find("bin", "trainc")
    except Error as error:
        sys.exit(f"trainc: error: {error}")
    os.execve(program, ["trainc", *sys.argv[1:]], program_environment())


if __name__ == "__main__":
    main()
