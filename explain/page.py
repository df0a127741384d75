"""The page: the template with the data, our CSS and JS, and the drawing library, all inlined."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from ..api.program import Program
from ..verification.results import Progress
from .data import page_data
from .errors import ExplainError
from .levels import LevelView

INSTALL = "pip install 'tilewright[explain]'"
SCRIPTS = ("state.js", "levels.js", "table.js", "charts.js", "program.js", "kernel.js", "stages.js", "main.js")


def render(program: Program, progress: Progress | None = None, views: list[LevelView] | None = None) -> str:
    """The page of a program as HTML text that needs no network. progress: is told of each step; views: the levels of
    the program, where they were kept when it was compiled.

    Raises ExplainError where the packages that draw are not installed, or the program cannot be made again.
    """
    check_installed()
    return page_of(program, page_data(program, progress, views))


def check_installed() -> None:
    """Raises ExplainError where the packages that draw are not installed."""
    try:
        for package in ("bokeh", "jinja2"):
            import_module(package)
    except ModuleNotFoundError as error:
        raise ExplainError(f"explain needs {error.name}, which is not installed: {INSTALL}") from None


def page_of(program: Program, data: Mapping[str, Any]) -> str:
    """The same with the data of the program, as `page_data` gives it. Raises ExplainError as `check_installed`."""
    check_installed()
    import bokeh
    import jinja2

    assets = files("tilewright.explain") / "assets"
    library = files(bokeh) / "server" / "static" / "js"

    def read(name: str) -> str:
        return (assets / name).read_text(encoding="utf-8")

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(read("page.html.j2")).render(
        title=f"{data['name']} on {data['target']}",
        name=data["name"],
        target=data["target"],
        summary=str(program.alone().report()),
        styles=_inline(read("page.css")),
        library=[
            _inline((library / name).read_text(encoding="utf-8"))
            for name in ("bokeh.min.js", "bokeh-api.min.js")
        ],
        scripts=[_inline(read(name)) for name in SCRIPTS],
        data=_json(data),
        version=_version(),
    )


def _json(data: object) -> str:
    """JSON that may stand in a <script>: `<` could close it."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _inline(code: str) -> str:
    """Code that may stand in a <script> or <style>."""
    return code.replace("</script", "<\\/script").replace("</style", "<\\/style")


def _version() -> str:
    try:
        return version("tilewright")
    except PackageNotFoundError:
        return "(not installed)"
