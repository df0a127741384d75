"""The notebook that tours the levels runs, and what it shows is so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from loading import module_at

PATH = Path(__file__).resolve().parents[1] / "examples" / "tour.py"


def test_the_tour_runs_as_a_script() -> None:
    done = subprocess.run([sys.executable, str(PATH)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_its_cells_define_what_they_show() -> None:
    outputs, names = module_at(PATH).app.run()
    assert names["check"].ok
    assert names["report"].kernels
    assert [k for k in names["report"].kernels if k.macs]
    shown = [getattr(o, "text", "") or "" for o in outputs]
    assert any("Tilewright: a tour of the levels" in text for text in shown)
