#!/usr/bin/env python3
"""Prints a Llama: RMS norm, rotary positions, grouped-query attention, SwiGLU, a head of its own, no biases."""
from trainc_text import classifier, new_module, number, parser


def options():
    p = parser(__doc__, batch=4)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--kv-heads", type=int, default=2, help="heads of keys and values")
    p.add_argument("--hidden", type=int, help="width inside the SwiGLU; default: 8/3 of --width, up to a multiple of 32")
    p.add_argument("--vocab", type=int, default=128)
    p.add_argument("--seq", type=int, default=128, help="tokens per example")
    p.add_argument("--theta", type=float, default=10000.0, help="base of the rotary positions")
    p.add_argument("--attention-dropout", type=float, default=0.0, help="rate, of the probabilities of attention")
    o = p.parse_args()
    o.hidden = o.hidden or -(-8 * o.width // 96) * 32
    if o.width % (2 * o.heads):
        p.error(f"--width {o.width} is not a multiple of 2 x --heads {o.heads}")
    if o.heads % o.kv_heads:
        p.error(f"--heads {o.heads} is not a multiple of --kv-heads {o.kv_heads}")
    return o


def main():
    o = options()
    d, size = o.width, o.width // o.heads
    module = new_module(o)
    module.param("wte.weight", (o.vocab, d), "normal<0.02>", split=0)
    for i in range(o.layers):
        module.norm(f"h.{i}.norm_1", d, bias=False)
        module.linear(f"h.{i}.attn.q_proj", d, d, bias=False, split=1)
        module.linear(f"h.{i}.attn.k_proj", d, o.kv_heads * size, bias=False, split=1)
        module.linear(f"h.{i}.attn.v_proj", d, o.kv_heads * size, bias=False, split=1)
        module.linear(f"h.{i}.attn.o_proj", d, d, bias=False, split=0)
        module.norm(f"h.{i}.norm_2", d, bias=False)
        module.linear(f"h.{i}.mlp.gate_proj", d, o.hidden, bias=False, split=1)
        module.linear(f"h.{i}.mlp.up_proj", d, o.hidden, bias=False, split=1)
        module.linear(f"h.{i}.mlp.down_proj", o.hidden, d, bias=False, split=0)
    module.norm("norm_f", d, bias=False)
    module.linear("lm_head", d, o.vocab, bias=False, split=1)

    dropped = f" dropout {number(o.attention_dropout)}" if o.attention_dropout else ""

    def attention(body, x, h):
        def heads(name, count):
            y = body.linear(x, f"{h}.attn.{name}")
            return body.reshape(y, (*y.shape[:2], count, size))

        def rotary(y):
            return body.pointwise("rotary", y, f" theta {number(o.theta)}")

        q, k, v = rotary(heads("q_proj", o.heads)), rotary(heads("k_proj", o.kv_heads)), heads("v_proj", o.kv_heads)
        y, _ = body.op(f"nn.attention {q.name}, {k.name}, {v.name} causal{dropped} : {q.type}, {k.type}",
                       (q.shape, q.element), ((q.shape[0], o.heads, q.shape[1]), q.element))
        return body.linear(body.reshape(y, x.shape), f"{h}.attn.o_proj")

    def swiglu(body, x, h):
        gate = body.pointwise("silu", body.linear(x, f"{h}.mlp.gate_proj"))
        return body.linear(body.binary("mul", gate, body.linear(x, f"{h}.mlp.up_proj")), f"{h}.mlp.down_proj")

    def model(body, tokens):
        x = body.embedding(body.read("wte.weight"), tokens)
        for i in range(o.layers):
            x = body.add(x, attention(body, body.norm("rms_norm", x, f"h.{i}.norm_1"), f"h.{i}"))
            x = body.add(x, swiglu(body, body.norm("rms_norm", x, f"h.{i}.norm_2"), f"h.{i}"))
        return body.linear(body.norm("rms_norm", x, "norm_f"), "lm_head")

    classifier(module, o, model, ((o.seq,), "i32"), (o.seq,))
    module.eval("logits", [("x", (1, o.seq), "i32")], ["logits"], lambda body, x: [model(body, x)])
    print(module, end="")


if __name__ == "__main__":
    main()
