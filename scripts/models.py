#!/usr/bin/env python3
"""Makes GGUF models of known shapes with random weights, for tests and benchmarks.

    models.py FOLDER [NAME...]     makes those that are missing (all tiny ones without a name)
    models.py FOLDER --all         every one with random weights
    models.py --list

The same name gives the same bytes on every machine: the weights come from a generator that is
seeded by the model's and the tensor's name. The vocabulary is made up: 256 byte tokens, so that any
text can be tokenised, and made-up words.
"""

import argparse
import hashlib
import os
import sys
from dataclasses import dataclass, field

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

BYTE_TOKENS_FROM = 3  # after <unk>, <s>, </s>


@dataclass
class Shape:
    """Sizes as GGUF names them; `extra` holds the keys that only one architecture has."""
    arch: str
    layers: int
    embd: int
    ff: int
    heads: int
    heads_kv: object          # a number, or a list with one per layer
    head_dim: int
    vocab: int
    rope_base: float = 10000.0
    context: int = 32768
    extra: dict = field(default_factory=dict)

    def kv_heads(self, layer):
        return self.heads_kv[layer] if isinstance(self.heads_kv, list) else self.heads_kv


# --- the tensors of an architecture: name -> sizes, the fastest running first ---

def attention(s, layer):
    q, kv = s.heads * s.head_dim, s.kv_heads(layer) * s.head_dim
    return {"attn_q": (s.embd, q), "attn_k": (s.embd, kv), "attn_v": (s.embd, kv), "attn_output": (q, s.embd)}


def feed_forward(s):
    return {"ffn_gate": (s.embd, s.ff), "ffn_up": (s.embd, s.ff), "ffn_down": (s.ff, s.embd)}


def experts(s, ff):
    n = s.extra["expert_count"]
    return {"ffn_gate_inp": (s.embd, n), "ffn_gate_exps": (s.embd, ff, n), "ffn_up_exps": (s.embd, ff, n),
            "ffn_down_exps": (ff, s.embd, n)}


def layer_llama(s, layer):
    out = {"attn_norm": (s.embd,), "ffn_norm": (s.embd,)} | attention(s, layer)
    return out | (experts(s, s.ff) if "expert_count" in s.extra else feed_forward(s))


def layer_qwen3(s, layer):
    return layer_llama(s, layer) | {"attn_q_norm": (s.head_dim,), "attn_k_norm": (s.head_dim,)}


def layer_exaone4(s, layer):
    return attention(s, layer) | feed_forward(s) | {
        "attn_q_norm": (s.head_dim,), "attn_k_norm": (s.head_dim,),
        "post_attention_norm": (s.embd,), "post_ffw_norm": (s.embd,)}


def layer_lfm2(s, layer):
    out = {"attn_norm": (s.embd,), "ffn_norm": (s.embd,)} | feed_forward(s)
    if s.kv_heads(layer):
        return out | attention(s, layer) | {"attn_q_norm": (s.head_dim,), "attn_k_norm": (s.head_dim,)}
    return out | {"shortconv.conv": (s.extra["shortconv.l_cache"], s.embd),
                  "shortconv.in_proj": (s.embd, 3 * s.embd), "shortconv.out_proj": (s.embd, s.embd)}


def layer_deepseek2(s, layer):
    x = s.extra
    q_rank, kv_rank, rope = x["attention.q_lora_rank"], x["attention.kv_lora_rank"], x["rope.dimension_count"]
    k_dim, v_dim = x["attention.key_length_mla"], x["attention.value_length_mla"]
    out = {"attn_norm": (s.embd,), "ffn_norm": (s.embd,), "attn_q_a_norm": (q_rank,), "attn_kv_a_norm": (kv_rank,),
           "attn_q_a": (s.embd, q_rank), "attn_q_b": (q_rank, s.heads * k_dim),
           "attn_kv_a_mqa": (s.embd, kv_rank + rope), "attn_k_b": (k_dim - rope, kv_rank, s.heads),
           "attn_v_b": (kv_rank, v_dim, s.heads), "attn_output": (s.heads * v_dim, s.embd)}
    if layer < x["leading_dense_block_count"]:
        return out | feed_forward(s)
    ff = x["expert_feed_forward_length"]
    shared = ff * x["expert_shared_count"]
    return out | experts(s, ff) | {"ffn_gate_shexp": (s.embd, shared), "ffn_up_shexp": (s.embd, shared),
                                   "ffn_down_shexp": (shared, s.embd)}


LAYERS = {"llama": layer_llama, "qwen3": layer_qwen3, "exaone4": layer_exaone4, "lfm2": layer_lfm2,
          "deepseek2": layer_deepseek2}


