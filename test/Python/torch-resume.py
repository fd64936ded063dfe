# REQUIRES: torch
# RUN: %venv_torch %s
"""What goes between PyTorch and a step beside moments: counts, learning rates, other numbers, schedules, weights of the model at the
export; and what does not fit is refused with what was found and expected."""
import copy
import os
import sys
import tempfile
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import GradScaler
from torch.optim import SGD, Adagrad, Adam, AdamW, Adamax, Muon, NAdam, RMSprop
from torch.optim.lr_scheduler import (CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR, LambdaLR, LinearLR, MultiplicativeLR, OneCycleLR,
                                      PolynomialLR, SequentialLR, StepLR)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import mlp, trainc  # noqa: E402
from tiny import refused  # noqa: E402

torch.manual_seed(4)
torch.set_default_dtype(torch.float64)
batches = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(30)]


def loss(m, x, y):
    return F.cross_entropy(m(x), y)


def train(m, optimizer, scheduler, some):
    losses = []
    for batch in some:
        optimizer.zero_grad()
        value = loss(m, *batch)
        value.backward()
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(value.item())
    return losses


def same(step, m, optimizer, scheduler, some):
    for batch, expected in zip(some, train(m, optimizer, scheduler, some)):
        assert abs(step(*batch).loss - expected) < 1e-10


def export(m, optimizer, **options):
    return trainc.torch.export(m, batches[0], loss, optimizer, **options)


def fresh(make):
    m = mlp()
    return m, make(m.parameters())


def schedules_without_a_count():
    """SGD and Muon do not count: the schedule goes on where the caller says, never at its start."""
    for momentum in (0, 0.9):
        m, optimizer = fresh(lambda p: SGD(p, 0.1, momentum=momentum))
        scheduler = StepLR(optimizer, 3, 0.1)
        with export(m, optimizer, scheduler=scheduler).step(threads=1) as step:
            step.load_torch_optimizer(optimizer.state_dict(), updates=0)
            train(m, optimizer, scheduler, batches[:10])
            step.load_state_dict(m.state_dict())
            with refused(trainc.MismatchError, "the state of SGD has no count of updates", "scheduler=scheduler.state_dict()"):
                step.load_torch_optimizer(optimizer.state_dict())
            for wrong in (-1, "10", [10]):
                with refused(trainc.MismatchError, "updates: expected a number"):
                    step.load_torch_optimizer(optimizer.state_dict(), updates=wrong)
            with refused(trainc.MismatchError, "lr of optimizer is", "expected 0.01", "after 4 updates"):
                step.load_torch_optimizer(optimizer.state_dict(), updates=4)
            step.load_torch_optimizer(optimizer.state_dict(), updates=scheduler.last_epoch)
            assert step.get("update") == 10
            same(step, m, optimizer, scheduler, batches[10:16])
    # AdamW counts, and what is given beside must be its count.
    m, optimizer = fresh(AdamW)
    train(m, optimizer, None, batches[:3])
    with export(m, optimizer).step(threads=1) as step, refused(trainc.MismatchError, "have had 3 updates, and updates= or the scheduler 4"):
        step.load_torch_optimizer(optimizer.state_dict(), updates=4)
    # With an optimizer that counts, Muon has its count.
    m = mlp()
    both = [Muon([m[0].weight, m[2].weight]), AdamW([m[0].bias, m[2].bias])]
    pair = [StepLR(both[0], 2), CosineAnnealingLR(both[1], 9)]
    exported = export(m, both, scheduler=pair)
    for batch in batches[:3]:
        m.zero_grad()
        loss(m, *batch).backward()
        for one in (*both, *pair):
            one.step()
    with exported.step(threads=1) as step:
        step.load_torch_optimizer([o.state_dict() for o in both])
        assert step.get("update") == 3 and abs(step.get("group0.lr") - pair[0].get_last_lr()[0]) < 1e-15
        with refused(trainc.MismatchError, "a list of the states of 2 optimizers, got dict"):
            step.load_torch_optimizer(both[0].state_dict())


