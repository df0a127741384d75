// RUN: INVALID

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, operand = 0, symbol = "b"}
  }
  func.return
}
// CHECK: 'npu.dispatch' needs a version, or that each size is compiled alone

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, operand = 0, symbol = "b"}
    npu.alone {guard = "s <= 4", reason = ""}
  }
  func.return
}
// CHECK: 'npu.dispatch' asks 's <= 4', and has no size s

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, operand = 0, symbol = "b"}
    npu.require {condition = "8*t == b", message = ""}
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.dispatch' asks '8*t == b', and has no size t

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, operand = 0, symbol = "b"}
    npu.version @v {extras = ["t"], guard = ""}
  }
  func.return
}
// CHECK: 'npu.dispatch' asks 't', and has no size t

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, operand = 0, symbol = "b"}
    npu.version @v {guard = "b <= 4"}
  }
  func.return
}
// CHECK: 'npu.dispatch' chooses @v, which does not exist

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, operand = 0, symbol = "b"}
    npu.alone {guard = "b", reason = ""}
  }
  func.return
}
// CHECK: 'npu.dispatch' 'b' is no constraint: write it as in s <= 2048 or mod(s, 8) == 0

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, operand = 0, symbol = "b"}
    npu.require {condition = "b >= 9", message = ""}
    npu.require {condition = "b <= 8", message = ""}
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.dispatch' the symbol b has no value from 9 to 8

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, operand = 0, symbol = "b"}
    npu.symbol {dimension = 0, operand = 0, symbol = "b"}
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.dispatch' has two sizes b

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    %c = arith.constant 0 : index
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.dispatch' holds 'arith.constant', which is none of its parts

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, operand = 1, symbol = "b"}
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.dispatch' takes b from operand 1, which is not there

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 2, operand = 0, symbol = "b"}
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.dispatch' takes b from dimension 2 of tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>, which is not there

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 1, operand = 0, symbol = "s"}
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.dispatch' takes s from dimension 1 of tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>, where it does not follow

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {symbol = "8*b"}
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.symbol' is called '8*b', which is no name of a size

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, element = 0, operand = 0, symbol = "b"}
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.symbol' has an operand, and one of a dimension and an element of it; or none of them

// -----

func.func @main(%x: tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
  npu.dispatch %x : (tensor<?x?xf32, #graph.sizes<["b", "b*s"]>>) {
    npu.symbol {dimension = 0, symbol = "b"}
    npu.alone {guard = "", reason = "it sorts"}
  }
  func.return
}
// CHECK: 'npu.symbol' has an operand, and one of a dimension and an element of it; or none of them

// -----

npu.require {condition = "b <= 8", message = ""}
// CHECK: 'npu.require' stands outside of npu.dispatch

// -----

npu.version @v {guard = ""}
// CHECK: 'npu.version' stands outside of npu.dispatch

// -----

npu.alone {guard = "", reason = ""}
// CHECK: 'npu.alone' stands outside of npu.dispatch

// -----

npu.symbol {symbol = "b"}
// CHECK: 'npu.symbol' stands outside of npu.dispatch
