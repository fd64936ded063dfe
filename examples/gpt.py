#!/usr/bin/env python3
"""Prints a GPT: learnt positions, layer norm before each block, GELU, the head tied to the token table."""
from trainc_text import classifier, new_module, number, parser


def options():
    p = parser(__doc__, batch=8)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--vocab", type=int, default=128)
    p.add_argument("--seq", type=int, default=256, help="tokens per example")
    p.add_argument("--context", type=int, help="rows of the position table; default: --seq")
    p.add_argument("--dropout", type=float, default=0.0, help="rate, after the embedding and before each residual sum")
    p.add_argument("--attention-dropout", type=float, default=0.0, help="rate, of the probabilities of attention")
    p.add_argument("--sequence-parallel", action="store_true", help="ranks along `model` have parts of each sequence where"
                   " layers are not split: in norms, dropouts and sums")
    p.add_argument("--recompute", action="store_true", help="compute the inside of blocks again instead of keeping it")
    o = p.parse_args()
    o.context = o.context or o.seq
    if o.width % o.heads:
        p.error(f"--width {o.width} is not a multiple of --heads {o.heads}")
    if o.context < o.seq:
        p.error(f"--context {o.context} is less than --seq {o.seq}")
    return o


def main():
    o = options()
    d = o.width
    module = new_module(o)
    module.param("wte.weight", (o.vocab, d), "normal<0.02>", split=0)
    module.param("wpe.weight", (o.context, d), "normal<0.02>")
    for i in range(o.layers):
        module.norm(f"h.{i}.ln_1", d)
        module.linear(f"h.{i}.attn.c_attn", d, 3 * d, split=1, blocks=3)
        module.linear(f"h.{i}.attn.c_proj", d, d, split=0)
        module.norm(f"h.{i}.ln_2", d)
        module.linear(f"h.{i}.mlp.c_fc", d, 4 * d, split=1)
        module.linear(f"h.{i}.mlp.c_proj", 4 * d, d, split=0)
    module.norm("ln_f", d)

    dropped = f" dropout {number(o.attention_dropout)}" if o.attention_dropout else ""

    def attention(body, qkv):
        out = (*qkv.shape[:2], d)
        return body.op(f"nn.packed_attention {qkv.name} heads {o.heads} causal{dropped} : {qkv.type}",
                       (out, qkv.element), ((qkv.shape[0], o.heads, qkv.shape[1]), qkv.element))[0]

    def dropout(body, x):
        return body.pointwise("dropout", x, f" rate {o.dropout}") if o.dropout else x

    def model(body, tokens):
        table, positions = body.read("wte.weight"), body.read("wpe.weight")
        if o.context != o.seq:
            positions = body.op(f"nn.slice {positions.name} offsets [0, 0] sizes [{o.seq}, {d}] : {positions.type}",
                                ((o.seq, d), positions.element))
        rows = "[host, data]" if body.split else "[]"

        def apart(x):
            return body.constrain(x, f"{rows}, [model]") if o.sequence_parallel else x

        def together(x):
            return body.constrain(x, rows) if o.sequence_parallel else x

        x = dropout(body, apart(body.add(body.embedding(table, tokens), positions)))
        for i in range(o.layers):
            def block(body, x=x, i=i):
                y = body.linear(together(body.norm("layer_norm", x, f"h.{i}.ln_1")), f"h.{i}.attn.c_attn")
                x = body.add(x, dropout(body, apart(body.linear(attention(body, y), f"h.{i}.attn.c_proj"))))
                y = body.linear(together(body.norm("layer_norm", x, f"h.{i}.ln_2")), f"h.{i}.mlp.c_fc")
                y = apart(body.linear(body.pointwise("gelu", y, " tanh"), f"h.{i}.mlp.c_proj"))
                return body.add(x, dropout(body, y))

            x = body.recompute(block) if o.recompute else block(body)
        return body.times_transposed(together(body.norm("layer_norm", x, "ln_f")), table)

    classifier(module, o, model, ((o.seq,), "i32"), (o.seq,))
    module.eval("logits", [("x", (1, o.seq), "i32")], ["logits"], lambda body, x: [model(body, x)])
    print(module, end="")


if __name__ == "__main__":
    main()