def beside_the_optimizer():
    """10 updates in PyTorch, 10 here and 10 in PyTorch, against 30 in PyTorch: optimizer, scheduler and scaler."""
    def updates(m, optimizer, scheduler, scaler, some):
        for batch in some:
            optimizer.zero_grad()
            scaler.scale(loss(m, *batch)).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()

    for make, schedule in [
            (lambda p: SGD(p, 0.1, momentum=0.9), lambda o: StepLR(o, 7, 0.5)), (lambda p: SGD(p, 0.1), lambda o: CosineAnnealingWarmRestarts(o, 4, 2)),
            (AdamW, lambda o: OneCycleLR(o, 0.01, 40, cycle_momentum=False)), (AdamW, lambda o: LambdaLR(o, lambda t: 1 / (1 + t))),
            (lambda p: SGD(p, 0.1, momentum=0.9, nesterov=True), lambda o: OneCycleLR(o, 0.1, 40)),
            (AdamW, lambda o: OneCycleLR(o, 0.01, 40, 0.4, three_phase=True)),
            (lambda p: RMSprop(p, maximize=True), lambda o: OneCycleLR(o, 1e-4, 40, anneal_strategy="linear")),
            (NAdam, lambda o: OneCycleLR(o, 0.01, 40)),
            (NAdam, lambda o: SequentialLR(o, [LinearLR(o, 0.1, 1.0, 5), StepLR(o, 4), CosineAnnealingWarmRestarts(o, 3, 2)], [6, 16]))]:
        def new(m):
            optimizer = make(m.parameters())
            return m, optimizer, schedule(optimizer), GradScaler("cpu", growth_interval=4)

        start = mlp()
        whole, part, back = new(copy.deepcopy(start)), new(copy.deepcopy(start)), new(copy.deepcopy(start))
        updates(*whole, batches[:30])
        updates(*part, batches[:10])
        m, optimizer, scheduler, scaler = new(start)
        with export(m, optimizer, scheduler=scheduler, scaler=scaler).step(threads=1) as step:
            m, optimizer, scheduler, scaler = part
            step.load_state_dict(m.state_dict())
            step.load_torch_optimizer(optimizer.state_dict(), scheduler=scheduler.state_dict(), scaler=scaler.state_dict())
            assert step.get("update") == 10 and step.torch_scaler() == scaler.state_dict() and scaler.state_dict()["_growth_tracker"] == 2
            for batch in batches[10:20]:
                assert abs(step.get("lr") - scheduler.get_last_lr()[0]) < 1e-14
                step(*batch)
                scheduler.step()
            m, optimizer, scheduler, scaler = back
            m.load_state_dict(step.state_dict(as_torch=True))
            scheduler.load_state_dict(step.torch_scheduler())
            optimizer.load_state_dict(step.torch_optimizer())
            scaler.load_state_dict(step.torch_scaler())
        updates(*back, batches[20:30])
        for got, wanted in zip(back[0].parameters(), whole[0].parameters()):
            torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)
        assert abs(back[2].get_last_lr()[0] - whole[2].get_last_lr()[0]) < 1e-14 and back[3].state_dict() == whole[3].state_dict()


