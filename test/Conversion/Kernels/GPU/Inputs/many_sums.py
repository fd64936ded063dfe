"""Prints a kernel of so many sums, of one element each, and the sum of these."""
import sys

count = int(sys.argv[1])


def array(values):
    return f"array<i64: {', '.join(map(str, values))}>"


print(f"""train.kernel @sums(%b: tensor<{count}xf32>) inplace [-1] {{
  %r = train.sum_blocks %b {{sources = {array([0] * count)}, firsts = {array(range(count))}, counts = {array([1] * count)},
      sets = [{array(range(count))}]}} : (tensor<{count}xf32>) -> tensor<f64>
  train.return %r : tensor<f64>
}}""")
