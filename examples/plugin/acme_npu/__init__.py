"""The Acme NPU: names and places only, so that Tilewright starts as fast as without it."""

from tilewright import AddedPass, Plugin

PLUGIN = Plugin(
    functions=["acme_npu.functions:MISH"],
    patterns=["acme_npu.patterns:MergePrefixXors"],
    alternatives=["acme_npu.alternatives:HALVES"],
    dialects={"acme": "acme_npu.ops:Acme"},
    rules={"stablehlo.custom_call @acme_prefix_xor": "acme_npu.rules:prefix_xor"},
    forms={
        "custom_call @acme_prefix_xor": """
func.func @main(%x: tensor<24x40x$T>) -> tensor<24x40x$T> {
  %r = "stablehlo.custom_call"(%x) {call_target_name = "acme_prefix_xor"} : (tensor<24x40x$T>) -> tensor<24x40x$T>
  return %r : tensor<24x40x$T>
}
"""
    },
    passes={"acme-expand": AddedPass(load="acme_npu.passes:AcmeExpandPass", after="graph-complex")},
    machines={"acme-1": "acme_npu:chips/acme-1.toml"},
    frontends={"chain": "acme_npu.frontend:read"},
)