def states_beside_that_do_not_fit():
    m, optimizer = fresh(lambda p: SGD(p, 0.1))
    scheduler, scaler = SequentialLR(optimizer, [LinearLR(optimizer, 0.1, 1.0, 4), StepLR(optimizer, 3)], [4]), GradScaler("cpu", init_scale=8.0)
    state, rule, plain = scheduler.state_dict(), scaler.state_dict(), optimizer.state_dict()
    with export(m, optimizer, scheduler=scheduler, scaler=scaler, accumulate=2).step(threads=1) as step:
        parts = [state["_schedulers"][0], state["_schedulers"][1] | {"gamma": 0.5}]
        for given, said in [
                (dict(scheduler=StepLR(optimizer, 3).state_dict()),
                 ["_milestones of SequentialLR is None, expected [4]", "has 0 schedulers, expected 2"]),
                (dict(scheduler=state | {"_schedulers": parts}), ["gamma of StepLR is 0.5, expected 0.1"]),
                (dict(scheduler={}), ["expected the state_dict() of SequentialLR, with last_epoch, got one with nothing"]),
                (dict(scheduler=scheduler), ["got SequentialLR"]),
                (dict(scheduler=state, updates=3), ["updates= and the schedulers have 0, 3 updates"]),
                (dict(updates=0, scaler={}), ["expected the state_dict() of a GradScaler, with scale", "got one with nothing"]),
                (dict(updates=0, scaler=scaler), ["got GradScaler"]), (dict(updates=0, scaler=rule | {"scale": 0.0}), ["scale is 0.0"]),
                (dict(updates=0, scaler=rule | {"growth_interval": 0, "backoff_factor": "half", "_growth_tracker": -1}),
                 ["backoff_factor is half, growth_interval is 0, _growth_tracker is -1"])]:
            with refused(trainc.MismatchError, *said):
                step.load_torch_optimizer(plain, **given)
        step.load_torch_optimizer(plain, scheduler=state, scaler=rule | {"growth_factor": 4.0, "_growth_tracker": 7})
        assert step.torch_scaler() == rule | {"growth_factor": 4.0, "_growth_tracker": 7}
        step(*batches[0])
        with refused(trainc.MismatchError, "the scale is 16.0, but a window with 1 micro-batches is open"):
            step.load_torch_optimizer(plain, scheduler=state, scaler=rule | {"scale": 16.0})
    with export(m, SGD(m.parameters(), 0.1), scaler=8.0).step(threads=1) as step:
        for given, said in (dict(scheduler=state), "state of a scheduler: expected none"), (dict(scaler=rule), "state of a scaler: expected none"):
            with refused(trainc.MismatchError, said):
                step.load_torch_optimizer(plain, **given)
        for asked, said in (step.torch_scheduler, "without a scheduler"), (step.torch_scaler, "without a GradScaler"):
            with refused(trainc.NotFoundError, said):
                asked()


def beside_several_optimizers():
    """Lists of states, and by the names of steps."""
    m = mlp()
    both = [SGD(m[0].parameters(), 0.1), AdamW(m[2].parameters())]
    with export(m, both, scheduler=[None, StepLR(both[1], 2)]).step(threads=1) as step:
        step(*batches[0])
        states = step.torch_scheduler()
        assert states[0] is None and states[1]["last_epoch"] == 1
        step.load_torch_optimizer(step.torch_optimizer(), scheduler=states)
        with refused(trainc.MismatchError, "expected a list of the states of 2 schedulers, got dict"):
            step.load_torch_optimizer(step.torch_optimizer(), scheduler=states[1])
    m = nn.ModuleDict(dict(a=mlp(), b=mlp()))
    optimizers = {name: SGD(m[name].parameters(), 0.1) for name in m}
    trains = {name: trainc.torch.Trains(batches[0], lambda m, x, y, name=name: loss(m[name], x, y), one, scheduler, scaler=scaler)
              for (name, one), scheduler, scaler in zip(optimizers.items(), (None, StepLR(optimizers["b"], 2)), (2.0, GradScaler("cpu")))}
    with trainc.torch.export(m, trains=trains).step(threads=1) as step:
        for i in range(3):
            step.train("b", *batches[i])
        scheduler, scaler = step.torch_scheduler(), step.torch_scaler()
        assert scheduler.keys() == scaler.keys() == {"b"} and scheduler["b"]["last_epoch"] == scaler["b"]["_growth_tracker"] == 3
        scheduler["b"]["last_epoch"], scaler["b"]["_growth_tracker"] = 1, 5
        states = step.torch_optimizer()
        states["b"]["param_groups"][0]["lr"] = 0.1
        step.load_torch_optimizer(states, scheduler=scheduler, scaler=scaler)
        assert [step.get(name) for name in ("a.update", "b.update", "b.loss_scale_age")] == [0, 1, 5]
        with refused(trainc.MismatchError, "expected the scheduler of a, b, by name, got c"):
            step.load_torch_optimizer(states, scheduler={"c": scheduler["b"]})


