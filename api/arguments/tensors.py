"""Tensors of PyTorch among the arguments of programs. torch is never imported: whoever has a tensor has imported it."""

from __future__ import annotations

import sys
from typing import Any


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_array(value: Any) -> Any:
    """A tensor of PyTorch as a numpy array; what is none as it is."""
    if not is_tensor(value):
        return value
    torch: Any = sys.modules["torch"]
    held = value.detach().cpu()
    if held.dtype == torch.bfloat16:
        import ml_dtypes

        return held.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return held.numpy()
