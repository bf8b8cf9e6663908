"""llama.cpp through the C API of llama-cpp-python, with continuous batching: prompts are computed whenever a slot is free, else all
running sequences take a step. As in llama-batched-bench nothing is sampled but first tokens; the tokens fed back are arbitrary.
"""
import collections
import ctypes

import llama_cpp
import numpy as np
import worker

KV_TYPES = {"f16": 1, "bf16": 30}  # ggml_type


class Batch:
    """A llama_batch over NumPy arrays."""

    def __init__(self, size):
        self.token, self.pos, self.count, self.seq = (np.zeros(size, np.int32) for _ in range(4))
        self.logits = np.zeros(size, np.int8)
        self.count[:] = 1
        int_p = ctypes.POINTER(ctypes.c_int32)
        at = [ctypes.cast(self.seq.ctypes.data + 4 * i, int_p) for i in range(size)]
        self.seq_pointers = (int_p * size)(*at)

        def pointer(array, kind):
            return array.ctypes.data_as(ctypes.POINTER(kind))
        self.struct = llama_cpp.llama_batch(
            0, pointer(self.token, ctypes.c_int32), None, pointer(self.pos, ctypes.c_int32), pointer(self.count, ctypes.c_int32),
            self.seq_pointers, pointer(self.logits, ctypes.c_int8))
        self.size = 0

    def add(self, tokens, pos, seq, logits):
        """One token or many of a sequence, from position `pos` on; logits are wanted of the last, or of none."""
        end = self.size + len(tokens)
        self.token[self.size:end] = tokens
        self.pos[self.size:end] = range(pos, pos + len(tokens))
        self.seq[self.size:end] = seq
        self.logits[self.size:end] = 0
        self.logits[end - 1] = logits
        self.size = end


class Engine:
    def __init__(self, settings):
        self.settings = settings
        llama_cpp.llama_backend_init()
        print(llama_cpp.llama_print_system_info().decode())
        self.model = llama_cpp.llama_load_model_from_file(settings["model"].encode(), llama_cpp.llama_model_default_params())
        self.vocab_size = llama_cpp.llama_n_vocab(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = Batch(settings["batch"])
        self.context, self.shape = None, None

    def prepare(self, requests):
        """A context with as many slots as the requests and the cache allow."""
        s = self.settings
        longest = -(-max(len(prompt) + output for prompt, output in requests) // 256) * 256
        whole = sum(len(prompt) + output for prompt, output in requests)
        slots = min(len(requests), s["slots"], len(requests) if s["unified"] else s["kv_tokens"] // longest)
        cells = min(s["kv_tokens"], -(-whole // 256) * 256) if s["unified"] else slots * longest
        if self.shape == (slots, cells):
            return
        if self.context:
            llama_cpp.llama_free(self.context)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = cells, slots, s["unified"]
        params.n_batch, params.n_ubatch = s["batch"], s["ubatch"]
        params.n_threads = params.n_threads_batch = s["threads"]
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED if s["flash"] else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.type_k = params.type_v = KV_TYPES[s["kv"]]
        self.context, self.shape = llama_cpp.llama_init_from_model(self.model, params), (slots, cells)
        assert self.context, "no context: too little memory?"

    def decode(self):
        self.batch.struct.n_tokens = self.batch.size
        code = llama_cpp.llama_decode(self.context, self.batch.struct)
        assert code == 0, f"llama_decode returned {code}"
        llama_cpp.llama_synchronize(self.context)

    def argmax(self, row):
        return int(np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, row), (self.vocab_size,)).argmax())

    def run(self, requests):
        slots, cells = self.shape
        memory = llama_cpp.llama_get_memory(self.context)
        llama_cpp.llama_memory_clear(memory, False)
        waiting = collections.deque(enumerate(requests))
        free, running, first = list(range(slots)), {}, [None] * len(requests)  # running: seq -> [position, tokens left, length]
        while waiting or running:
            for seq in [seq for seq, (_, left, _) in running.items() if left == 0]:
                llama_cpp.llama_memory_seq_rm(memory, seq, -1, -1)
                del running[seq]
                free.append(seq)
            self.admit(waiting, free, running, cells - sum(length for _, _, length in running.values()), first)
            self.step(running)
        return first

    def step(self, running):
        self.batch.size = 0
        for seq, state in running.items():
            if state[1] > 0:
                self.batch.add([(state[0] * 7919 + seq) % self.vocab_size], state[0], seq, True)
                state[0] += 1
                state[1] -= 1
        if self.batch.size:
            self.decode()

    def admit(self, waiting, free, running, cells, first):
        """Computes prompts, as many at once as fit, until no slot or no room in the cache is left."""
        while waiting and free and len(waiting[0][1][0]) + waiting[0][1][1] <= cells:
            self.batch.size, rows = 0, []
            while waiting and free:
                index, (prompt, output) = waiting[0]
                length = len(prompt) + output
                if length > cells or self.batch.size + len(prompt) > len(self.batch.token):
                    break
                waiting.popleft()
                seq = free.pop(0)
                running[seq] = [len(prompt), output - 1, length]
                cells -= length
                self.batch.add(prompt, 0, seq, True)
                rows.append((index, self.batch.size - 1))
            self.decode()
            for index, row in rows:
                first[index] = self.argmax(row)


if __name__ == "__main__":
    worker.serve(Engine)