def numbers():
    """What a param group has goes both ways; what is compiled in must be equal."""
    changes = [(lambda p: AdamW(p, 1e-2), dict(lr=1e-4, weight_decay=0.0, betas=(0.8, 0.9), eps=1e-6)), (lambda p: SGD(p, 0.1, momentum=0.9), dict(lr=0.02, momentum=0.5)),
               (lambda p: RMSprop(p, 1e-2, momentum=0.5), dict(alpha=0.9, lr=1e-3, momentum=0.2)), (lambda p: Adam(p, 1e-2, amsgrad=True, weight_decay=0.1), dict(lr=3e-3, weight_decay=0.2, betas=(0.8, 0.9), eps=1e-6)),
               (lambda p: NAdam(p, 1e-2), dict(lr=3e-3, betas=(0.8, 0.9), eps=1e-6, momentum_decay=0.01)),
               (lambda p: SGD(p, 0.1, momentum=0.9, dampening=0.3, maximize=True), dict(lr=0.02, momentum=0.5, dampening=0.2)), (lambda p: Adagrad(p, 1e-2, lr_decay=0.1), dict(lr=0.1, lr_decay=0.2)),
               (lambda p: Adam(p, torch.tensor(1e-2), weight_decay=0.1), dict(lr=torch.tensor(1e-3), weight_decay=0.2))]
    for make, changed in changes:
        m, optimizer = fresh(make)
        exported = export(m, optimizer)
        train(m, optimizer, None, batches[:4])
        optimizer.param_groups[0].update(changed)
        with exported.step(threads=1) as step:
            step.load_state_dict(m.state_dict())
            step.load_torch_optimizer(optimizer.state_dict())
            same(step, m, optimizer, None, batches[4:8])
            step.set("lr", 5e-4)
            back = step.torch_optimizer()["param_groups"][0]
            for key, value in {**changed, "lr": 5e-4}.items():
                assert back[key] == value, (key, back)
            optimizer.param_groups[0]["lr"] = 5e-4
            same(step, m, optimizer, None, batches[8:10])
            optimizer.load_state_dict(step.torch_optimizer())
            m.load_state_dict(step.state_dict(as_torch=True))
            same(step, m, optimizer, None, batches[10:12])
    for make, changed, said in [(lambda p: Adam(p, amsgrad=True), dict(weight_decay=0.1), "l2 of optimizer is 0.1, expected None"), (AdamW, dict(maximize=True), "maximize of"),
                                (lambda p: SGD(p, 0.1), dict(momentum=0.9), "momentum of optimizer is 0.9, expected None"), (Adam, dict(amsgrad=True), "amsgrad of optimizer is True"),
                                (AdamW, dict(decoupled_weight_decay=False), "decoupled_weight_decay")]:
        m, optimizer = fresh(make)
        with export(m, optimizer).step(threads=1) as step:
            optimizer.param_groups[0].update(changed)
            with refused(trainc.MismatchError, said):
                step.load_torch_optimizer(optimizer.state_dict())


def back_with_a_schedule():
    """PyTorch's schedulers compute a rate of the last one: a state dict has that of the next update."""
    for make in (lambda o: CosineAnnealingLR(o, 10), lambda o: StepLR(o, 3, 0.5), lambda o: PolynomialLR(o, 20, 1.5),
                 lambda o: SequentialLR(o, [StepLR(o, 2, 0.5), CosineAnnealingLR(o, 8, 1e-4)], [3])):
        m, optimizer = fresh(lambda p: AdamW(p, 1e-2))
        reference, theirs = copy.deepcopy(m), None
        theirs = AdamW(reference.parameters(), 1e-2)
        schedule = make(theirs)
        with export(m, optimizer, scheduler=make(optimizer)).step(threads=1) as step:
            for batch in batches[:5]:
                assert abs(step.get("lr") - theirs.param_groups[0]["lr"]) < 1e-14  # of the next update, before the first, too
                assert step.get("optimizer.lr") == step.get("lr")
                step(*batch)
                train(reference, theirs, schedule, [batch])
            with refused(trainc.InvalidArgumentError, "optimizer.lr, follows its schedule and cannot be set"):
                step.set("lr", 1e-3)
            again = make(AdamW(m.parameters(), 1e-2))
            for _ in range(int(step.get("update"))):
                again.step()
            m.load_state_dict(step.state_dict(as_torch=True))
            again.optimizer.load_state_dict(step.torch_optimizer())
        want, got = train(reference, theirs, schedule, batches[5:10]), train(m, again.optimizer, again, batches[5:10])
        assert all(abs(a - b) < 1e-10 for a, b in zip(got, want)), (got, want)
        assert abs(again.get_last_lr()[0] - schedule.get_last_lr()[0]) < 1e-14


