# REQUIRES: torch
# RUN: %venv_torch %s
"""Steps that train different parameters, as those of a GAN: against PyTorch, with windows, clips, schedules and counts of their own,
moments handed over both ways; and what is refused."""
import copy
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import distance, trainc  # noqa: E402
from tiny import refused  # noqa: E402

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
Trains = trainc.torch.Trains


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))
        self.critic = nn.Sequential(nn.Linear(5, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


def critic_loss(m, real, noise):
    scores, fakes = m.critic(real), m.critic(m.generator(noise).detach())
    return (F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))
            + F.binary_cross_entropy_with_logits(fakes, torch.zeros_like(fakes)))


def generator_loss(m, noise):
    scores = m.critic(m.generator(noise))
    return F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores)), {"score": scores.mean()}


def optimizers(m):
    return torch.optim.Adam(m.critic.parameters(), 1e-2, betas=(0.5, 0.99)), torch.optim.RMSprop(m.generator.parameters(), 3e-3)


def exported(m, both, schedulers=(None, None)):
    return trainc.torch.export(m, trains={
        "critic": Trains((real[0], noise[0]), critic_loss, both[0], schedulers[0], accumulate=2, shapes=[(real[0][:3], noise[0][:3])]),
        "generator": Trains((noise[0],), generator_loss, both[1], schedulers[1], clip_grad_norm=0.1)},
        evals={"fake": (lambda m, z: m.generator(z), (noise[0],))})


def schedule(both):
    return (torch.optim.lr_scheduler.ExponentialLR(both[0], 0.9), torch.optim.lr_scheduler.StepLR(both[1], 2, 0.5))


real, noise = torch.randn(6, 4, 5), torch.randn(6, 4, 3)
theirs = Gan()
start = copy.deepcopy(theirs)
pair = optimizers(theirs)
schedulers = schedule(pair)
ours = optimizers(start)


def their_round(i):
    """A window of the critic of two shapes, then the generator."""
    seen = []
    pair[0].zero_grad()
    for rows in (4, 3):
        value = critic_loss(theirs, real[i][:rows], noise[i][:rows])
        (value / 2).backward()
        seen.append(value.item())
    pair[0].step()
    pair[1].zero_grad()
    value, extra = generator_loss(theirs, noise[i])
    value.backward()
    norm = nn.utils.get_total_norm([p.grad for p in theirs.generator.parameters()])
    for p in theirs.generator.parameters():
        p.grad *= 0.1 / max(0.1, norm)  # clip_grad_norm_ divides by norm + 1e-6
    pair[1].step()
    for scheduler in schedulers:
        scheduler.step()
    return [*seen, value.item(), norm.item(), extra["score"].item()]


def our_round(step, i):
    first, second = step.train("critic", real[i], noise[i]), step.train("critic", real[i][:3], noise=noise[i][:3])
    assert not first.closed and second.closed and second.update == i + 1
    result = step.train("generator", noise[i])
    assert result.closed and result.update == i + 1 and result.clip_factor < 1
    return [first.loss, second.loss, result.loss, result.grad_norm, result.outputs["score"].item()]


