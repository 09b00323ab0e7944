"""llama.cpp through the libraries of llama-cpp-py-sync: its C functions, called one by one.

Only the package's libraries are used; its Python code wants packages that this does without. A decode step is
`llama_decode` and the library's own greedy sampler; the calls cost some 20 microseconds of Python a token.
"""

import ctypes
import heapq
import importlib.metadata
import importlib.util
import math
import pathlib
import time

PACKAGE = "llama_cpp_py_sync"
# The structs below are those of this version; others may have moved fields.
VERSION = "0.11739"

c_bool, c_float, c_int32, c_uint32 = ctypes.c_bool, ctypes.c_float, ctypes.c_int32, ctypes.c_uint32
c_size_t, pointer, text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p

TYPES = {"f32": 0, "f16": 1}
FLASH_ATTENTION_AUTO, FLASH_ATTENTION_OFF = -1, 0
LOAD_MMAP = 1


class ModelParams(ctypes.Structure):
    _fields_ = [
        ("devices", pointer),
        ("tensor_buft_overrides", pointer),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("lazy_mode", c_int32),
        ("main_gpu", c_int32),
        ("tensor_split", pointer),
        ("progress_callback", pointer),
        ("progress_callback_user_data", pointer),
        ("kv_overrides", pointer),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    ]


class ContextParams(ctypes.Structure):
    _fields_ = [
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", pointer),
        ("cb_eval_user_data", pointer),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("moe_cache_size", c_size_t),
        ("abort_callback", pointer),
        ("abort_callback_data", pointer),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", pointer),
        ("n_samplers", c_size_t),
        ("ctx_other", pointer),
    ]


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", c_int32),
        ("token", pointer),
        ("embd", pointer),
        ("pos", pointer),
        ("n_seq_id", pointer),
        ("seq_id", pointer),
        ("logits", pointer),
    ]


FUNCTIONS = {
    "llama_backend_init": (None, []),
    "llama_print_system_info": (text, []),
    "llama_model_default_params": (ModelParams, []),
    "llama_context_default_params": (ContextParams, []),
    "llama_model_load_from_file": (pointer, [text, ModelParams]),
    "llama_init_from_model": (pointer, [pointer, ContextParams]),
    "llama_model_get_vocab": (pointer, [pointer]),
    "llama_vocab_n_tokens": (c_int32, [pointer]),
    "llama_vocab_is_eog": (c_bool, [pointer, c_int32]),
    "llama_tokenize": (c_int32, [pointer, text, c_int32, pointer, c_int32, c_bool, c_bool]),
    "llama_get_memory": (pointer, [pointer]),
    "llama_memory_clear": (None, [pointer, c_bool]),
    "llama_batch_get_one": (Batch, [pointer, c_int32]),
    "llama_decode": (c_int32, [pointer, Batch]),
    "llama_get_logits_ith": (ctypes.POINTER(c_float), [pointer, c_int32]),
    "llama_sampler_init_greedy": (pointer, []),
    "llama_sampler_sample": (c_int32, [pointer, pointer, c_int32]),
}


def opened():
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise ModuleNotFoundError(f"No module named '{PACKAGE}'", name=PACKAGE)
    version = importlib.metadata.version(PACKAGE.replace("_", "-"))
    if version != VERSION:
        raise ImportError(f"{PACKAGE} {version} is installed, expected {VERSION}")
    folder = pathlib.Path(spec.submodule_search_locations[0])
    library = ctypes.CDLL(str(folder / "libllama.so.0"))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = opened()


class Side:
    def __init__(self):
        lib.llama_backend_init()
        self.held = []

    def facts(self):
        build = VERSION.rsplit(".", 1)[-1]
        isa = lib.llama_print_system_info().decode().strip()
        return {"version": f"llama-cpp-py-sync {VERSION} (llama.cpp b{build})", "isa": isa}

    def load(self, model, threads, context, kv, flash_attention, isa, memory, probe_folder):
        started = time.perf_counter()
        of_model = lib.llama_model_default_params()
        if memory is not None:
            of_model.load_mode = LOAD_MMAP
            # Repacked weights are the process's own memory, which the kernel cannot take back.
            of_model.use_extra_bufts = False
        self.model = lib.llama_model_load_from_file(model.encode(), of_model)
        if not self.model:
            raise RuntimeError(f"llama_model_load_from_file failed for {model}")
        params = lib.llama_context_default_params()
        sizes = (params.n_batch, params.n_ubatch, params.type_k, params.type_v)
        if sizes != (2048, 512, TYPES["f16"], TYPES["f16"]):
            raise RuntimeError(f"the library's defaults read as {sizes}: its structs are laid out otherwise")
        params.n_ctx = context
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = FLASH_ATTENTION_AUTO if flash_attention else FLASH_ATTENTION_OFF
        params.type_k = params.type_v = TYPES[kv]
        # As llama.cpp's server has it.
        params.swa_full = False
        self.batch = params.n_batch
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama_init_from_model failed")
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.greedy = lib.llama_sampler_init_greedy()
        return {"load_ms": (time.perf_counter() - started) * 1e3}

    def complete(self, prompt, n, top, ignore_eos, resume):
        if not (resume and self.held and len(self.held) < len(prompt) and prompt[: len(self.held)] == self.held):
            lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
            self.held = []
        rest = prompt[len(self.held) :]
        started = time.perf_counter()
        for at in range(0, len(rest), self.batch):
            self.decode(rest[at : at + self.batch])
        tokens, places = [], []
        first = None
        while True:
            token = lib.llama_sampler_sample(self.greedy, self.context, -1)
            now = time.perf_counter()
            first = first or now
            tokens.append(token)
            if top:
                places.append(self.candidates(top))
            if len(tokens) == n or (not ignore_eos and lib.llama_vocab_is_eog(self.vocab, token)):
                break
            self.decode([token])
        return {
            "tokens": tokens,
            "prompt_n": len(rest),
            "prompt_ms": (first - started) * 1e3,
            "decode_ms": (now - first) * 1e3,
            "top": places,
        }

    def tokenize(self, text, special):
        data = text.encode()
        # No token is of less than a byte, but for a space that may be added in front.
        room = len(data) + 1
        ids = (c_int32 * room)()
        n = lib.llama_tokenize(self.vocab, data, len(data), ids, room, False, special)
        if n < 0:
            raise RuntimeError(f"llama_tokenize returned {n} for {len(data)} bytes")
        return {"tokens": ids[:n]}

    def render(self, messages):
        # The C functions know templates by name only, not the model's own.
        return {"prompt": None}

    def decode(self, tokens):
        array = (c_int32 * len(tokens))(*tokens)
        code = lib.llama_decode(self.context, lib.llama_batch_get_one(array, len(tokens)))
        if code != 0:
            self.held = []
            raise RuntimeError(f"llama_decode returned {code}")
        self.held += tokens

    def candidates(self, n):
        size = lib.llama_vocab_n_tokens(self.vocab)
        logits = lib.llama_get_logits_ith(self.context, -1)[:size]
        largest = max(logits)
        total = largest + math.log(math.fsum(math.exp(logit - largest) for logit in logits))
        best = heapq.nsmallest(n, range(size), key=lambda i: (-logits[i], i))
        return [{"id": i, "logprob": logits[i] - total} for i in best]