def fresh_states():
    """A state without moments is one without updates."""
    for make in (lambda p: AdamW(p, 1e-2), lambda p: SGD(p, 0.1, momentum=0.9), NAdam, Adamax, lambda p: Adagrad(p, 0.1, initial_accumulator_value=0.3)):
        m, optimizer = fresh(make)
        with export(m, optimizer).step(threads=1) as step:
            for batch in batches[:5]:
                step(*batch)
            step.load_torch_optimizer(step.torch_optimizer())
            assert step.get("update") == 5
            step.load_state_dict(m.state_dict())
            step.load_torch_optimizer(make(m.parameters()).state_dict())
            assert step.get("update") == 0
            same(step, m, make(m.parameters()), None, batches[5:10])


def groups_set():
    """`lr` alone is for groups that agree; of others each by its name, which is numbered through several optimizers."""
    m = mlp()
    optimizer = AdamW([{"params": m[0].parameters(), "lr": 1e-2}, {"params": m[2].parameters(), "lr": 1e-3}])
    with refused(trainc.UnsupportedError, 'for name, rate in zip(("group0.lr", "group1.lr"), scheduler.get_last_lr()): step.set(name, rate)'):
        export(m, optimizer, scheduler=MultiplicativeLR(optimizer, lambda t: 0.9))
    with export(m, optimizer).step(threads=1) as step:
        with refused(trainc.InvalidArgumentError, "lr differs between groups: group0.lr = 0.01, group1.lr = 0.001"):
            step.set("lr", 1e-4)
        step.set("group1.lr", 1e-2)
        step.set("lr", 1e-4)
        assert step.get("group0.lr") == step.get("group1.lr") == 1e-4
    both = [AdamW(m[0].parameters(), 1e-2), SGD(m[2].parameters(), 1e-2)]
    with export(m, both, scheduler=[StepLR(both[0], 2), None]).step(threads=1) as step:
        with refused(trainc.InvalidArgumentError, "group0.lr, follows its schedule and cannot be set: expected", "group1.lr"):
            step.set("lr", 1e-5)
        step.set("group1.lr", 1e-5)
        with refused(trainc.InvalidArgumentError, "lr differs between groups"):
            step.get("lr")


def two_types():
    """A group with parameters in f32 and in f64 is two to the compiler: its numbers are set in both."""
    def loss(m, x, y):
        return F.cross_entropy(m[2](m[1](m[0](x.float())).double()), y)

    m = mlp()
    m[0].float()
    optimizer = SGD(m.parameters(), 0.1, momentum=0.9)
    exported = trainc.torch.export(m, batches[0], loss, optimizer)
    start = copy.deepcopy(m.state_dict())

    def still(step):
        step(*batches[0])
        assert all(torch.equal(value, start[name]) for name, value in step.state_dict(as_torch=True).items())

    for name in "lr", "optimizer.lr":
        with exported.step(threads=1) as step:
            step.set(name, 0.0)
            assert step.get(name) == step.get("optimizer.lr") == step.get("optimizer_f64.lr") == 0
            still(step)
            for text in ("optimizer (SGD): 2 parameters of 56 elements in float32", "optimizer_f64 (SGD): 2 parameters of 27 elements in float64"):
                assert f"trained by {text}" in step.report(), step.report()
    optimizer.param_groups[0].update(lr=0.0, momentum=0.5)
    with exported.step(threads=1) as step:
        step.set("optimizer_f64.lr", 0.2)
        for asked in (lambda: step.get("lr"), lambda: step.get("optimizer.lr"), step.torch_optimizer):
            with refused(trainc.InvalidArgumentError, "optimizer.lr = 0.1, optimizer_f64.lr = 0.2"):
                asked()
        step.load_torch_optimizer(optimizer.state_dict())
        assert step.get("optimizer_f64.momentum") == 0.5 and step.torch_optimizer()["param_groups"][0]["momentum"] == 0.5
        still(step)


