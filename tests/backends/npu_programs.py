"""Kernels of the npu level, written by hand, and a way to run them."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from tilewright.backends.interpreter import Executable
from tilewright.dialects import make_context
from tilewright.machine import Machine

MACHINE = Machine.load("ascend-910b1")


def parse(text: str) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    module.verify()
    return module


def run(text: str, *arrays: np.ndarray, memory: str = "typed") -> list[np.ndarray]:
    return [np.asarray(x) for x in Executable(parse(text), MACHINE, memory)(*arrays)]


def matmul(m: int, n: int, k: int, l0a_address: int = 0) -> str:
    """x [m, k] times w [k, n] in f32: 2 x 2 cores, base tiles of 32 x 16 x 32, double buffers, sizes that
    need not divide. With another address for the second l0a slot's neighbour the buffers overlap."""
    bm, bk, bn, l1k = 32, 16, 32, 32
    tm, tn, n1 = -(-m // (2 * bm)), -(-n // (2 * bn)), -(-k // l1k)
    x, w, o = f"!npu.gm<{m}x{k}xf32>", f"!npu.gm<{k}x{n}xf32>", f"!npu.gm<{m}x{n}xf32>"
    l1a, l1b = f"!npu.buffer<{bm}x{l1k}xf32, l1", f"!npu.buffer<{l1k}x{bn}xf32, l1"
    l0a, l0b = f"!npu.buffer<{bm}x{bk}xf32, l0a", f"!npu.buffer<{bk}x{bn}xf32, l0b"
    acc = f"!npu.buffer<{bm}x{bn}xf32, l0c>"
    second = -(-m * k * 4 // 512) * 512
    third = second + -(-k * n * 4 // 512) * 512
    return f"""
npu.kernel @matmul {{kind="cube", grid=[2,2], outputs=1, workspaces=0}} {{
^bb0(%gi: index, %gj: index, %x: {x}, %w: {w}, %o: {o}):
  npu.section {{core="cube", units=1}} {{
  ^bb1(%u: index):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %ctm = arith.constant {tm} : index
    %ctn = arith.constant {tn} : index
    %cn1 = arith.constant {n1} : index
    %cnk = arith.constant {l1k // bk} : index
    %l1a = npu.alloc {{address=0}} : () -> {l1a}, 2 slots>
    %l1b = npu.alloc {{address=8192}} : () -> {l1b}, 2 slots>
    %l0a = npu.alloc {{address={l0a_address}}} : () -> {l0a}, 2 slots>
    %l0b = npu.alloc {{address=0}} : () -> {l0b}, 2 slots>
    %acc = npu.alloc {{address=0}} : () -> {acc}
    scf.for %i = %c0 to %ctm step %c1 {{
      scf.for %j = %c0 to %ctn step %c1 {{
        scf.for %k1 = %c0 to %cn1 step %c1 {{
          %sa = npu.slot %l1a at [%k1] : ({l1a}, 2 slots>) -> {l1a}>
          %sb = npu.slot %l1b at [%k1] : ({l1b}, 2 slots>) -> {l1b}>
          npu.load_nd2nz %x, %sa at [%gi * {tm * bm} + %i * {bm}, %k1 * {l1k}] {{sizes=[{bm},{l1k}]}}
            : ({x}, {l1a}>)
          npu.load_nd2nz %w, %sb at [%k1 * {l1k}, %gj * {tn * bn} + %j * {bn}] {{sizes=[{l1k},{bn}]}}
            : ({w}, {l1b}>)
          scf.for %kk = %c0 to %cnk step %c1 {{
            %ta = npu.slot %l0a at [%kk] : ({l0a}, 2 slots>) -> {l0a}>
            %tb = npu.slot %l0b at [%kk] : ({l0b}, 2 slots>) -> {l0b}>
            npu.load_l0 %sa, %ta at [0, %kk * {bk}] {{sizes=[{bm},{bk}]}} : ({l1a}>, {l0a}>)
            npu.load_l0 %sb, %tb at [%kk * {bk}, 0] {{sizes=[{bk},{bn}]}} : ({l1b}>, {l0b}>)
            npu.mmad %ta, %tb, %acc at [%k1 * {l1k // bk} + %kk] : ({l0a}>, {l0b}>, {acc})
          }}
        }}
        npu.fixpipe %acc, %o
          at [%gi * {tm * bm} + %i * {bm}, %gj * {tn * bn} + %j * {bn}] {{sizes=[{bm},{bn}]}} : ({acc}, {o})
      }}
    }}
  }}
}}
func.func @main(%x: {x}, %w: {w}) -> {o} attributes {{
    npu.addresses = array<i64: 0, {second}>, npu.arena_bytes = {third + m * n * 4 + 512} : i64}} {{
  %o = npu.gm_alloc {{address={third}}} : () -> {o}
  npu.launch @matmul %x, %w, %o {{outputs=1, workspaces=0}} : ({x}, {w}, {o})
  func.return %o : {o}
}}
"""


SOFTMAX = """
npu.kernel @softmax {kind="vector", grid=[3], outputs=1, workspaces=0} {
^bb0(%g: index, %x: !npu.gm<50x37xf32>, %o: !npu.gm<50x37xf16>):
  npu.section {core="vector", units=2} {
  ^bb1(%u: index):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %in = npu.alloc {address=0} : () -> !npu.buffer<3x37xf32, ub, 2 slots>
    %m = npu.alloc {address=960} : () -> !npu.buffer<3x1xf32, ub>
    %wide = npu.alloc {address=1056} : () -> !npu.buffer<3x37xf32, ub>
    %e = npu.alloc {address=OVERLAP} : () -> !npu.buffer<3x37xf32, ub>
    %q = npu.alloc {address=2016} : () -> !npu.buffer<3x37xf32, ub>
    %h = npu.alloc {address=2496} : () -> !npu.buffer<3x37xf16, ub>
    scf.for %i = %c0 to %c3 step %c1 {
      %t = npu.slot %in at [%i] : (!npu.buffer<3x37xf32, ub, 2 slots>) -> !npu.buffer<3x37xf32, ub>
      npu.load_nd %x, %t at [%g * 18 + %u * 9 + %i * 3, 0] {sizes=[3,37]}
        : (!npu.gm<50x37xf32>, !npu.buffer<3x37xf32, ub>)
      npu.vreduce %t, %m {kind="max", dims=[1]} : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x1xf32, ub>)
      npu.vbroadcast %m, %wide : (!npu.buffer<3x1xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vsub %t, %wide, %e
        : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vexp %e, %e : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vreduce %e, %m {kind="sum", dims=[1]} : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x1xf32, ub>)
      npu.vbroadcast %m, %wide : (!npu.buffer<3x1xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vdiv %e, %wide, %q
        : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf32, ub>)
      npu.vconvert %q, %h : (!npu.buffer<3x37xf32, ub>, !npu.buffer<3x37xf16, ub>)
      npu.store_nd %h, %o at [%g * 18 + %u * 9 + %i * 3, 0] {sizes=[3,37]}
        : (!npu.buffer<3x37xf16, ub>, !npu.gm<50x37xf16>)
    }
  }
}
func.func @main(%x: !npu.gm<50x37xf32>) -> !npu.gm<50x37xf16> attributes {
    npu.addresses = array<i64: 0>, npu.arena_bytes = 16384 : i64} {
  %o = npu.gm_alloc {address=8192} : () -> !npu.gm<50x37xf16>
  npu.launch @softmax %x, %o {outputs=1, workspaces=0} : (!npu.gm<50x37xf32>, !npu.gm<50x37xf16>)
  func.return %o : !npu.gm<50x37xf16>
}
"""
"""Rows of x, three at a time; OVERLAP is the address of the exponentials (1536 keeps them apart)."""


ADD = """
npu.kernel @add {kind="vector", grid=[1], outputs=1, workspaces=0} {
^bb0(%g: index, %x: !npu.gm<8xf32>, %y: !npu.gm<8xf32>, %o: !npu.gm<8xf32>):
  npu.section {core="vector", units=1} {
  ^bb1(%u: index):
    %a = npu.alloc {address=0} : () -> !npu.buffer<8xf32, ub>
    %b = npu.alloc {address=32} : () -> !npu.buffer<8xf32, ub>
    npu.load_nd %x, %a at [0] {sizes=[8]} : (!npu.gm<8xf32>, !npu.buffer<8xf32, ub>)
    npu.load_nd %y, %b at [0] {sizes=[8]} : (!npu.gm<8xf32>, !npu.buffer<8xf32, ub>)
    npu.vadd %a, %b, %b : (!npu.buffer<8xf32, ub>, !npu.buffer<8xf32, ub>, !npu.buffer<8xf32, ub>)
    npu.store_nd %b, %o at [0] {sizes=[8]} : (!npu.buffer<8xf32, ub>, !npu.gm<8xf32>)
  }
}
"""
"""A kernel for the tests of the host program: o = x + y."""

PUT = """
npu.kernel @put {kind="vector", grid=[1], outputs=1, workspaces=0} {
^bb0(%g: index, %n: !npu.gm<i32>, %o: !npu.gm<8xf32>):
  npu.section {core="vector", units=1} {
  ^bb1(%u: index):
    %a = npu.alloc {address=0} : () -> !npu.buffer<1xf32, ub>
    %i = npu.load_scalar %n at [] {low=0, high=7} : (!npu.gm<i32>) -> index
    npu.vfill %a {value = 7.0 : f64} : (!npu.buffer<1xf32, ub>)
    npu.store_nd %a, %o at [%i] {sizes=[1]} : (!npu.buffer<1xf32, ub>, !npu.gm<8xf32>)
  }
}
"""
"""A kernel that takes a number: o[n] = 7."""


MODES = pytest.mark.parametrize("memory", ["typed", "bytes"])


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)