def tensors(s, tied):
    out = {"token_embd.weight": (s.embd, s.vocab)}
    for layer in range(s.layers):
        out |= {f"blk.{layer}.{name}.weight": sizes for name, sizes in LAYERS[s.arch](s, layer).items()}
    out["token_embd_norm.weight" if s.arch == "lfm2" else "output_norm.weight"] = (s.embd,)
    if not tied:
        out["output.weight"] = (s.embd, s.vocab)
    return out


# --- the models ---

QWEN3 = Shape("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, rope_base=1e6)
EXAONE4 = Shape("exaone4", 30, 2048, 4096, 32, 8, 64, 102400, rope_base=1e6)
TINY = Shape("llama", 6, 256, 1024, 4, 2, 64, 1024)
TINY_MOE = Shape("llama", 4, 256, 512, 4, 2, 64, 1024, extra={"expert_count": 8, "expert_used_count": 2})
TINY_MLA = Shape("deepseek2", 4, 256, 512, 4, 1, 320, 1024, extra={
    "attention.q_lora_rank": 128, "attention.kv_lora_rank": 256, "attention.key_length_mla": 128,
    "attention.value_length_mla": 64, "attention.value_length": 256, "rope.dimension_count": 64,
    "leading_dense_block_count": 1, "expert_feed_forward_length": 256, "expert_count": 4, "expert_used_count": 2,
    "expert_shared_count": 1, "expert_weights_scale": 1.0, "expert_weights_norm": True, "expert_gating_func": 1})
TINY_HYBRID = Shape("lfm2", 6, 256, 768, 4, [0, 0, 2, 0, 0, 2], 64, 1024, extra={"shortconv.l_cache": 3})

MODELS = {  # name: (shape, type of the matrices, output matrix tied to the embedding)
    "tiny-llama": (TINY, Type.F16, False),
    "tiny-llama-q4_0": (TINY, Type.Q4_0, False),
    "tiny-moe": (TINY_MOE, Type.F16, False),
    "tiny-moe-q4_0": (TINY_MOE, Type.Q4_0, False),
    "tiny-mla": (TINY_MLA, Type.F16, False),
    "tiny-hybrid": (TINY_HYBRID, Type.F16, True),
    "qwen3-0.6b-f16": (QWEN3, Type.F16, True),
    "qwen3-0.6b-q8_0": (QWEN3, Type.Q8_0, True),
    "qwen3-0.6b-q4_0": (QWEN3, Type.Q4_0, True),
    "exaone-4.0-1.2b-f16": (EXAONE4, Type.F16, True),
    "exaone-4.0-1.2b-q4_0": (EXAONE4, Type.Q4_0, True),
}

ADAPTERS = {  # name: (kind, sizes of the model that it is for)
    "tiny-llama-lora": ("lora", dict(arch="llama", layers=6, embd=256, q=256)),
    "smollm2-135m-lora": ("lora", dict(arch="llama", layers=30, embd=576, q=576)),
    "tiny-llama-cvec": ("controlvector", dict(arch="llama", layers=6, embd=256)),
    "smollm2-135m-cvec": ("controlvector", dict(arch="llama", layers=30, embd=576)),
}


WIDE = {  # name: the model in the same folder whose weights it has, as 32-bit numbers: nothing is rounded while it computes
    "smollm2-135m-f32": "smollm2-135m",
    "gemma3-270m-f32": "gemma3-270m",
}


# --- writing ---

def random(model, name, sizes, scale):
    seed = int.from_bytes(hashlib.sha256(f"{model}/{name}".encode()).digest()[:8], "little")
    data = np.random.default_rng(seed).standard_normal(sizes[::-1], dtype=np.float32)
    data *= np.float32(scale)
    return data


def type_of(name, sizes, wanted):
    if len(sizes) == 1 or "ffn_gate_inp" in name or "shortconv.conv" in name:
        return Type.F32
    if name in ("token_embd.weight", "output.weight") and wanted == Type.Q4_0:
        return Type.Q8_0  # as quantizing tools do: the output matrix is kept finer
    if wanted != Type.F16 and sizes[0] % 32:
        return Type.F16
    return wanted


def values(model, name, sizes, kind):
    if len(sizes) == 1:
        return np.ones(sizes, dtype=np.float32)
    data = random(model, name, sizes, sizes[0] ** -0.5)
    if kind == Type.F32:
        return data
    return data.astype(np.float16) if kind == Type.F16 else gguf.quants.quantize(data, kind)


def add_vocabulary(w, vocab):
    byte = [f"<0x{i:02X}>" for i in range(256)]
    words = ["\u2581"] + [f"\u2581w{i}" for i in range(vocab - len(byte) - BYTE_TOKENS_FROM - 1)]
    types = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2
    types += [gguf.TokenType.BYTE] * len(byte) + [gguf.TokenType.NORMAL] * len(words)
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>"] + byte + words)
    w.add_token_scores([-float(i) for i in range(vocab)])
    w.add_token_types([int(t) for t in types])
    w.add_unk_token_id(0)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(True)
    w.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:")


def add_extra(w, arch, extra):
    for key, value in extra.items():
        key = f"{arch}.{key}"
        if isinstance(value, bool):
            w.add_bool(key, value)
        elif isinstance(value, float):
            w.add_float32(key, value)
        else:
            w.add_uint32(key, value)


def add_shape(w, s):
    w.add_context_length(s.context)
    w.add_embedding_length(s.embd)
    w.add_block_count(s.layers)
    w.add_feed_forward_length(s.ff)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.heads_kv)
    w.add_key_length(s.head_dim)
    if "attention.value_length" not in s.extra:
        w.add_value_length(s.head_dim)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(s.rope_base)
    w.add_vocab_size(s.vocab)
    add_extra(w, s.arch, s.extra)


