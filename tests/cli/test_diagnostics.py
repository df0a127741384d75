"""What tilewright-opt says of a wrong program: place, line and caret; and what --verify-diagnostics expects of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.cli import opt

BEFORE = "func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {\n"
AFTER = "  func.return %x : tensor<8x16xf32>\n}\n"
RESHAPE = "graph.reshape %x : (tensor<8x16xf32>) -> tensor<8x17xf32>\n"
FINE = BEFORE + AFTER
BAD = f"{BEFORE}  %y = {RESHAPE}{AFTER}"
TWICE = f"{BEFORE}  %y = {RESHAPE}  %z = {RESHAPE}{AFTER}"
SAYS = "'graph.reshape' cannot reshape [8, 16] into [8, 17]: element counts differ"
RACES = """npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<64xf32>, %o: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<64xf32, ub>
    npu.load_nd %x, %a at [0] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
    npu.vexp %a, %a : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.store_nd %a, %o at [0] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
  }
}
"""


def run(path: Path, text: str, *args: str) -> int:
    path.write_text(text)
    return opt.main([str(path), *args])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "p.mlir"


WRONG = {
    "the verifier of an op": (f"  %y = {RESHAPE}", 8, f"{SAYS}", len("graph.reshape")),
    "the generic form": (
        '  %y = "graph.reshape"(%x) : (tensor<8x16xf32>) -> tensor<8x17xf32>\n',
        8,
        SAYS,
        len('"graph.reshape"'),
    ),
    "an attribute of a wrong kind": (
        '  %y = graph.broadcast %x {dims = "a"} : (tensor<8x16xf32>) -> tensor<8x17xf32>\n',
        8,
        "'graph.broadcast' property 'dims': \"a\" should be of base attribute array",
        len("graph.broadcast"),
    ),
    "an attribute that the op has not": (
        "  %y = graph.broadcast %x {dims = [0, 1], dimss = [0]} : (tensor<8x16xf32>) -> tensor<8x17xf32>\n",
        43,
        "'graph.broadcast' has no property 'dimss'",
        len("dimss"),
    ),
    "a value that is not defined": (
        "  %y = graph.max %x, %nothing : tensor<8x16xf32>\n",
        22,
        "%nothing is used here, but not defined",
        len("%nothing"),
    ),
    "several values that are not defined": (
        "  %y = graph.max %b, %a : tensor<8x16xf32>\n",
        18,
        "%b is used here, but not defined (nor is %a)",
        2,
    ),
    "an op that does not exist": (
        "  %y, %z = graph.nothing %x : tensor<8x16xf32>\n",
        12,
        "Operation graph.nothing is not registered",
        len("graph.nothing"),
    ),
    "a type that cannot be": (
        "  %y = npu.alloc : () -> !npu.buffer<8xf32, gm>\n",
        8,
        "!npu.buffer: 'gm' is not an on-chip space, such as l1, l0a, l0b, l0c, ub, bt, fb",
        len("npu.alloc"),
    ),
    "tabs": (f"\t%y =\t{RESHAPE}", 7, SAYS, len("graph.reshape")),
}


@pytest.mark.parametrize("name", WRONG)
def test_place_line_and_caret(name: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line, column, message, width = WRONG[name]
    assert run(file, BEFORE + line + AFTER) == 1
    first, *shown = capsys.readouterr().err.splitlines()
    assert first == f"{file}:2:{column}: error: {message}"
    assert shown == [
        line.rstrip("\n"),
        "".join(c if c == "\t" else " " for c in line[: column - 1]) + "^" * width,
    ]


def test_a_value_of_another_function_is_not_defined(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """xDSL would take the %b of the second function."""
    second = FINE.replace("@main", "@other").replace("%x", "%b")
    assert run(file, f"{BEFORE}  %y = graph.neg %b : tensor<8x16xf32>\n{AFTER}{second}") == 1
    assert f"{file}:2:18: error: %b is used here, but not defined\n" in capsys.readouterr().err


def test_a_value_may_be_used_before_its_definition(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    early = "  cf.br ^b\n^a:\n  func.return %y : tensor<8x16xf32>\n"
    text = f"{BEFORE}{early}^b:\n  %y = graph.neg %x : tensor<8x16xf32>\n  cf.br ^a\n}}\n"
    assert run(file, text) == 0, capsys.readouterr().err


def test_a_long_line_is_shown_around_the_caret(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(file, f"{BEFORE}  /* no comment */ {'x' * 3000} %y\n{AFTER}".replace("/* no comment */ ", ""))
        == 1
    )
    _, line, caret = capsys.readouterr().err.splitlines()
    assert len(line) == 160
    assert len(caret) <= 160


def test_an_op_with_a_location_is_shown_in_its_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = file.with_name("model.py")
    model.write_text("def f(x):\n    return x.reshape(8, 17)\n")
    line = f'  %y = {RESHAPE.rstrip()} loc("{model}":2:12)\n'
    assert run(file, BEFORE + line + AFTER) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{model}:2:12: error: {SAYS}",
        "    return x.reshape(8, 17)",
        f"{' ' * 11}{'^' * len('x.reshape')}",
    ]


def test_an_error_of_stablehlo_has_its_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = stablehlo.add %a, %b : tensor<4xf32>\n"
    )
    assert run(file, f"{FINE}// -----\n{text}  return %0 : tensor<4xf32>\n}}\n", "--split-input-file") == 1
    first, line, _ = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{file}:6:")
    assert ": error: not valid StableHLO" in first
    assert line == "  %0 = stablehlo.add %a, %b : tensor<4xf32>"


# -- several errors ------------------------------------------------------------------------------------------


def test_all_errors_of_the_verifier(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, TWICE) == 1
    assert capsys.readouterr().err.count("error:") == 1
    assert run(file, TWICE, "--all") == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert said == [f"{file}:{n}:8: error: {SAYS}" for n in (2, 3)]


def test_all_hazards(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that a person wrote is about its ops; no pass is to blame."""
    assert run(file, RACES, "-p", "npu-check") == 1
    first = capsys.readouterr().err
    assert first.startswith(f"{file}:7:5: error: kernel @k: race: 'npu.vexp' ({file}:7) on V reads")
    assert " (and 1 more, which --all shows)\n    npu.vexp %a, %a" in first
    assert run(file, RACES, "-p", "npu-check", "--all") == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert [line.split(": error: ")[0] for line in said] == [f"{file}:7:5", f"{file}:8:5"]
    assert not [line for line in said if "blame" in line or "npu-synchronize" in line]