def taken_over():
    """An optimizer that has done updates is exported with them."""
    for make, schedule in [(lambda p: AdamW(p, 1e-2), lambda o: CosineAnnealingLR(o, 20)), (lambda p: SGD(p, 0.1, momentum=0.9), lambda o: StepLR(o, 3)),
                           (lambda p: SGD(p, 0.1), lambda o: StepLR(o, 3)), (lambda p: AdamW(p, 1e-2), lambda o: None)]:
        m, optimizer = fresh(make)
        scheduler = schedule(optimizer)
        train(m, optimizer, scheduler, batches[:7])
        exported = export(m, optimizer, scheduler=scheduler)
        with exported.step(threads=1) as step:
            assert step.get("update") == 7
            same(step, m, optimizer, scheduler, batches[7:12])
        if "momentum" not in optimizer.param_groups[0] or optimizer.param_groups[0]["momentum"]:
            with refused(trainc.InvalidArgumentError, "the optimizer has done updates since the export"):
                exported.step(threads=1)
    # So is a scaler.
    m, optimizer = fresh(lambda p: SGD(p, 0.1))
    scaler = GradScaler("cpu", init_scale=4.0, growth_interval=3)
    for batch in batches[:5]:
        scaler.scale(loss(m, *batch)).backward()
        scaler.step(optimizer)
        scaler.update()
    with export(m, optimizer, scaler=scaler).step(threads=1) as step:
        assert step.torch_scaler() == scaler.state_dict() and step.get("loss_scale") == 8 and step.get("loss_scale_age") == 2
    # Fused updates of SGD do not count as changes of a tensor: of its momentum there is a copy.
    m, optimizer = fresh(lambda p: SGD(p, 0.1, momentum=0.9, fused=True))
    train(m, optimizer, None, batches[:2])
    exported = export(m, optimizer)
    expected = train(m, optimizer, None, batches[2:5])
    with exported.step(threads=1) as step:
        assert all(abs(step(*batch).loss - value) < 1e-10 for batch, value in zip(batches[2:5], expected))
    # Sums of Adagrad without an update, which its groups do not say.
    m, optimizer = fresh(lambda p: Adagrad(p, 0.1))
    optimizer.load_state_dict(Adagrad(m.parameters(), 0.1, initial_accumulator_value=0.5).state_dict())
    with export(m, optimizer).step(threads=1) as step:
        optimizer.load_state_dict(step.torch_optimizer())
        same(step, m, optimizer, None, batches[:3])
    m, optimizer = fresh(AdamW)
    scheduler = StepLR(optimizer, 3)
    train(m, optimizer, None, batches[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler.step()
    with refused(trainc.UnsupportedError, "the optimizer has done 2 updates, its scheduler 1"):
        export(m, optimizer, scheduler=scheduler)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        export(m, optimizer).save(os.path.join(folder, "a.mlir"), os.path.join(folder, "a.safetensors"))
    assert len(said) == 1 and "not in the file of weights" in str(said[0].message) and said[0].filename == __file__


def rates_of_schedules():
    """An optimizer goes on with the rate that its schedule has, else it is refused."""
    def changed(optimizer):
        scheduler = StepLR(optimizer, 10)
        optimizer.param_groups[0]["lr"] = 0.01
        return scheduler

    def two(optimizer):
        LinearLR(optimizer, 0.1)
        return CosineAnnealingLR(optimizer, 100)

    def of_another_run(optimizer):
        optimizer.param_groups[0]["initial_lr"] = 0.4
        return StepLR(optimizer, 10)

    def other_momentum(optimizer):
        scheduler = OneCycleLR(optimizer, 0.1, 10)
        optimizer.param_groups[0]["momentum"] = 0.3
        return scheduler

    def before_a_group(optimizer):
        scheduler = StepLR(optimizer, 10)
        optimizer.add_param_group(dict(params=list(m[2].parameters())))
        return scheduler

    for make, said in [(changed, ("lr of param_groups[0] is 0.01: expected 0.1, that of its StepLR after 0 updates",)),
                       (two, ("expected 0.1, that of its CosineAnnealingLR",)),
                       (of_another_run, ("is 0.1: expected 0.4", "from initial_lr = 0.4 on")),
                       (other_momentum, ("momentum of param_groups[0] is 0.3: expected 0.95, that of its OneCycleLR after 0 updates",)),
                       (before_a_group, ("param_groups[1] has no initial_lr: it was added after the StepLR was made",))]:
        m = mlp()
        optimizer = SGD(m[0].parameters(), 0.1)
        with refused(trainc.UnsupportedError, *said):
            export(m, optimizer, scheduler=make(optimizer))
    m = mlp()
    both = [SGD(m[0].parameters(), 0.1), SGD(m[2].parameters(), 0.1)]
    pair = [StepLR(o, 3) for o in both]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair[1].step()
        with refused(trainc.UnsupportedError, "the schedulers have done 0, 1 updates: expected one count for all"):
            export(m, both, scheduler=pair)
        # A rate in f32 loses more.
        m, optimizer = fresh(lambda p: Adam(p, torch.tensor(1e-2, dtype=torch.float32)))
        scheduler = ExponentialLR(optimizer, 0.9999)
        for _ in range(2000):
            scheduler.step()
        export(m, optimizer, scheduler=scheduler)


def momentum_before_a_schedule():
    """A schedule that begins does not end the momentum of SGD; with dampening the first update is another one than those that follow."""
    for options in ({}, dict(maximize=True)):
        m, optimizer = fresh(lambda p: SGD(p, 0.01, momentum=0.9, **options))
        train(m, optimizer, None, batches[:3])
        scheduler = StepLR(optimizer, 2, 0.5)
        with export(m, optimizer, scheduler=scheduler).step(threads=1) as step:
            back = step.torch_optimizer()["state"]
            assert back[0]["momentum_buffer"].equal(optimizer.state[m[0].weight]["momentum_buffer"])
            same(step, m, optimizer, scheduler, batches[3:8])
    m = mlp()
    both = [SGD(m[0].parameters(), 0.01, momentum=0.9, dampening=0.5), AdamW(m[2].parameters())]
    with export(m, both).step(threads=1) as step:
        new = [o.state_dict() for o in both]
        for optimizer in both:
            train(m, optimizer, None, batches[:3])
        for states, said in [([both[0].state_dict(), new[1]], "SGD with dampening has momentum after 0 updates: expected none"),
                             ([new[0], both[1].state_dict()], "SGD with dampening has no momentum after 3 updates: expected some")]:
            with refused(trainc.MismatchError, said):
                step.load_torch_optimizer(states)


def whole_or_not():
    """A state that does not fit changes nothing."""
    m = mlp()
    first, *rest = m.parameters()
    optimizer = AdamW([dict(params=[first], weight_decay=0.5), dict(params=rest)], 1e-2)
    with export(m, optimizer).step(threads=1) as step:
        step(*batches[0])
        before = {key: step.read(*key) for key in step.optimizer_states()}
        train(m, optimizer, None, batches[:3])
        shape, number = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(optimizer.state_dict())
        shape["state"][3]["exp_avg"] = torch.zeros(7)
        number["state"][7] = {}
        other = AdamW([dict(params=[first, *rest[:2]], weight_decay=0.5), dict(params=rest[2:])], 1e-2)
        for wrong, said in [(shape, "m of 2.bias: expected float64 of shape (3,), got float64 of shape (7,)"), (number, "got 7"),
                            (other.state_dict(), "an optimizer of 1 + 3 parameters in the groups of the exported one, got 3 + 1")]:
            with refused(trainc.MismatchError, said):
                step.load_torch_optimizer(wrong)
        assert step.get("update") == 1 and all((step.read(*key) == value).all() for key, value in before.items())


def not_trained():
    """What the step does not train comes back as it was, with the rate of its schedule, and may have had other updates."""
    m = mlp()
    optimizer = AdamW([dict(params=m[0].parameters(), lr=0.1), dict(params=m[2].parameters())], 1e-2)
    scheduler = ExponentialLR(optimizer, 0.9)
    train(m, optimizer, scheduler, batches[:2])
    m[0].requires_grad_(False)
    train(m, optimizer, scheduler, batches[2:5])
    with export(m, optimizer, scheduler=scheduler).step(threads=1) as step:
        assert step.get("update") == 5
        same(step, m, optimizer, scheduler, batches[5:8])
        back = step.torch_optimizer()
        assert all(abs(group["lr"] - rate) < 1e-14 for group, rate in zip(back["param_groups"], scheduler.get_last_lr()))
        for p, values in zip(m.parameters(), back["state"].values(), strict=True):
            torch.testing.assert_close(values, optimizer.state[p], rtol=1e-10, atol=1e-12)
        step.load_torch_optimizer(AdamW([dict(params=part.parameters()) for part in (m[0], m[2])], 1e-2).state_dict() | {
            "param_groups": [group | {"lr": group["initial_lr"]} for group in optimizer.state_dict()["param_groups"]]})
        assert step.torch_optimizer()["state"] == {}


def weights_of_the_export():
    m = mlp()
    m[0].weight.requires_grad_(False)
    exported = export(m, SGD([p for p in m.parameters() if p.requires_grad], 0.1))
    value = loss(m, *batches[0]).item()
    for name, p in m.named_parameters():
        if p.requires_grad:
            p.data.zero_()
    with exported.step(threads=1) as step:
        assert abs(step(*batches[0]).loss - value) < 1e-12
    with torch.no_grad():
        m[0].weight.add_(1)
    with refused(trainc.InvalidArgumentError, "frozen parameters have changed since the export", "0.weight"):
        exported.step(threads=1)
    assert repr(exported) == ("<trainc.torch.Exported: 4 tensors, 1 parameters frozen, 0 unused; step(x: tensor<4x6xf64>, y: tensor<4xi64>)>"), repr(exported)


def names_of_the_model():
    """A strict load takes the state dict of the model: what the step does not have, and what the model does not."""
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm, self.unused = nn.Linear(6, 40), nn.BatchNorm1d(40), nn.Linear(3, 3)
            self.register_buffer("order", torch.randperm(40))
            self.register_buffer("table", torch.randn(40, 40), persistent=False)

        def forward(self, x):
            return F.softplus(self.norm(self.fc(x))[:, self.order] @ self.table)

        def get_extra_state(self):
            return {"version": 1}

        def set_extra_state(self, state):
            pass

    m = Parts().eval()
    exported = trainc.torch.export(m, batches[0], loss)
    assert exported.unused == ["unused.weight", "unused.bias"] and "norm.num_batches_tracked" not in exported.weights and "constant.0" in exported.weights
    with exported.step(threads=1) as step:
        result = step.load_state_dict(m.state_dict())
        assert result == ([], [])
        with refused(trainc.MismatchError, "order: expected the value at the export, which is compiled in"):
            step.load_state_dict({**m.state_dict(), "order": m.order.flip(0)})
        with refused(trainc.MismatchError, "other: unexpected", "fc.bias: missing"):
            step.load_state_dict({**{k: v for k, v in m.state_dict().items() if k != "fc.bias"}, "other": m.order})


def warned():
    """At the user's line, and not of what is equal."""
    m, optimizer = fresh(lambda p: AdamW(p, 0.1))
    with tempfile.TemporaryDirectory() as folder, export(m, optimizer).step(threads=1) as step:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            path = os.path.join(folder, "a")
            step.set("lr", 0.1 + 1e-12)
            step.save(path)
            step.load(path)
            assert not said, str(said[0].message)
            step.set("lr", 0.2)
            step.save(path)
            step.load(path)
            x, y = batches[0]
            step(x.T.contiguous().T, y)
        assert ["0.2, as in the checkpoint" in str(said[0].message), "not contiguous" in str(said[1].message)] == [True, True]
        assert [w.filename for w in said] == [__file__] * 2


for test in (schedules_without_a_count, beside_the_optimizer, states_beside_that_do_not_fit, beside_several_optimizers, numbers,
             back_with_a_schedule, fresh_states, groups_set, two_types, taken_over, rates_of_schedules, momentum_before_a_schedule, whole_or_not, not_trained, weights_of_the_export, names_of_the_model, warned):
    if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
        test()
        print(f"{test.__name__}: ok", flush=True)
