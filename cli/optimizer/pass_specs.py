"""The passes that `-p` names, and what is wrong with its text: with the text as it should be, where that is clear."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from xdsl.passes import ModulePass, get_pass_option_infos
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from ...support.sentences import suggestion
from ..common import CliError

Passes = Mapping[str, Callable[[], type[ModulePass]]]


def passes_of(text: str, available: Passes, ours: Iterator[str] | list[str]) -> tuple[ModulePass, ...]:
    """The passes of a pipeline's text; `ours` are named where a name is unknown. Raises CliError for what cannot be
    read, and for names and options that do not exist."""
    return tuple(_pass(spec, available, list(ours)) for spec in _specs(text))


def _specs(text: str) -> list[ArgSpec]:
    try:
        return list(parse_pipeline(text))
    except ArgSpecParseError as error:
        reason = _reason(text) or str(error).strip().splitlines()[-1].strip()
    better = _rewritten(text)
    hint = f"; write -p '{better}'" if better is not None else ""
    raise CliError(f"cannot read the passes '{text}': {reason}{hint}") from None


def _pass(spec: ArgSpec, available: Passes, ours: list[str]) -> ModulePass:
    if spec.name not in available:
        hint = suggestion(spec.name, available) or f"; ours are {', '.join(ours)}"
        raise CliError(f"unknown pass '{spec.name}'{hint}")
    cls = available[spec.name]()
    options = {o.name.replace("_", "-"): o for o in get_pass_option_infos(cls)}
    for name in spec.parameters:
        if name.replace("_", "-") not in options:
            takes = f"its options are {', '.join(options)}" if options else "it has none"
            raise CliError(
                f"pass {spec.name} has no option '{name}'{suggestion(name, options).removesuffix('?')}; {takes}"
            )
    try:
        return cls.from_spec(spec)
    except ValueError as error:
        for name, values in spec.parameters.items():
            if str(tuple(values)) in str(error):
                wanted = options[name.replace("_", "-")].expected_type.strip("'").removesuffix(" | None")
                given = ",".join(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
                text = "str" in wanted.split("|") and not (len(values) == 1 and isinstance(values[0], str))
                quoted = f'; as text it is {name}="{given}"' if text and values else ""
                raise CliError(
                    f"option '{name}' of pass {spec.name} must be {wanted}, not '{given}'{quoted}"
                ) from None
        raise CliError(f"pass {spec.name}: {error}") from None


# -- what is wrong -------------------------------------------------------------------------------------------

_PLAIN = re.compile(r"[\w-]+|[-+]?\d+(\.\d*([eE][-+]?\d+)?)?")
"""A value that needs no quotes."""

_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_OPTION = re.compile(
    r"""\s*(?P<key>[\w-]+)
    (?:\s*[=:]\s*(?P<value>"(?:\\.|[^"\\])*"|[^\s{}"]*))?
    (?P<end>[\s,;]*)""",
    re.VERBOSE,
)
_PASS = re.compile(
    r"""\s*(?P<name>[\w-]+)\s*
    (?:\{(?P<options>(?:"(?:\\.|[^"\\])*"|[^{}"])*)\})?
    \s*[,;]?\s*""",
    re.VERBOSE,
)
_NESTED = re.compile(r"\s*([\w.-]+)\((.*)\)\s*", re.DOTALL)


def _reason(text: str) -> str | None:
    """Why a pipeline cannot be read; None where only xDSL knows."""
    bare = _QUOTED.sub('""', text)
    nested = _NESTED.fullmatch(text)
    if nested is not None:
        return f"passes stand there without {nested[1]}(...) around them"
    if re.fullmatch(r"'.*'", text.strip(), re.DOTALL):
        return "one pair of quotes around the whole is enough"
    if "'" in bare or "`" in bare:
        return "values are quoted with double quotes"
    if bare.count('"') % 2:
        return "a double quote is never closed"
    if bare.count("{") != bare.count("}"):
        return "a '{' is never closed" if bare.count("{") > bare.count("}") else "a '}' closes nothing"
    for body in re.findall(r"\{([^{}]*)\}", bare):
        if re.search(r"(?:^|[\s,])[\w-]+\s*:", body):
            return "an option and its value are joined by '='"
        if re.search(r"\s=|=\s+[^\s,}]", body):
            return "no space may stand around '='"
        empty = re.search(r"([\w-]*)=(?=[\s,]|$)", body)
        if empty is not None:
            return f"option '{empty[1]}' has no value"
        if re.search(r",\s*[\w-]+=[^=]*$", body) and not re.search(r"=[^\s,]*=", body):
            return "options are separated by spaces"
        for value in re.findall(r"=([^\s]*)", body):
            if value != '""' and not all(_PLAIN.fullmatch(v) for v in value.split(",")):
                return f"the value {value} needs double quotes, which the shell keeps within single ones"
    outside = re.sub(r"\{[^{}]*\}", "", bare)
    if "=" in outside:
        return "options stand in braces behind the pass"
    if re.search(r"[\w}-]\s*;|[\w}-]\s+[\w-]", outside):
        return "passes are separated by commas"
    return None


def _rewritten(text: str) -> str | None:
    """The pipeline that was meant, where the passes and options in a text can be told apart; else None."""
    nested = _NESTED.fullmatch(text)
    text = text if nested is None else nested[2]
    text = re.sub(r"^(['`])(.*)\1$", r"\2", text.strip(), flags=re.DOTALL)
    text = re.sub(r"'([^'\"]*)'|`([^`\"]*)`", r'"\1\2"', text)
    if "=" in text and "{" not in text:  # pass option=value
        text = re.sub(r"^([\w-]+)\s+(.*=.*)$", r"\1{\2}", text)
    out, at = [], 0
    while at < len(text):
        found = _PASS.match(text, at)
        if found is None:
            return None
        options = None if found["options"] is None else _options(found["options"])
        if found["options"] is not None and options is None:
            return None
        out.append(found["name"] + (f"{{{options}}}" if options else ""))
        at = found.end()
    better = ",".join(out)
    try:
        list(parse_pipeline(better))
    except ArgSpecParseError:
        return None
    return better


def _options(body: str) -> str | None:
    """The options between the braces of a pass, separated and quoted as they must be; None for what are none."""
    out, at = [], 0
    body = body.strip()
    while at < len(body):
        found = _OPTION.match(body, at)
        if found is None or found["value"] == "" or ",," in (found["value"] or ""):
            return None
        at = found.end()
        if at < len(body) and not found["end"]:
            return None
        if found["value"] is None:
            out.append(found["key"])
            continue
        value, several = found["value"], _following(found["value"])
        if several is not None:  # a=1,b=2 are two options
            at = found.start("value") + len(several)
            value = several
        parts = [value] if value.startswith('"') else value.rstrip(",;").split(",")
        plain = all(p.startswith('"') or _PLAIN.fullmatch(p) for p in parts)
        bare = ",".join(parts)
        quoted = bare if plain else f'"{bare.replace(chr(34), "")}"'
        out.append(f"{found['key']}={quoted}")
        while at < len(body) and body[at] in ",; ":
            at += 1
    return " ".join(out)


def _following(value: str) -> str | None:
    """The part of a value before `,key=`, where other options follow it in place of a value with `=` of its own."""
    found = re.match(r"([^=,]+(?:,[^=,]+)*),[\w-]+=", value)
    return None if found is None else found[1]
