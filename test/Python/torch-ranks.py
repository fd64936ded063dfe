# REQUIRES: torch
# RUN: %venv_torch %s
"""PyTorch models on two ranks: data parallel with each rank's own batch, and tensor parallel by a plan and by that of a model of
transformers. Losses and parameters are those of PyTorch on the whole batch.

usage: torch-ranks.py   (has torchrun start the ranks)
       torch-ranks.py rank   (one of them)
"""
import copy
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import adamw, distance, trainc  # noqa: E402

RANKS, UPDATES = 2, 3
torch.set_default_dtype(torch.float64)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.first, self.norm, self.second = nn.Embedding(20, 12), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 6)

    def forward(self, ids, scale, y):
        x = self.norm(F.gelu(self.first(self.table(ids).mean(1) * scale)))
        return F.cross_entropy(self.second(x), y)


class Block(nn.Module):
    """Heads of attention and an MLP, by columns and rows."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(8, 8) for _ in range(3))
        self.o_proj, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (4, 2)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        x = x + self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return (x + self.down(F.silu(self.up(x)))).square().mean()


def llama():
    import transformers
    config = transformers.LlamaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      intermediate_size=32, max_position_embeddings=16)
    return transformers.LlamaForCausalLM(config).double()


def small(kind, **options):
    """A model of transformers of one layer."""
    import transformers
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32, max_position_embeddings=16,
        pad_token_id=0, bos_token_id=0, eos_token_id=0, **options)
    return getattr(transformers, f"{kind}ForCausalLM")(config).double()


def with_lora():
    """Adapters at layers that are split by columns and by rows. PEFT makes them of float32."""
    import peft
    model = peft.get_peft_model(small("Qwen3", num_key_value_heads=2, head_dim=4),
                                peft.LoraConfig(r=2, target_modules=["q_proj", "o_proj"], init_lora_weights=False))
    return model.double()


PLAN = {"q_proj": "colwise", "k_proj": "colwise", "v_proj": "colwise", "o_proj": "rowwise", "up": "colwise", "down": "rowwise"}


def cases():
    """(name, model, batches of each rank, loss, options, bar); the batches are the same in every process. transformers computes
    norms and rotations in float32."""
    torch.manual_seed(4)

    def ids(*shape):
        return torch.randint(0, 20, shape)

    each = [[(ids(3, 4), torch.full((1,), 1.5), ids(3) % 6) for _ in range(RANKS)] for _ in range(UPDATES)]
    yield "data", Classifier(), each, None, dict(mesh={"data": RANKS}), 1e-9
    fewer = [[(torch.randn(n, 5), ids(n) % 3) for n in sizes] for sizes in ((4, 4), (3, 2), (4, 1))]
    yield ("fewer", nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), fewer, lambda m, x, y: F.cross_entropy(m(x), y, reduction="none"),
           dict(mesh={"data": RANKS}), 1e-9)
    same = [[(torch.randn(2, 5, 8),)] * RANKS for _ in range(UPDATES)]
    yield "model", Block(), same, None, dict(mesh={"model": RANKS}, parallel=PLAN), 1e-9
    tokens = [[(ids(2, 6),)] * RANKS for _ in range(UPDATES)]
    yield "auto", llama(), tokens, lambda m, t: m(input_ids=t, labels=t).loss, dict(mesh={"model": RANKS}, parallel="auto"), 1e-6
    yield ("lora", with_lora(), tokens, lambda m, t: m(input_ids=t, labels=t).loss, dict(mesh={"model": RANKS}, parallel="auto"), 1e-6)
    yield ("gathered", small("Phi3", num_key_value_heads=2, resid_pdrop=0.0, embd_pdrop=0.0), tokens, lambda m, t: m(input_ids=t, labels=t).loss,
           dict(mesh={"model": RANKS}, parallel="auto"), 1e-6)
    ragged = [[(torch.randn(n, 5), ids(n) % 3) for n in sizes] for sizes in ((4, 4), (2, 4), (4, 2))]
    yield ("shapes", nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), ragged, lambda m, x, y: F.cross_entropy(m(x), y),
           dict(mesh={"data": RANKS}, shapes=[ragged[1][0]]), 1e-9)


def rank_of(rank):
    unseeded(rank)
    for name, model, batches, loss, options, bar in cases():
        reference = copy.deepcopy(model)
        exported = trainc.torch.export(model, batches[0][rank], loss, adamw(model.parameters()), **options)
        if "parallel" in options:
            assert "split([model])" in exported.text and "split([], [model])" in exported.text, exported.text
        theirs = adamw(reference.parameters())
        with exported.step(threads=1) as step:
            for of_ranks in batches:
                whole = of_ranks[0] if "parallel" in options else tuple(
                    torch.cat(x) if x[0].shape != (1,) else x[0] for x in zip(*of_ranks))
                theirs.zero_grad()
                value = (loss(reference, *whole) if loss else reference(*whole)).mean()
                value.backward()
                theirs.step()
                result = step(*of_ranks[rank])
                assert abs(result.window_loss - value.item()) <= bar * abs(value.item()), (name, result.window_loss, value.item())
            wanted = reference.state_dict()
            for key, got in step.state_dict(as_torch=True).items():
                if key in wanted:
                    assert distance(got, wanted[key]) <= 100 * bar, (name, key, distance(got, wanted[key]))
            state = theirs.state_dict()
            for values in state["state"].values():
                values["step"] += 4
            step.load_torch_optimizer(state)
            assert step.get("update") == UPDATES + 4
        print(f"{name}: ok", flush=True)


def unseeded(rank):
    """Ranks whose models differ begin with rank 0's, as under DDP; what they load later must be the same."""
    torch.manual_seed(100 + rank)
    model, others = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    torch.manual_seed(100)
    first = nn.Linear(3, 2)
    for shard in "none", "optimizer", "parameters":
        with trainc.torch.export(model, (x, y), lambda m, x, y: F.mse_loss(m(x), y), optimizer, mesh={"data": RANKS}).step(threads=1, shard=shard) as step:
            assert all(map(torch.equal, step.state_dict(as_torch=True).values(), first.state_dict().values())), (rank, shard)
            optimizer.param_groups[0]["lr"] = 0.2 + rank
            for what, call in (("the state dict", lambda: step.load_state_dict(others.state_dict())), ("bias", lambda: step.write("bias", others.bias)),
                               ("the numbers of the optimizer", lambda: step.load_torch_optimizer(optimizer.state_dict()))):
                try:
                    call()
                    raise AssertionError(f"{what} is not refused")
                except trainc.MismatchError as e:
                    assert f"ranks differ in {what}: rank 0 has" in str(e), e
            assert all(map(torch.equal, step.state_dict(as_torch=True).values(), first.state_dict().values())), (rank, shard)
            step.load_state_dict(first.state_dict())
            optimizer.param_groups[0]["lr"] = 0.1
            step.load_torch_optimizer(optimizer.state_dict())
            step(x, y)
            # Rank 0 alone changes the count of updates, in a file.
            loads, json.loads = json.loads, no_space if rank == 0 else json.loads
            try:
                step.load_torch_optimizer(optimizer.state_dict())
                raise AssertionError("no error")
            except (OSError, trainc.MismatchError) as e:
                assert ("no space" if rank == 0 else "ranks differ in whether a file of the state could be changed") in str(e), e
            finally:
                json.loads = loads
            step.load_torch_optimizer(optimizer.state_dict())
            assert step.get("update") == 0
    print("unseeded: ok", flush=True)


