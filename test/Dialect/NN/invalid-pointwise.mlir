// RUN: trainc-opt %s --verify-diagnostics --split-input-file

func.func @add_shapes(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.add' op expects broadcastable shapes (C1), got 'tensor<4x8xf32>', 'tensor<4xf32>'}}
  %r = nn.add %x, %y : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @add_types(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.add' op expects equal element types (C2), got 'f32' and 'f64'}}
  %r = nn.add %x, %z : tensor<4x8xf32>, tensor<8xf64>
  return
}

// -----

func.func @sub_shapes(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.sub' op expects broadcastable shapes (C1), got 'tensor<4x8xf32>', 'tensor<4xf32>'}}
  %r = nn.sub %x, %y : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @sub_types(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.sub' op expects equal element types (C2), got 'f32' and 'f64'}}
  %r = nn.sub %x, %z : tensor<4x8xf32>, tensor<8xf64>
  return
}

// -----

func.func @mul_shapes(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.mul' op expects broadcastable shapes (C1), got 'tensor<4x8xf32>', 'tensor<4xf32>'}}
  %r = nn.mul %x, %y : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @mul_types(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.mul' op expects equal element types (C2), got 'f32' and 'f64'}}
  %r = nn.mul %x, %z : tensor<4x8xf32>, tensor<8xf64>
  return
}

// -----

func.func @div_shapes(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.div' op expects broadcastable shapes (C1), got 'tensor<4x8xf32>', 'tensor<4xf32>'}}
  %r = nn.div %x, %y : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @div_types(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.div' op expects equal element types (C2), got 'f32' and 'f64'}}
  %r = nn.div %x, %z : tensor<4x8xf32>, tensor<8xf64>
  return
}

// -----

func.func @min_shapes(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.min' op expects broadcastable shapes (C1), got 'tensor<4x8xf32>', 'tensor<4xf32>'}}
  %r = nn.min %x, %y : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @min_types(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.min' op expects equal element types (C2), got 'f32' and 'f64'}}
  %r = nn.min %x, %z : tensor<4x8xf32>, tensor<8xf64>
  return
}

// -----

func.func @max_shapes(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.max' op expects broadcastable shapes (C1), got 'tensor<4x8xf32>', 'tensor<4xf32>'}}
  %r = nn.max %x, %y : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @max_types(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.max' op expects equal element types (C2), got 'f32' and 'f64'}}
  %r = nn.max %x, %z : tensor<4x8xf32>, tensor<8xf64>
  return
}

// -----

func.func @pow_shapes(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.pow' op expects broadcastable shapes (C1), got 'tensor<4x8xf32>', 'tensor<4xf32>'}}
  %r = nn.pow %x, %y : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @pow_types(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.pow' op expects equal element types (C2), got 'f32' and 'f64'}}
  %r = nn.pow %x, %z : tensor<4x8xf32>, tensor<8xf64>
  return
}

// -----

func.func @and_shapes(%x: tensor<4x8xi1>, %y: tensor<4xi1>) {
  // expected-error @+1 {{'nn.and' op expects broadcastable shapes (C1), got 'tensor<4x8xi1>', 'tensor<4xi1>'}}
  %r = nn.and %x, %y : tensor<4x8xi1>, tensor<4xi1>
  return
}

// -----

func.func @or_shapes(%x: tensor<4x8xi1>, %y: tensor<4xi1>) {
  // expected-error @+1 {{'nn.or' op expects broadcastable shapes (C1), got 'tensor<4x8xi1>', 'tensor<4xi1>'}}
  %r = nn.or %x, %y : tensor<4x8xi1>, tensor<4xi1>
  return
}

// -----

func.func @compare_shapes(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.compare' op expects broadcastable shapes (C1), got 'tensor<4x8xf32>', 'tensor<4xf32>'}}
  %r = nn.compare lt %x, %y : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @compare_types(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.compare' op expects equal element types (C2), got 'f32' and 'f64'}}
  %r = nn.compare lt %x, %z : tensor<4x8xf32>, tensor<8xf64>
  return
}

// -----

func.func @select_shapes(%c: tensor<4xi1>, %x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.select' op expects broadcastable shapes (C1), got 'tensor<4xi1>', 'tensor<4x8xf32>', 'tensor<4x8xf32>'}}
  %r = nn.select %c, %x, %x : tensor<4xi1>, tensor<4x8xf32>, tensor<4x8xf32>
  return
}

// -----

func.func @select_types(%c: tensor<8xi1>, %x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{'nn.select' op expects equal element types (C2), got 'f32' and 'f64'}}
  %r = nn.select %c, %x, %z : tensor<8xi1>, tensor<4x8xf32>, tensor<8xf64>
  return
}

// -----

func.func @clamp_bounds(%x: tensor<4x8xf32>, %y: tensor<4xf32>, %z: tensor<8xf64>) {
  // expected-error @+1 {{expects low <= high (C1), got 1.000000e+00 and -1.000000e+00}}
  %r = nn.clamp %x low 1.0 high -1.0 : tensor<4x8xf32>
  return
}

// -----

func.func @map_arguments(%x: tensor<8xbf16>) {
  // expected-error @+1 {{expects block arguments of types (C1) 'f32', got 'bf16'}}
  %r = nn.map(%x) : (tensor<8xbf16>) -> tensor<8xbf16> {
  ^bb0(%a: bf16):
    %b = arith.extf %a : bf16 to f32
    nn.yield %b : f32
  }
  return
}

// -----

func.func @map_yields(%x: tensor<8xbf16>) {
  // expected-error @+1 {{expects yielded values of types (C2) 'f32', got 'f64'}}
  %r = nn.map(%x) : (tensor<8xbf16>) -> tensor<8xbf16> {
  ^bb0(%a: f32):
    %b = arith.extf %a : f32 to f64
    nn.yield %b : f64
  }
  return
}

// -----

func.func @map_result_shape(%x: tensor<8xbf16>) {
  // expected-error @+1 {{expects results of the broadcast shape (C3), got 'tensor<4x8xbf16>'}}
  %r = nn.map(%x) : (tensor<8xbf16>) -> tensor<4x8xbf16> {
  ^bb0(%a: f32):
    nn.yield %a : f32
  }
  return
}

// -----

func.func @map_results(%x: tensor<8xbf16>) {
  // expected-error @+1 {{expects at least one result}}
  nn.map(%x) : (tensor<8xbf16>) -> () {
  ^bb0(%a: f32):
    nn.yield
  }
  return
}

// -----

func.func @map_tensors(%x: tensor<8xf32>) {
  // expected-error @+1 {{expects side-effect-free scalar arith and math ops only (C4), got 'tensor.empty'}}
  %r = nn.map(%x) : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: f32):
    // expected-note @+1 {{here}}
    %t = tensor.empty() : tensor<2xf32>
    nn.yield %a : f32
  }
  return
}

// -----

func.func @map_vectors(%x: tensor<8xf32>) {
  // expected-error @+1 {{expects scalars in its region (C4), got 'vector<2xf32>'}}
  %r = nn.map(%x) : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: f32):
    %c = arith.constant dense<1.0> : vector<2xf32>
    nn.yield %a : f32
  }
  return
}

// -----

func.func @map_input_shapes(%x: tensor<8xf32>, %y: tensor<4xf32>) {
  // expected-error @+1 {{expects broadcastable inputs (C3), got 'tensor<8xf32>', 'tensor<4xf32>'}}
  %r = nn.map(%x, %y) : (tensor<8xf32>, tensor<4xf32>) -> tensor<8xf32> {
  ^bb0(%a: f32, %b: f32):
    nn.yield %a : f32
  }
  return
}
