"""llama.cpp through llama-cpp-python: its C functions, called one by one.

A decode step is `llama_decode` and an arg-max over the logits; the calls cost some 20 microseconds of Python a token.
"""

import ctypes
import math
import time

import llama_cpp
import numpy


class Side:
    def facts(self):
        isa = llama_cpp.llama_print_system_info().decode().strip()
        return {"version": f"llama-cpp-python {llama_cpp.__version__}", "isa": isa}

    def load(self, model, threads, context, kv, flash_attention, isa, memory, probe_folder):
        if memory is not None:
            raise NotImplementedError("this package has no switch for weights that are left as they are in the file")
        kv_type = llama_cpp.GGML_TYPE_F32 if kv == "f32" else llama_cpp.GGML_TYPE_F16
        started = time.perf_counter()
        self.llama = llama_cpp.Llama(
            model_path=model,
            n_ctx=context,
            n_batch=2048,
            n_ubatch=512,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=flash_attention,
            type_k=kv_type,
            type_v=kv_type,
            verbose=False,
        )
        self.batch = 2048
        self.held = []
        self.vocab = self.llama.n_vocab()
        return {"load_ms": (time.perf_counter() - started) * 1e3}

    def complete(self, prompt, n, top, ignore_eos, resume):
        context = self.llama.ctx
        if not (resume and self.held and len(self.held) < len(prompt) and prompt[: len(self.held)] == self.held):
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
            self.held = []
        rest = prompt[len(self.held) :]
        started = time.perf_counter()
        for at in range(0, len(rest), self.batch):
            self.decode(rest[at : at + self.batch])
        tokens, places = [], []
        first = None
        while True:
            logits = self.logits()
            token = int(logits.argmax())
            now = time.perf_counter()
            first = first or now
            tokens.append(token)
            if top:
                places.append(candidates(logits, top))
            vocab = llama_cpp.llama_model_get_vocab(self.llama.model)
            if len(tokens) == n or (not ignore_eos and llama_cpp.llama_vocab_is_eog(vocab, token)):
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
        return {"tokens": self.llama.tokenize(text.encode(), add_bos=False, special=special)}

    def render(self, messages):
        # The package renders templates with a Python library, not with llama.cpp.
        return {"prompt": None}

    def decode(self, tokens):
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        batch = llama_cpp.llama_batch_get_one(array, len(tokens))
        code = llama_cpp.llama_decode(self.llama.ctx, batch)
        if code != 0:
            self.held = []
            raise RuntimeError(f"llama_decode returned {code}")
        self.held += tokens

    def logits(self):
        row = llama_cpp.llama_get_logits_ith(self.llama.ctx, -1)
        return numpy.ctypeslib.as_array(ctypes.cast(row, ctypes.POINTER(ctypes.c_float)), shape=(self.vocab,))


def candidates(logits, n):
    largest = float(logits.max())
    total = largest + math.log(float(numpy.exp(logits.astype(numpy.float64) - largest).sum()))
    order = numpy.argsort(-logits, kind="stable")[:n]
    return [{"id": int(i), "logprob": float(logits[i]) - total} for i in order]