def no_space(text):
    raise OSError("no space")


def refused():
    model = Block()
    model.up.requires_grad_(False)
    x = (torch.randn(2, 5, 8),)
    for options, said in [(dict(mesh={"model": 2}, parallel={"*.nothing": "colwise"}), "no module"), (dict(parallel=PLAN), "axis 'model'"),
                          (dict(mesh={"pipe": 2}), "got pipe"), (dict(mesh={"model": 2}, parallel={"up": "half"}), "'half'"),
                          (dict(mesh={"model": 2}, parallel="auto"), "base_model_tp_plan"),
                          (dict(mesh={"model": 2}, parallel={"*": "colwise"}), "parallel: the model itself is a Block, expected Linear"), (dict(mesh={"data": 2}, batch_dims={"x": 3}), "no dimension 3"),
                          (dict(mesh={"model": 2}, parallel={"up": "colwise"}, frozen="int8"), "parallel= shards: every rank would have all of up.weight;"),
                          (dict(mesh={"data": 2}, batch_dims={"y": None}), "no input is called y: expected names among x")]:
        try:
            trainc.torch.export(model, x, **options)
            raise AssertionError(f"{options} is not refused")
        except trainc.UnsupportedError as e:
            assert said in str(e), e


def together():
    """Layers of which each could be sharded, but not with the other; and Muon, which updates whole matrices."""
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 4, bias=False))
    batch, two = (torch.randn(2, 8),), {"model": 2}

    def export(plan, optimizer=torch.optim.SGD, mesh=two):
        return trainc.torch.export(model, batch, lambda m, x: m(x).square().mean(), optimizer(model.parameters(), 0.1), mesh=mesh, parallel=plan)

    muon = torch.optim.Muon
    for call, kind, said in [
            (lambda: export({"0": "colwise", "2": "colwise"}).step(), trainc.CompileError, "parallel= shards what an operation needs whole"),
            (lambda: export({"0": "colwise", "2": "rowwise"}, muon), trainc.UnsupportedError, "Muon of 0.weight, 2.weight: it updates whole matrices"),
            (lambda: export(None, muon, {"data": 2}).step(shard="optimizer"), trainc.CompileError, "shard= with Muon, which updates whole matrices")]:
        try:
            call()
            raise AssertionError(f"{said}: is not refused")
        except kind as e:
            assert str(e).startswith(said), e
    with tempfile.TemporaryDirectory() as folder:
        trainc.compile(export({"0": "colwise_gather_output", "2": "colwise"}), os.path.join(folder, "step.so"), mesh=two)


