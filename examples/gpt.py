#!/usr/bin/env python3
"""Prints a GPT: learnt positions, layer norm before each block, GELU, the head tied to the token table."""
from trainc_text import classifier, new_module, parser


def options():
    p = parser(__doc__, batch=8)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--vocab", type=int, default=128)
    p.add_argument("--seq", type=int, default=256, help="tokens per example")
    p.add_argument("--context", type=int, help="rows of the position table; default: --seq")
    p.add_argument("--dropout", type=float, default=0.0, help="rate, after the embedding and before each residual sum")
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
    module.param("wte.weight", (o.vocab, d), "normal<0.02>")
    module.param("wpe.weight", (o.context, d), "normal<0.02>")
    for i in range(o.layers):
        module.norm(f"h.{i}.ln_1", d)
        module.linear(f"h.{i}.attn.c_attn", d, 3 * d)
        module.linear(f"h.{i}.attn.c_proj", d, d)
        module.norm(f"h.{i}.ln_2", d)
        module.linear(f"h.{i}.mlp.c_fc", d, 4 * d)
        module.linear(f"h.{i}.mlp.c_proj", 4 * d, d)
    module.norm("ln_f", d)

    def attention(body, qkv):
        out = (*qkv.shape[:2], d)
        return body.op(f"nn.packed_attention {qkv.name} heads {o.heads} causal : {qkv.type}",
                       (out, qkv.element), ((qkv.shape[0], o.heads, qkv.shape[1]), qkv.element))[0]

    def dropout(body, x):
        return body.pointwise("dropout", x, f" rate {o.dropout}") if o.dropout else x

    def model(body, tokens):
        table, positions = body.read("wte.weight"), body.read("wpe.weight")
        if o.context != o.seq:
            positions = body.op(f"nn.slice {positions.name} offsets [0, 0] sizes [{o.seq}, {d}] : {positions.type}",
                                ((o.seq, d), positions.element))
        x = dropout(body, body.add(body.embedding(table, tokens), positions))
        for i in range(o.layers):
            def block(body, x=x, i=i):
                y = body.linear(body.norm("layer_norm", x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
                x = body.add(x, dropout(body, body.linear(attention(body, y), f"h.{i}.attn.c_proj")))
                y = body.linear(body.norm("layer_norm", x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
                y = body.linear(body.pointwise("gelu", y, " tanh"), f"h.{i}.mlp.c_proj")
                return body.add(x, dropout(body, y))

            x = body.recompute(block) if o.recompute else block(body)
        return body.times_transposed(body.norm("layer_norm", x, "ln_f"), table)

    classifier(module, o, model, ((o.seq,), "i32"), (o.seq,))
    module.eval("logits", [("x", (1, o.seq), "i32")], ["logits"], lambda body, x: [model(body, x)])
    print(module, end="")


if __name__ == "__main__":
    main()
