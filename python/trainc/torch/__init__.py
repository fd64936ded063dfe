"""PyTorch models as modules of trainc: `export` a model and its loss, compile the result, train without Python.

    exported = trainc.torch.export(model, (x, y), loss=lambda m, x, y: F.cross_entropy(m(x), y),
                                   optimizer=torch.optim.AdamW(model.parameters(), 3e-4), clip_grad_norm=1.0)
    step = exported.step()
    for x, y in loader:
        print(step(x, y).loss)
    model.load_state_dict(step.state_dict(as_torch=True), strict=False)
"""
from .export import Exported, Trains, export, report

__all__ = ["Exported", "Trains", "export", "report"]