def plans():
    """Of models of transformers: a word for each tensor that is sharded, adapters of PEFT with what they are added to."""
    ids = (torch.tensor([[1, 2, 3, 4]]),)

    def shardings(model):
        exported = trainc.torch.export(model, ids, lambda m, t: m(input_ids=t, labels=t).loss, mesh={"model": 2}, parallel="auto")
        lines = [line.partition(" : ") for line in exported.text.splitlines() if line.startswith("train.param")]
        sharded = {name.rpartition("layers.0.")[2].removeprefix("train.param @"): line.partition(" split(")[2][:-1] for name, _, line in lines}
        return {name: split for name, split in sharded.items() if split}, exported.text.count("train.constrain")

    outputs, inputs = "[model]", "[], [model]"
    mlp = {"mlp.gate_proj.weight": outputs, "mlp.up_proj.weight": outputs, "mlp.down_proj.weight": inputs}
    assert shardings(with_lora()) == ({
        "self_attn.q_proj.base_layer.weight": outputs, "self_attn.q_proj.lora_B.default.weight": outputs, "self_attn.k_proj.weight": outputs,
        "self_attn.v_proj.weight": outputs, "self_attn.o_proj.base_layer.weight": inputs, "self_attn.o_proj.lora_A.default.weight": inputs, **mlp}, 0)
    assert shardings(small("Phi3")) == ({"self_attn.qkv_proj.weight": outputs, "self_attn.o_proj.weight": inputs, "mlp.gate_up_proj.weight": outputs,
                                         "mlp.down_proj.weight": inputs}, 2)
    neox, _ = shardings(small("GPTNeoX", attention_dropout=0.0, hidden_dropout=0.0))
    assert neox["gpt_neox.embed_in.weight"] == outputs and neox["attention.dense.weight"] == inputs, neox
    try:
        shardings(small("Mixtral"))
        raise AssertionError("experts in parts are not refused")
    except trainc.UnsupportedError as e:
        assert "experts.gate_up_proj is 'packed_colwise', expected one of colwise, " in str(e) and "give a plan without it to have it whole" in str(e), e


def parts():
    """An input of the step is divided, one of its name in an eval is not: each by the first input that it is given with. A name may have
    characters that the language has not."""
    def weighed(m, x, **rest):
        return (m(x).sum(1) * rest["the w"]).sum()

    w = torch.ones(4)
    exported = trainc.torch.export(nn.Linear(3, 2), {"x": torch.randn(4, 3), "the w": w}, weighed, mesh={"data": 2}, batch_dims={"x": 0},
                                   evals={"e": (lambda m, x, **rest: m(x) * rest["the w"].sum(), {"x": torch.randn(8, 3), "the w": w})})
    text = exported.text
    assert exported.shapes["step"] == {"x": (4, 3), "the_w": (4,)}, exported.shapes  # those of one rank
    assert "@step(%x: tensor<8x3xf64> split([data]), %the_w: tensor<8xf64> split([data]))" in text, text
    assert "@e(%x: tensor<16x3xf64> split([data]), %the_w: tensor<4xf64>)" in text, text


def main():
    refused()
    together()
    plans()
    parts()
    subprocess.run([sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", __file__, "rank"],
                   check=True, timeout=300)


if __name__ == "__main__":
    rank_of(int(os.environ["RANK"])) if len(sys.argv) > 1 else main()
