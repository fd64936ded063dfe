"""Prints a step that is attention, computed in the type that is given."""
import sys

x = "tensor<1x64x2x32xf32>"
precision = " precision(compute = bf16)" if sys.argv[1] == "bf16" else ""
print(f"""train.optimizer @sgd = sgd<lr = 0.1>
train.param @q : {x} init(normal<1.0>) optimizer(@sgd)
train.step @step(){precision} {{
  %q = train.read @q : {x}
  %o, %lse = nn.attention %q, %q, %q causal : {x}, {x}
  %sum = nn.reduce sum %o dims [0, 1, 2, 3] : {x}
  train.yield loss(%sum) : tensor<f32>
}}""")
