# REQUIRES: torch
# RUN: %venv_torch %s
"""Types, and values and gradients at corners, of operations that a rule gets wrong easily."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402

torch.manual_seed(5)


def evaluated(function, *batch, **options):
    """What an eval gives for a function of its batch."""
    evals = {"y": (lambda m, *batch: function(*batch), batch)}
    exported = trainc.torch.export(nn.Linear(1, 1), (torch.ones(1, 1),), lambda m, x: m(x).sum(), evals=evals, **options)
    with exported.step(threads=1) as step:
        return tuple(step.eval("y", *batch).values())


def exact(function, *batch, **options):
    """Values and types must be PyTorch's, to the last bit."""
    got, wanted = evaluated(function, *batch, **options), function(*batch)
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True, msg=lambda said: f"result {i}: {said}, got {a}, expected {b}")


def copies_on_a_grid():
    """What F.interpolate copies is not rounded where products are, nor changed by an infinity elsewhere."""
    def copied(x):
        return (F.interpolate(x, (3, 4)),)

    x = torch.arange(1000.0, 1036.0).view(1, 1, 6, 6)
    x[0, 0, 0, 0] = -torch.inf
    for precision in (None, "bf16"):
        exact(copied, x, precision=precision)


def lines_on_a_grid():
    """With precision="bf16" linear interpolation is in f32, and an infinity changes nothing but what lies beside it."""
    def between(x, y):
        y = F.linear(y, torch.eye(6))  # exact
        planes = [F.interpolate(v, size, mode="bilinear", align_corners=corners) for v in (x, y)
                  for size in ((12, 18), (9, 10), (3, 13), (11, 6), (4, 1)) for corners in (False, True)]
        return (*planes, F.interpolate(y[0], 12, mode="linear"), F.interpolate(y.unsqueeze(2), (2, 12, 9), mode="trilinear"),
                F.interpolate(y, scale_factor=1.3, mode="bilinear"))

    y = torch.arange(1000.0, 1036.0).view(1, 1, 6, 6).remainder(7.25).bfloat16().float()
    for precision, row, number in ((None, 3, torch.inf), (None, 5, -torch.inf), ("bf16", 3, torch.inf)):
        x = y.clone()
        x[0, 0, row, 2] = number
        for got, wanted in zip(evaluated(between, x, y, precision=precision), between(x, y), strict=True):
            torch.testing.assert_close(torch.where(wanted.isnan(), wanted, got), wanted, rtol=1e-5, atol=1e-5, equal_nan=True)  # of 0 times infinity


def wider_targets():
    """Losses are computed in the type to which logits and targets are promoted."""
    def losses(x, y):
        return F.kl_div(x, y, reduction="none"), F.kl_div(x, y.log(), log_target=True), F.binary_cross_entropy_with_logits(x, y, reduction="none")

    x, y = torch.randn(4, 50), torch.randn(4, 50).softmax(-1)
    for given in ((x.bfloat16(), y), (x, y.double())):
        got = evaluated(losses, *given)
        assert [x.dtype for x in got] == [x.dtype for x in losses(*given)]
        wanted = losses(*(x.double() for x in given))
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6, check_dtype=False)


def equal_maxima():
    """Each of them has the whole gradient of a distance."""
    class Distance(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([[1.0, -1.0, 0.5], [2.0, 0.0, 2.0]]))

        def forward(self, x):
            return torch.cdist(self.w, x, p=torch.inf).square().sum()

    agree(Distance(), (torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]),), optimizer=lambda p: torch.optim.SGD(p, 0.1), updates=1,
          bar=1e-6, parameters=1e-6)


def signs_of_zero():
    """Constants of 0.0 and -0.0 are two numbers."""
    def signed(x):
        zeros = torch.tensor([0.0, -0.0])
        return torch.copysign(x, zeros), torch.atan2(zeros, -x), x / zeros

    exact(signed, torch.ones(2))


def narrow_powers():
    """Of int8 127 squared wraps to 1."""
    def powers(n, exponent):
        return (n ** exponent,)

    exact(powers, torch.tensor([127, -127, -1, 1, 2, -128], dtype=torch.int8), torch.tensor([-1, -3, -3, -2, -1, -1], dtype=torch.int8))