def write_model(path, model):
    shape, wanted, tied = MODELS[model]
    w = gguf.GGUFWriter(path, shape.arch)
    w.add_name(model)
    add_shape(w, shape)
    add_vocabulary(w, shape.vocab)
    plan = [(name, sizes, type_of(name, sizes, wanted)) for name, sizes in tensors(shape, tied).items()]
    for name, sizes, kind in plan:
        whole = gguf.quant_shape_to_byte_shape(sizes[::-1], kind)
        dtype = {Type.F32: np.float32, Type.F16: np.float16}.get(kind, np.uint8)
        plain = kind in (Type.F32, Type.F16)
        w.add_tensor_info(name, sizes[::-1] if plain else whole, np.dtype(dtype), int(np.prod(whole)), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    for name, sizes, kind in plan:
        w.write_tensor_data(values(model, name, sizes, kind))
    w.close()


def write_lora(w, name, arch, layers, embd, q, rank=4):
    w.add_type("adapter")
    w.add_string("adapter.type", "lora")
    w.add_float32("adapter.lora.alpha", 2.0 * rank)
    for layer in range(layers):
        a, b = f"blk.{layer}.attn_q.weight.lora_a", f"blk.{layer}.attn_q.weight.lora_b"
        w.add_tensor(a, random(name, a, (embd, rank), embd ** -0.5))
        w.add_tensor(b, random(name, b, (rank, q), 0.3))


def write_control_vector(w, name, arch, layers, embd):
    w.add_string("controlvector.model_hint", arch)
    w.add_uint32("controlvector.layer_count", layers)
    for layer in range(1, layers):
        w.add_tensor(f"direction.{layer}", random(name, str(layer), (embd,), 0.3))


def write_adapter(path, name):
    kind, sizes = ADAPTERS[name]
    w = gguf.GGUFWriter(path, sizes["arch"] if kind == "lora" else kind)
    (write_lora if kind == "lora" else write_control_vector)(w, name, **sizes)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_wide(path, source):
    model = gguf.GGUFReader(source)
    w = gguf.GGUFWriter(path, model.fields["general.architecture"].contents())
    for field in model.fields.values():
        if field.name == "general.file_type":
            w.add_file_type(gguf.LlamaFileType.ALL_F32)
        elif field.name != "general.architecture" and not field.name.startswith("GGUF."):
            w.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for tensor in model.tensors:
        w.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make(folder, name):
    path = os.path.join(folder, name + ".gguf")
    if os.path.exists(path):
        return
    part = path + ".part"
    if name in WIDE:
        write_wide(part, os.path.join(folder, WIDE[name] + ".gguf"))
    else:
        (write_model if name in MODELS else write_adapter)(part, name)
    os.replace(part, path)
    print(f"{name}: {os.path.getsize(path) >> 20} MiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Makes GGUF models of known shapes with random weights.")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("name", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    known = list(MODELS) + list(ADAPTERS)
    if args.list:
        print("\n".join([*known, *WIDE]))
        return 0
    if not args.folder:
        parser.error("a folder is needed")
    unknown = set(args.name) - set(known) - set(WIDE)
    if unknown:
        parser.error(f"unknown model: {', '.join(sorted(unknown))}")
    wanted = known if args.all else args.name or [n for n in known if n.startswith("tiny") or n in ADAPTERS]
    os.makedirs(args.folder, exist_ok=True)
    for name in wanted:
        make(args.folder, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