def test_split_input_goes_on_after_a_bad_chunk(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n// -----\n".join([BAD, "no op\n", FINE, BAD])
    out = file.with_name("out.mlir")
    assert run(file, text, "--split-input-file", "-o", str(out)) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in said] == ["2", "7", "16"]
    assert not out.exists()
    assert run(file, text, "--split-input-file") == 1
    shown = capsys.readouterr()
    assert shown.out.count("// -----") == 3
    assert shown.out.count("func.func @main") == 1
    assert shown.err.count("error:") == 3


def test_a_longer_separator_is_one_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, f"{FINE}// ------------\n{FINE}", "--split-input-file") == 0
    assert capsys.readouterr().out.count("func.func @main") == 2


# -- expected errors -----------------------------------------------------------------------------------------

LINE = f"  %y = {RESHAPE}"
EXPECTED = {
    "@+1": f"  // expected-error @+1 {{{{cannot reshape}}}}\n{LINE}",
    "@below": f"  // expected-error @below {{{{cannot reshape}}}}\n{LINE}",
    "without a space": f"  // expected-error@+1{{{{cannot reshape}}}}\n{LINE}",
    "@-1": f"{LINE}  // expected-error @-1 {{{{cannot reshape}}}}\n",
    "@above": f"{LINE}  // expected-error @above {{{{element counts differ}}}}\n",
    "the same line": LINE.replace("\n", " // expected-error {{'graph.reshape'}}\n"),
    "-re": f"  // expected-error-re @+1 {{{{[{{{{[0-9]+}}}}, 16] into}}}}\n{LINE}",
    "two errors": (
        "  // expected-error @+2 {{cannot reshape}}\n  // expected-error @+2 {{cannot reshape}}\n"
        f"{LINE}{LINE.replace('%y', '%z')}"
    ),
    "two above": f"{LINE}  %z = graph.max %x, %x : tensor<8x16xf32>\n  // expected-error @-2 {{{{cannot}}}}\n",
    "a parse error": (
        "  // expected-error @+1 {{%b is used here, but not defined}}\n"
        "  %y = graph.neg %b : tensor<8x16xf32>\n"
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_expected_error_is_none(name: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, BEFORE + EXPECTED[name] + AFTER, "--verify-diagnostics") == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


UNMET = {
    "another text": (
        f"  // expected-error @+1 {{{{nothing}}}}\n{LINE}",
        ["3:8: error: unexpected error: ", '2:6: error: expected error "nothing"'],
    ),
    "another line": (
        f"{LINE}  // expected-error @+1 {{{{cannot}}}}\n",
        ["2:8: error: unexpected error: ", '3:6: error: expected error "cannot"'],
    ),
    "no error": (
        "  // expected-error @+1 {{cannot}}\n",
        ['2:6: error: expected error "cannot" was not produced'],
    ),
    "twice": (
        f"  // expected-error @+2 {{{{cannot}}}}\n  // expected-error @+1 {{{{cannot}}}}\n{LINE}",
        ['3:6: error: expected error "cannot" was not produced'],
    ),
    "a warning": (
        f"  // expected-warning @+1 {{{{cannot}}}}\n{LINE}",
        ["3:8: error: unexpected error: ", '2:6: error: expected warning "cannot" was not produced'],
    ),
    "characters of patterns": (
        f"  // expected-error @+1 {{{{[8. 16]}}}}\n{LINE}",
        ["3:8: error: unexpected error: ", "2:6: error: expected error"],
    ),
}


@pytest.mark.parametrize("name", UNMET)
def test_what_is_not_expected(name: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, expected = UNMET[name]
    assert run(file, BEFORE + text + AFTER, "--verify-diagnostics") == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(expected), "one line each"
    for line, start in zip(said, expected, strict=True):
        assert line.startswith(f"{file}:{start}")


def test_errors_of_passes_are_expected_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = RACES.splitlines(keepends=True)
    lines.insert(6, "    // expected-error @+1 {{race: 'npu.vexp'}}\n")
    lines.append("// expected-error @-3 {{race: 'npu.store_nd'}}\n")
    assert run(file, "".join(lines), "-p", "npu-check", "--verify-diagnostics") == 0, capsys.readouterr().err
    text = f"// expected-error @unknown {{{{needs a module that is tiled}}}}\n{FINE}"
    needs = text.replace(AFTER, "  %y = graph.neg %x : tensor<8x16xf32>\n" + AFTER)
    assert run(file, needs, "-p", "tile-to-npu", "--verify-diagnostics") == 0, capsys.readouterr().err


def test_each_chunk_has_its_own_expectations(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = BEFORE + EXPECTED["@+1"] + AFTER
    assert run(file, f"{good}// -----\n{FINE}", "--split-input-file", "--verify-diagnostics") == 0
    assert capsys.readouterr().out.count("func.func @main") == 1
    assert run(file, f"{good}// -----\n{BAD}", "--split-input-file", "--verify-diagnostics") == 1
    assert capsys.readouterr().err == f"{file}:8:8: error: unexpected error: {SAYS}\n"


def test_without_expectations_errors_are_output(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, BAD, "--verify-diagnostics") == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (f"error: {file}:2: {SAYS}\n", "")
    assert run(file, "no op", "--verify-diagnostics") == 1
    assert run(file, "no op", "--parsing-diagnostics") == 0
