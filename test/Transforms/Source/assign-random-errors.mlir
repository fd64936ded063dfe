// RUN: trainc-opt %s --train-assign-random --split-input-file --verify-diagnostics

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @step() {
  %w = train.read @w : tensor<4xf32>
  // expected-note @+1 {{the other draw of this site is here}}
  %a = nn.dropout %w rate 0.5 site 3 : tensor<4xf32>
  // expected-error @+1 {{'nn.dropout' op expects a site of its own, got 3}}
  %b = nn.dropout %a rate 0.5 site 3 : tensor<4xf32>
  %loss = nn.reduce sum %b dims [0] : tensor<4xf32>
  train.yield loss(%loss) : tensor<f32>
}
