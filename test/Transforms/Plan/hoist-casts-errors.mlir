// RUN: trainc-opt %s --train-hoist-casts --split-input-file --verify-diagnostics

train.arena @arena.master.f32 master {
  train.slice @w : tensor<8xf32>
}
// expected-error @below {{exists already; expected a module without copies}}
train.arena @copies compute {
  train.slice @w : tensor<8xbf16>
}
train.param @w : tensor<8xf32> init(ones) frozen
train.step @step(%n: tensor<f64>) {
  %w = train.read @arena.master.f32::@w : tensor<8xf32>
  %c = nn.cast %w to bf16 : tensor<8xf32>
  train.window_end
  train.yield loss(%n) : tensor<f64>
}

// -----

train.bucket @bucket [@w]
// expected-error @below {{expects no buckets yet; run train-hoist-casts before train-form-buckets}}
train.arena @arena.master.f32 master {
  train.slice @w : tensor<8xf32>
  train.span @bucket
}
train.param @w : tensor<8xf32> init(ones) frozen
train.step @step(%n: tensor<f64>) {
  %w = train.read @arena.master.f32::@w : tensor<8xf32>
  %c = nn.cast %w to bf16 : tensor<8xf32>
  train.window_end
  train.yield loss(%n) : tensor<f64>
}