with exported(start, ours, schedule(ours)).step(threads=2) as step:
    for i in range(6):
        want, got = their_round(i), our_round(step, i)
        assert all(abs(a - b) <= 1e-10 * max(abs(b), 1) for a, b in zip(got, want)), (i, got, want)
    for name, value in theirs.state_dict().items():
        if name in step.state_dict():
            assert distance(step.state_dict(as_torch=True)[name], value) <= 1e-10, name
    theirs.eval()
    assert distance(step.eval("fake", noise[1])["fake"], theirs.generator(noise[1]).detach()) <= 1e-10
    theirs.train()
    # Both ways.
    states = step.torch_optimizer()
    for optimizer, name in zip(pair, ("critic", "generator")):
        expected = optimizer.state_dict()["state"]
        for number, values in states[name]["state"].items():
            for key, value in values.items():
                assert distance(value, expected[number][key]) <= 1e-9, (name, number, key)
    step.load_torch_optimizer({"critic": pair[0].state_dict(), "generator": pair[1].state_dict()})
    assert step.get("update") == step.get("critic.update") == step.get("generator.update") == 6
    # Each has counters of its own; there is one seed.
    step.train("generator", noise[0])
    for use, error, text in ((lambda: step.get("update"), trainc.InvalidArgumentError,
                              "update differs between steps: critic.update = 6, generator.update = 7; expected the full name of one"),
                             (lambda: step.set("critic.update", 3), trainc.InvalidArgumentError, "critic.update cannot be set: expected"),
                             (lambda: step.get("actor.update"), trainc.NotFoundError, "no scalar actor.update: expected critic.update")):
        with refused(error, text):
            use()
    step.set("critic.loss_scale", 2.0)
    assert (step.get("critic.loss_scale"), step.get("generator.loss_scale")) == (2, 1)
    step.set("critic.loss_scale", 1.0)
    step.set("seed", 3)
    assert step.get("seed") == 3
    step.load_torch_optimizer({"critic": pair[0].state_dict(), "generator": pair[1].state_dict()})
    assert step.get("update") == 6
    for call, error, text in (
            (lambda: step(noise[0]), trainc.InvalidArgumentError, "call one by step.train(name, ...)"),
            (lambda: step.train("actor", noise[0]), trainc.NotFoundError, "expected critic, generator"),
            (lambda: step.train("critic", real[0][:2], noise[0][:2]), trainc.InvalidArgumentError, "no step takes inputs of shapes"),
            (lambda: step.load_torch_optimizer({"critic": {}}), trainc.Error, "expected the states of critic, generator")):
        try:
            call()
            raise AssertionError(f"no error with {text}")
        except error as e:
            assert text in str(e), str(e)
    # One that does not fit, and no other is loaded.
    wrong = copy.deepcopy(pair[1].state_dict())
    wrong["state"][0]["square_avg"] = torch.zeros(2)
    try:
        step.load_torch_optimizer({"critic": ours[0].state_dict(), "generator": wrong})
        raise AssertionError("a moment of another shape is not refused")
    except trainc.MismatchError as e:
        assert "v of generator.0.weight: expected float64 of shape (8, 3)" in str(e), str(e)
    assert step.get("update") == 6 and step.read("critic.0.weight", "m").any()

class Scored(nn.Module):
    """Its result is its loss."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 2), nn.Linear(2, 1)

    def forward(self, x):
        return self.second(self.first(x)).square().mean()


# The loss has a default, as in export.
model = Scored()
parts = {name: Trains((noise[0],), optimizer=torch.optim.SGD(getattr(model, name).parameters(), 0.1)) for name in ("first", "second")}
with trainc.torch.export(model, trains=parts).step(threads=1) as step:
    assert abs(step.train("second", noise[0]).loss - model(noise[0]).item()) <= 1e-12

model = Gan()
everything = torch.optim.SGD(model.parameters(), 0.1)
for arguments, text in (
        (dict(example_batch=(noise[0],), trains={"one": Trains((noise[0],), generator_loss, everything)}), "expected an example batch, or"),
        (dict(), "expected an example batch, or trains="),
        (dict(trains={"one": Trains((noise[0],), generator_loss)}), "trains: one has no optimizer"),
        (dict(trains={"one": Trains((noise[0],), generator_loss, everything), "two": Trains((real[0], noise[0]), critic_loss, everything)}),
         "is in two optimizers"),
        (dict(trains={"one": Trains((real[0], noise[0]), critic_loss, optimizers(model)[1])}), "nothing is trained by one")):
    try:
        trainc.torch.export(model, **arguments)
        raise AssertionError(f"no error with {text}")
    except trainc.UnsupportedError as e:
        assert text in str(e), str(e)
print("steps that train different parameters: ok")
