"""Prints what is said about each part of a .tw file: `# -----` lines are between parts, and the lines of a part count
from its first; `# SHAPES: N=4` gives its dimensions."""

import re
import sys
from pathlib import Path

from tilewright.frontends.text import TwError
from tilewright.frontends.text.frontend import lower_tw

file = Path(sys.argv[1])
for part in file.read_text().split("# -----\n")[1:]:
    text = "".join(line for line in part.splitlines(True) if not line.startswith("# CHECK"))
    dimensions = {k: int(v) for k, v in re.findall(r"(?<=SHAPES: )(\w+)=(\d+)", text)}
    try:
        lower_tw(str(file), text, None, None, dimensions)
        print("no error")
    except TwError as error:
        print(error)
