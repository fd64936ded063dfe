"""Writes the n-th block of a language from a Markdown file: blocks.py FILE LANGUAGE N."""
import re
import sys

path, language, n = sys.argv[1:]
with open(path, encoding="utf-8") as f:
    print(re.findall(rf"^```{language}\n(.*?)^```", f.read(), re.M | re.S)[int(n)], end="")
