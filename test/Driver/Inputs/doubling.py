"""Prints a step that calls a function, which calls another one twice, and so on: N functions, 2^N calls."""
import sys

VALUE = "tensor<4xf32>"
print("train.optimizer @g = sgd<lr = 0.1>")
print(f"train.param @w : {VALUE} init(ones) optimizer(@g)")
for i in range(int(sys.argv[1])):
    body = f"%z = nn.relu %x : {VALUE}" if i == 0 else "\n".join(
        f"  %{a} = func.call @f{i - 1}(%{b}) : ({VALUE}) -> {VALUE}" for a, b in ("yx", "zy"))
    print(f"func.func private @f{i}(%x: {VALUE}) -> {VALUE} {{\n{body}\n  return %z : {VALUE}\n}}")
print(f"""train.step @step() {{
  %w = train.read @w : {VALUE}
  %y = func.call @f{i}(%w) : ({VALUE}) -> {VALUE}
  %s = nn.reduce sum %y dims [0] : {VALUE}
  train.yield loss(%s) : tensor<f32>
}}""")
