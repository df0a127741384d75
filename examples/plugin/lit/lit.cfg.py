"""lit's settings: `lit examples/plugin/lit`, with the plugin installed."""

import os

import lit.formats

config.name = "acme-npu"  # noqa: F821
config.test_format = lit.formats.ShTest()  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")  # noqa: F821
config.environment["PATH"] = os.environ["PATH"]  # noqa: F821
