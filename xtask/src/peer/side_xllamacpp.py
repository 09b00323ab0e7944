"""llama.cpp through xllamacpp: its server, inside this process, asked over HTTP on the loopback interface.

Times are the server's own, so neither HTTP nor Python is in them.
"""

import importlib.metadata
import json
import time
import urllib.error
import urllib.request

import xllamacpp


class Side:
    def facts(self):
        version = importlib.metadata.version("xllamacpp")
        build = version.rsplit(".", 1)[-1]
        return {"version": f"xllamacpp {version} (llama.cpp b{build})", "isa": xllamacpp.get_system_info().strip()}

    def load(self, model, threads, context, kv, flash_attention, isa, memory, probe_folder):
        params = xllamacpp.CommonParams()
        params.model.path = model
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.n_ctx = context
        params.n_parallel = 1
        types = xllamacpp.ggml_type
        params.cache_type_k = params.cache_type_v = types.GGML_TYPE_F32 if kv == "f32" else types.GGML_TYPE_F16
        attention = xllamacpp.llama_flash_attn_type
        params.flash_attn_type = (
            attention.LLAMA_FLASH_ATTN_TYPE_AUTO if flash_attention else attention.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        # Warm-ups are asked for by name; nothing of one request may help the next.
        params.warmup = False
        params.cache_prompt = False
        params.cache_ram_mib = 0
        params.n_ctx_checkpoints = 0
        # Looks for a context and a split over devices that fit; both are given.
        params.fit_params = False
        params.verbosity = 1
        if memory is not None:
            params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_MMAP
            # Repacked weights are the process's own memory, which the kernel cannot take back.
            params.no_extra_bufts = True
        started = time.perf_counter()
        self.server = xllamacpp.Server(params)
        return {"load_ms": (time.perf_counter() - started) * 1e3}

    def complete(self, prompt, n, top, ignore_eos, resume):
        reply = self.post(
            "/completion",
            {
                "prompt": prompt,
                "n_predict": n,
                # Greedy: the likeliest of a list of one.
                "temperature": 0.0,
                "samplers": ["top_k"],
                "top_k": 1,
                "n_probs": top,
                "ignore_eos": ignore_eos,
                "cache_prompt": resume,
                "return_tokens": True,
            },
        )
        timings = reply["timings"]
        places = reply.get("completion_probabilities", []) if top else []
        return {
            "tokens": reply["tokens"],
            "prompt_n": timings["prompt_n"],
            "prompt_ms": timings["prompt_ms"],
            # Counted from the first token drawn.
            "decode_ms": timings["predicted_ms"],
            "top": [[{"id": t["id"], "logprob": t["logprob"]} for t in p["top_logprobs"]] for p in places],
        }

    def tokenize(self, text, special):
        request = {"content": text, "add_special": False, "parse_special": special}
        return {"tokens": self.post("/tokenize", request)["tokens"]}

    def render(self, messages):
        return {"prompt": self.post("/apply-template", {"messages": messages})["prompt"]}

    def post(self, path, body):
        request = urllib.request.Request(
            self.server.listening_address + path,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        # Not through a proxy that the environment may name.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.code} {error.read().decode(errors='replace')}") from error