def powers_of_two():
    """Of whole numbers they are exact, as formats of numbers that are simulated need them."""
    def powers(n):
        return torch.exp2(n), 2.0 ** n, 0.5 ** n, 4 ** (n / 2), torch.ldexp(torch.ones_like(n), n)

    def ends(x):
        return torch.exp2(x), 2 ** x, 0.25 ** x

    class Powers(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(torch.randn(50, dtype=torch.float64) * 9)

        def forward(self, w):
            return ((torch.exp2(self.x) + 2 ** -self.x + 0.5 ** (self.x / 3)) * w).sum()

    for dtype, least in ((torch.float32, -126), (torch.float64, -1022)):
        exact(powers, torch.arange(least, 1 - least, dtype=dtype)[:-1])
        exact(ends, torch.tensor([torch.inf, -torch.inf, torch.nan, 2000.0, -2000.0, 0.0], dtype=dtype))
    exact(powers, torch.arange(-20.0, 20.0).bfloat16(), precision="bf16")
    agree(Powers(), (torch.randn(50, dtype=torch.float64),), optimizer=lambda p: torch.optim.SGD(p, 1e-9), updates=1)


def dropped_in_an_eval():
    """Dropout that does not ask for the mode of the model, as that of Monte Carlo estimates, drops in an eval, too."""
    def dropped(x, q):
        weights = F.scaled_dot_product_attention(torch.zeros_like(q), q, torch.eye(64).expand_as(q), dropout_p=0.25)
        return F.dropout(x, 0.25, training=True), torch.native_dropout(x, 0.25, True)[0], 64 * weights, F.dropout(x, 0.25, training=False)

    x, q = torch.ones(64, 64), torch.randn(1, 1, 64, 64)
    *results, same = evaluated(dropped, x, q)
    for result in results:
        zeros = result == 0
        assert 0.2 < float(zeros.double().mean()) < 0.3, zeros.double().mean()
        torch.testing.assert_close(result[~zeros], torch.full_like(result[~zeros], 4 / 3))
    assert torch.equal(same, x)


def wide_in_autocast():
    """PyTorch's solvers, CTC and places in grids are of float32 in autocast, whatever their operands; solvers with precision="bf16", too."""
    def cast(x):
        with torch.autocast("cpu", torch.bfloat16):
            grid = F.linear(x[..., :2] / 4, torch.eye(2)).unsqueeze(1)
            sampled = F.grid_sample(x.unsqueeze(1), grid)
            scores = F.linear(x.transpose(0, 1), torch.eye(6)).bfloat16()
            loss = F.ctc_loss(scores, torch.tensor([[1, 2], [3, 3]]), (6, 6), (2, 1), reduction="none")
            return torch.linalg.solve(x[:, :4, :4] + 4 * torch.eye(4), F.linear(x[:, :4], torch.eye(6))), sampled, loss

    def solved(x):
        a, b = x[:, :4, :4] + 4 * torch.eye(4), x[:, :4]
        return torch.linalg.solve(a, b), torch.linalg.solve_triangular(a, b, upper=True), torch.cholesky_solve(b, a)

    x = torch.randn(2, 6, 6)
    for function, options in ((solved, {"precision": "bf16"}), (cast, {})):
        torch.testing.assert_close(evaluated(function, x, **options), function(x), rtol=1e-4, atol=1e-4)


def wide_in_bf16():
    """With precision="bf16" solvers and CTC compute in f32 with what products give in bf16."""
    def solved(x):
        y = F.linear(x, torch.eye(6))  # exact
        loss = F.ctc_loss(y.transpose(0, 1), torch.tensor([[1, 2], [3, 3]]), (6, 6), (2, 1), reduction="none")
        return loss, y.inverse(), torch.linalg.det(y), torch.linalg.solve(y, y.transpose(1, 2))

    x = (torch.randn(2, 6, 6) + 4 * torch.eye(6)).bfloat16().float()
    torch.testing.assert_close(evaluated(solved, x, precision="bf16"), solved(x), rtol=1e-5, atol=1e-5)


def equal_bounds():
    """Which of a number and two tensors that bound it has the gradient, whatever their order."""
    class Bounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.x, self.low, self.high = map(nn.Parameter, torch.cartesian_prod(*[torch.arange(3.0)] * 3).T.contiguous())

        def forward(self, w):
            return (self.x.clamp(self.low, self.high) * w).sum()

    agree(Bounded(), (torch.arange(27.0).cos(),), optimizer=lambda p: torch.optim.SGD(p, 1.0), updates=1, bar=1e-6)


def bytes_as_results():
    """Of uint8 as PyTorch's, also what is converted to it."""
    class Images(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(x / 255).square().mean(), {"given": x, "rows": x[:, 1:3]}

    def given(x, floats, n):
        mask = x > 99
        return (x, x.transpose(0, 1), torch.stack([x[0], x[1]], 1), floats.to(torch.uint8), n.byte(), n.type_as(x), mask.to(torch.uint8),
                torch.tensor([[0, 255], [200, 7]], dtype=torch.uint8), (x / 255 * 255).round().to(torch.uint8).float() / 3)

    x = torch.tensor([[0, 3, 200, 99], [255, 128, 127, 100]], dtype=torch.uint8)
    exact(given, x, torch.tensor([0.0, 0.9, 1.0, 127.5, 128.0, 254.99, 255.9]), torch.tensor([-1, 0, 255, 256, 300, -257, (1 << 40) + 5]))
    with trainc.torch.export(Images(), (x,), lambda m, x: m(x)).step(threads=1) as step:
        for batch in (x, 255 - x):
            outputs = step(batch).outputs
            assert outputs["given"].dtype == torch.uint8 and torch.equal(outputs["given"], batch) and torch.equal(outputs["rows"], batch[:, 1:3])
        outputs = step(x.numpy()).outputs
        assert outputs["given"].dtype == "uint8" and bool((outputs["given"] == x.numpy()).all())


def gradients_of_zero():
    """What reaches the loss by values without a gradient is decayed, as in PyTorch."""
    class Signs(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.sign = nn.Parameter(torch.tensor([0.5, -2.0, 3.0, 4.0])), nn.Parameter(torch.tensor([-1.0, 0.5, -0.0, 2.0]))
            self.p, self.divisor = nn.Parameter(torch.tensor([0.0, 1.0, 1.0, 0.0])), nn.Parameter(torch.tensor([0.3, -0.7, 2.0, 5.0]))

        def forward(self, x):
            quotient = torch.div(x, self.divisor, rounding_mode="floor")
            return (torch.copysign(self.scale, self.sign) * x + torch.bernoulli(self.p) * quotient).sum()

    agree(Signs(), (torch.arange(1.0, 5.0),), optimizer=lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.5), updates=1, bar=1e-6)


def infinities():
    def activated(x):
        return (F.hardswish(x),)

    exact(activated, torch.tensor([-torch.inf, -4.0, -3.0, 3.0, torch.inf]))


def gradient_of_digamma():
    """Exact to 1e-12, also where PyTorch's is off by 5e-10."""
    class Sum(nn.Module):
        def __init__(self, x):
            super().__init__()
            self.x = nn.Parameter(x)

        def forward(self, weights):
            return (self.x.digamma() * weights).sum()

    x = torch.cat([torch.linspace(0.01, 30, 301), torch.linspace(-8.97, -0.03, 300)]).double()
    x = x[(x - x.round()).abs() > 5e-3]
    # The sum of 1 / (x + k)^2, from 2000 on by its asymptotic series.
    far = x + 2000
    wanted = sum(1 / (x + k)**2 for k in reversed(range(2000))) + 1 / far + 1 / (2 * far**2) + 1 / (6 * far**3)
    m = Sum(x)
    with trainc.torch.export(m, (torch.ones_like(x),), optimizer=torch.optim.SGD(m.parameters(), 1.0)).step(threads=1) as step:
        step(torch.ones_like(x))
        torch.testing.assert_close(x - step.read("x", as_torch=True), wanted, rtol=1e-12, atol=1e-14)


TESTS = [copies_on_a_grid, lines_on_a_grid, wider_targets, equal_maxima, signs_of_zero, narrow_powers, powers_of_two, dropped_in_an_eval,
         wide_in_autocast, wide_in_bf16, equal_bounds, bytes_as_results, gradients_of_zero, infinities, gradient_of_digamma]

if __name__ == "__main__":
    for test in TESTS:
        if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
            test()
            print(f"{test.__name__}: ok", flush=True)
