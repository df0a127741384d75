"""PyTorch's modules and exported programs as sources.

PyTorch is no need of the suite (docs/testing.md says why), so these run where it is installed;
`tests/frontends/onnx/test_exported.py` has what it exported as files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch", reason="PyTorch is no need of the suite: docs/testing.md")

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(16, 8)

    def forward(self, x, scale=None):
        y = torch.relu(self.fc(x))
        return y if scale is None else (y * scale, y)

torch.manual_seed(0)
net = Net().eval()

def net_inputs():
    return [torch.randn(4, 16)]
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module whose class is in a file."""
    import importlib.util

    path = tmp_path / "net.py"
    path.write_text(NET)
    spec = importlib.util.spec_from_file_location("net_of_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.net


def want(net: Any, *args: Any) -> list[np.ndarray]:
    with torch.no_grad():
        made = net(*args)
    return [y.numpy() for y in (made if isinstance(made, tuple) else (made,))]


def test_a_module(net: Any) -> None:
    x = torch.randn(4, 16)
    program = tw.compile(net, x)
    np.testing.assert_allclose(program(x), want(net, x)[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(program(x.numpy()), want(net, x)[0], rtol=1e-5, atol=1e-6)
    assert {k.source.rpartition("/")[2] for k in program.report().kernels} == {"net.py:10"}
    found = tw.verify(net, x)
    assert found.ok
    assert found.reference == "PyTorch"


def test_parameters_are_arguments_with_values(net: Any) -> None:
    x = torch.randn(4, 16)
    program = tw.compile(net, x)
    assert "weights['fc.weight']" in repr(
        tw.compile(net, jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 16"), "float32"))
    )
    zero = {"fc.weight": np.zeros((8, 16), "f4"), "fc.bias": np.ones(8, "f4")}
    np.testing.assert_array_equal(program(x, weights=zero), np.ones((4, 8), "f4"))


def test_open_dimensions(net: Any) -> None:
    (b,) = jax.export.symbolic_shape("b", constraints=["b <= 64"])
    program = tw.compile(net, jax.ShapeDtypeStruct((b, 16), "float32"))
    assert isinstance(program, tw.DynamicProgram)
    for n in (1, 5):
        x = torch.randn(n, 16)
        np.testing.assert_allclose(program(x), want(net, x)[0], rtol=1e-5, atol=1e-6)


def test_an_exported_program(net: Any) -> None:
    exported = torch.export.export(
        net, (torch.randn(3, 16),), dynamic_shapes={"x": {0: torch.export.Dim("batch", max=64)}}
    )
    program = tw.compile(exported)
    assert isinstance(program, tw.DynamicProgram)
    x = torch.randn(7, 16)
    np.testing.assert_allclose(program(x), want(net, x)[0], rtol=1e-5, atol=1e-6)


def test_keyword_arguments_and_several_results(net: Any) -> None:
    x, scale = torch.randn(4, 16), torch.tensor(2.0)
    program = tw.compile(net, x, scale=scale)
    for got, y in zip(program(x, scale), want(net, x, scale), strict=True):
        np.testing.assert_allclose(got, y, rtol=1e-5, atol=1e-6)


def test_mistakes(net: Any) -> None:
    with pytest.raises(tw.CompileError, match="in training mode: call its eval"):
        tw.compile(torch.nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(tw.CompileError, match="Net: PyTorch does not export it"):
        tw.compile(net, torch.zeros(1, 2))
    with pytest.raises(tw.CompileError, match="cannot be called with these arguments"):
        tw.compile(net)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tilewright.cli.main import main

    (tmp_path / "net.py").write_text(NET)
    assert main(["run", f"{tmp_path}/net.py:net", "--check"]) == 0
    assert "against PyTorch" in capsys.readouterr().out
    assert main(["report", f"{tmp_path}/net.py:net", "--shapes", "f32[b,16]", "--at", "b=8"]) == 0
