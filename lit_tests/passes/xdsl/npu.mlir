// RUN: tilewright-opt %s -p cse | filecheck %s --check-prefixes ALL,CSE
// RUN: tilewright-opt %s -p dce | filecheck %s --check-prefixes ALL,DCE
// RUN: tilewright-opt %s -p canonicalize | filecheck %s --check-prefixes ALL,CANON
// RUN: tilewright-opt %s -p licm | filecheck %s --check-prefixes ALL,LICM

// Instructions, flags, commands and events all stay, and stay in order, equal neighbours too: each writes, or orders others.
// Equal buffers stay two. What goes or moves: addresses that are computed twice or in a loop, buffers that nobody uses, a
// view that changes nothing, a number that is read again with no write in between.
func.func @main(%x: !npu.gm<64xf32>, %i: !npu.gm<1xi32>) -> !npu.gm<64xf32> {
  %unused = npu.gm_alloc : () -> !npu.gm<64xf32>
  %y = npu.gm_alloc : () -> !npu.gm<64xf32>
  %w = npu.view %x : !npu.gm<64xf32>
  npu.launch @k %w, %i, %y {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<1xi32>, !npu.gm<64xf32>)
  npu.launch @k %w, %i, %y {outputs = 1, stream = "compute", workspaces = 0} : (!npu.gm<64xf32>, !npu.gm<1xi32>, !npu.gm<64xf32>)
  npu.record_event {event = 0, stream = "compute"}
  npu.wait_event {event = 0, stream = "copy_out"}
  %h = npu.to_host %y {stream = "copy_out"} : (!npu.gm<64xf32>) -> tensor<64xf32>
  %e = npu.host_call %h {module = "", op = "stablehlo.exponential", stream = "host"} : (tensor<64xf32>) -> tensor<64xf32>
  npu.copy %x, %y {stream = "compute"} : (!npu.gm<64xf32>, !npu.gm<64xf32>)
  func.return %y : !npu.gm<64xf32>
}
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%g: index, %x: !npu.gm<64xf32>, %i: !npu.gm<1xi32>, %y: !npu.gm<64xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%u: index):
    %spare = npu.alloc : () -> !npu.buffer<64xf32, ub>
    %a = npu.alloc : () -> !npu.buffer<64xf32, ub, 2 slots>
    %b = npu.alloc : () -> !npu.buffer<64xf32, ub, 2 slots>
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    scf.for %k = %c0 to %c4 step %c1 {
      %n = npu.load_scalar %i at [0] {high = 3, low = 0} : (!npu.gm<1xi32>) -> index
      %m = npu.load_scalar %i at [0] {high = 3, low = 0} : (!npu.gm<1xi32>) -> index
      %p = npu.slot %a at [0] : (!npu.buffer<64xf32, ub, 2 slots>) -> !npu.buffer<64xf32, ub>
      %q = npu.slot %b at [0] : (!npu.buffer<64xf32, ub, 2 slots>) -> !npu.buffer<64xf32, ub>
      npu.load_nd %x, %p at [%n] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
      npu.load_nd %x, %p at [%m] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
      %o = npu.load_scalar %i at [0] {high = 3, low = 0} : (!npu.gm<1xi32>) -> index
      npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.vexp %p, %q : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
      npu.barrier
      npu.barrier
      npu.store_nd %q, %y at [%o] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)
    }
  }
}
// ALL: npu.gm_alloc
// CSE-NEXT: npu.view
// DCE-NEXT: npu.view
// LICM-NEXT: npu.gm_alloc
// ALL: npu.launch @k
// CANON-SAME: %x, %i
// ALL-NEXT: npu.launch @k
// ALL-NEXT: npu.record_event
// ALL-NEXT: npu.wait_event
// ALL-NEXT: npu.to_host
// ALL-NEXT: npu.host_call
// ALL-NEXT: npu.copy
// ALL-NEXT: func.return
// LICM: npu.alloc : () -> !npu.buffer<64xf32, ub>
// ALL: npu.alloc : () -> !npu.buffer<64xf32, ub, 2 slots>
// ALL-NEXT: npu.alloc : () -> !npu.buffer<64xf32, ub, 2 slots>
// LICM: npu.slot
// LICM-NEXT: npu.slot
// ALL: scf.for
// ALL-NEXT: %[[N:.*]] = npu.load_scalar
// CSE-NEXT: npu.slot
// CSE-NEXT: npu.slot
// DCE-NEXT: npu.load_scalar
// CANON-NEXT: npu.load_scalar
// LICM-NEXT: npu.load_scalar
// ALL: npu.load_nd %x, %{{.*}} at [%[[N]]]
// CSE-NEXT: npu.load_nd %x, %{{.*}} at [%[[N]]]
// DCE-NEXT: npu.load_nd
// CANON-NEXT: npu.load_nd
// LICM-NEXT: npu.load_nd
// ALL-NEXT: npu.load_scalar
// ALL-NEXT: npu.set_flag
// ALL-NEXT: npu.wait_flag
// ALL-NEXT: npu.vexp
// ALL-NEXT: npu.barrier
// ALL-NEXT: npu.barrier
// ALL-NEXT: npu.store_nd
