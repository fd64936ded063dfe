"""A model trained by trainc and by PyTorch from the same start: losses, norms and parameters compared."""
import copy
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "python"))

import torch  # noqa: E402

import trainc  # noqa: E402
import trainc.torch  # noqa: E402

UPDATES = 3


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def adamw(parameters):
    return torch.optim.AdamW(parameters, 1e-2, weight_decay=0.1)


def distance(got, want):
    """Relative, by norms; absolute where PyTorch's is 0."""
    size = float(torch.linalg.vector_norm(want.double()))
    return float(torch.linalg.vector_norm(got.double() - want.double())) / (size or 1.0)


def norm_of(parameters):
    gradients = [p.grad for p in parameters if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))


def agree(model, batches, loss=None, optimizer=adamw, updates=UPDATES, bar=1e-9, parameters=1e-7, skip=(), **options):
    """Trains both on the batches in turn; AssertionError where they differ. What was exported.

    skip: parameters whose gradient is rounding noise, which Adam blows up.
    """
    batches = batches if isinstance(batches, list) else [batches]
    reference = copy.deepcopy(model)
    exported = trainc.torch.export(model, batches[0], loss, optimizer(model.parameters()), **options)
    theirs = optimizer(reference.parameters())
    with exported.step(threads=2) as step:
        for i in range(updates):
            batch = batches[i % len(batches)]
            theirs.zero_grad()
            value = loss(reference, *batch) if loss else reference(*batch)
            value.backward()
            norm = norm_of(p for group in theirs.param_groups for p in group["params"])
            theirs.step()
            result = step(*batch)
            assert abs(result.loss - value.item()) <= bar * abs(value.item()), (i, result.loss, value.item())
            assert abs(result.grad_norm - norm) <= bar * norm, (i, result.grad_norm, norm)
        wanted = reference.state_dict()
        for name, got in step.state_dict(as_torch=True).items():
            if name in wanted and name not in skip:
                assert distance(got, wanted[name]) <= parameters, (name, distance(got, wanted[name]))
    return exported
