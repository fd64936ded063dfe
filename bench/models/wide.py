"""Float64 all the way: models of transformers ask for float32 inside, whose rounding a float64 result would carry."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Wide(TorchFunctionMode):
    """Within it, whoever asks for float32 gets float64: `x.to(torch.float32)`, `x.float()`, `dtype=`, the default."""

    def __enter__(self):
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error):
        torch.set_default_dtype(self._default)
        return super().__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        if function is torch._grouped_mm and args[0].dtype == torch.float64:
            function = _grouped_mm
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return function(*args, **kwargs)


class Narrow(TorchDispatchMode):
    """Counts the operations that yield a floating tensor narrower than float64, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, int] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for result in results if isinstance(results, (tuple, list)) else (results,):
            if torch.is_tensor(result) and result.is_floating_point() and result.dtype != torch.float64:
                self.found[str(function)] = self.found.get(str(function), 0) + 1
        return results


def _grouped_mm(rows: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor, **none: None) -> torch.Tensor:
    """torch's grouped product of rows [S, I] and weights [G, I, O], group g ending at offs[g], which has no float64."""
    ends = offs.tolist()
    return torch.cat([rows[start:end] @ weight for start, end, weight in zip([0, *ends], ends, weights)])
