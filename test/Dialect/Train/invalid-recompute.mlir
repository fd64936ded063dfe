// RUN: trainc-opt %s --split-input-file --verify-diagnostics

func.func @types(%x: tensor<4xf32>) {
  // expected-error @+1 {{'train.recompute' op expects a block without arguments that yields its result types (C1), 'tensor<3xf32>', got a yield of 'tensor<4xf32>'}}
  %y = train.recompute -> tensor<3xf32> {
    train.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @nested(%x: tensor<4xf32>) {
  // expected-note @+1 {{the outer one is here}}
  %y = train.recompute -> tensor<4xf32> {
    // expected-error @+1 {{'train.recompute' op expects an entry or a function around it (C2), got another region}}
    %z = train.recompute -> tensor<4xf32> {
      train.yield %x : tensor<4xf32>
    }
    train.yield %z : tensor<4xf32>
  }
  return
}

// -----

train.buffer @b : tensor<4xf32> init(zeros)
func.func @writes(%x: tensor<4xf32>) {
  %y = train.recompute -> tensor<4xf32> {
    // expected-error @+1 {{'train.write' op is not allowed in a train.recompute (C3)}}
    train.write %x to @b : tensor<4xf32>
    train.yield %x : tensor<4xf32>
  }
  return
}
