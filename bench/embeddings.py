#!/usr/bin/env python3
"""Vectors of 20,000 texts by encoders of two shapes, beside what the machine could do at that moment and, where they are installed, peers.

usage: embeddings.py FOREBAY [--models minilm,bge-m3] [--texts N] [--rounds N] [--threads N] [--peers sentence,sentence_fp32,openvino,vllm] [--short | --quick]
                     [--out FILE]
Texts have 16 to 512 tokens, [CLS] and [SEP] among them, as bench/embedding_lengths.csv counts them (the logarithm is uniform), in an order drawn with a seed.
Weights are random, in bfloat16, and the same for all: with peers the first one's environment writes them (peers/install.py sentence openvino vllm),
without any Forebay makes its own. A word is a token of a WordPiece vocabulary, so that every engine tokenizes the same texts.

The limit of a job is the flops of its linear layers and of attention, of which a row sees its whole text, at the register peak (limits_probe, between
two probes of which each job stands; where they differ by more than 10 % it runs again). Forebay's time is the job's, from the engine's first call to the last
commit, tokenizing and writing included; a peer's is that of its call, with the model loaded. Rounds take the engines in turns, and figures are
medians. Cosines are between a peer's first vectors and Forebay's. Bars stand below the table, each with what was found.
--short: some minutes of a slow machine, with lengths of the same distribution: 1,000 texts of the small shape and 50 of the large one, one round.
--quick: 400 texts of the small shape, one round.
"""
import argparse
import csv
import json
import math
import operator
import os
import random
import statistics
import subprocess
import sys
import tempfile

from machine import Machine
from turns import machine

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MINILM = {
    "architectures": ["BertModel"], "model_type": "bert", "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 1,
}
BGE_M3 = {
    "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "vocab_size": 250002, "hidden_size": 1024, "num_hidden_layers": 24,
    "num_attention_heads": 16, "intermediate_size": 4096, "hidden_act": "gelu", "max_position_embeddings": 8194, "type_vocab_size": 1,
    "layer_norm_eps": 1e-5, "pad_token_id": 1,
}
MODELS = {"minilm": (MINILM, "mean_tokens"), "bge-m3": (BGE_M3, "cls_token")}
SHORT = {"minilm": 1000, "bge-m3": 50}  # texts
SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]


def write_json(value, *path):
    os.makedirs(os.path.join(*path[:-1]), exist_ok=True)
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        json.dump(value, file)


def write_model(folder, config, pooling):
    """Everything but weights. A token beside the special ones is the word "wN"."""
    write_json(config | {"torch_dtype": "bfloat16"}, folder, "config.json")
    module = lambda index, name, kind: {"idx": index, "name": str(index), "path": name, "type": f"sentence_transformers.models.{kind}"}
    write_json([module(0, "", "Transformer"), module(1, "1_Pooling", "Pooling"), module(2, "2_Normalize", "Normalize")], folder, "modules.json")
    kinds = {f"pooling_mode_{kind}": kind == pooling for kind in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")}
    write_json({"word_embedding_dimension": config["hidden_size"], **kinds}, folder, "1_Pooling", "config.json")
    write_json({"max_seq_length": 512, "do_lower_case": False}, folder, "sentence_bert_config.json")
    words = SPECIAL + [f"w{i}" for i in range(config["vocab_size"] - len(SPECIAL))]
    added = [{"id": i, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, token in enumerate(SPECIAL)]
    write_json({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": False},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 0]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {word: i for i, word in enumerate(words)}},
    }, folder, "tokenizer.json")
    names = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL}
    write_json({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, **names}, folder, "tokenizer_config.json")


def lengths(count):
    """Tokens of each text, in the order of the job: of all texts by length, evenly many."""
    with open(os.path.join(ROOT, "bench", "embedding_lengths.csv"), encoding="utf-8") as file:
        every = [int(row["tokens"]) for row in csv.DictReader(file) for _ in range(int(row["texts"]))]
    chosen = [every[(2 * i + 1) * len(every) // (2 * count)] for i in range(count)]
    random.Random(3).shuffle(chosen)
    return chosen


def flops(config, tokens):
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    matrices = layers * (4 * hidden * hidden + 2 * hidden * config["intermediate_size"])
    return sum(2 * matrices * n + 4 * layers * hidden * n * n for n in tokens)


def cosine(a, b):
    dot = lambda x, y: math.fsum(map(operator.mul, x, y))
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def bars(name, limit, times, cosines):
    """Rows of what is wanted of a shape; a peer that did not run has none. `times`: seconds of each way, `cosines` the least of each peer."""
    own = times["forebay"]
    rows = [("share of the limit", 0.75, limit / own)]
    sentence = [seconds for peer, seconds in times.items() if peer.startswith("sentence")]
    if sentence:
        rows.append(("rate by sentence-transformers', its better type", 2, min(sentence) / own))
    others = [times[peer] for peer in ("vllm", "openvino") if peer in times]
    if others:
        rows.append(("rate by the better of " + " and ".join(peer for peer in ("vllm", "openvino") if peer in times), 1.25, min(others) / own))
    rows += [(f"least cosine to {peer}", 0.9995, least) for peer, least in cosines.items()]
    for what, wanted, found in rows:
        yield f"| {name} | {what} | {wanted:g} | {found:.4g} | {'yes' if found >= wanted else 'no'} |"


class Bench:
    def __init__(self, args, folder, name):
        self.args, self.folder = args, folder
        self.config, pooling = MODELS[name]
        self.model = os.path.join(folder, name)
        write_model(self.model, self.config, pooling)
        self.tokens = lengths(SHORT[name] if args.short else args.texts)
        draw = random.Random(5)
        words = self.config["vocab_size"] - len(SPECIAL)
        self.texts = [" ".join(f"w{draw.randrange(words)}" for _ in range(n - 2)) for n in self.tokens]
        write_json(self.texts, self.model, "texts.json")
        self.input, self.output, self.summary = (f"{self.model}.{file}" for file in ("in.jsonl", "out.jsonl", "summary.json"))
        with open(self.input, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"input": text}) + "\n" for text in self.texts)
        self.vectors = {}
        if args.peers:
            self.worker(args.peers[0], "--make")

    def forebay(self):
        if os.path.exists(self.output):
            os.remove(self.output)
        weights = [] if self.args.peers else ["--random-weights"]
        subprocess.run([self.args.forebay, "run", "-m", self.model, "-i", self.input, "-o", self.output, "--summary", self.summary, "--threads",
                        str(self.args.threads), "--quiet", *weights], check=True)
        with open(self.summary, encoding="utf-8") as file:
            summary = json.load(file)
        self.ran = f"{summary['isa']}, class {summary['numerics_class']}"
        return summary["elapsed_time"]

    def worker(self, peer, *more):
        out = os.path.join(self.model, peer + ".json")
        python = os.path.join(ROOT, "build", "peers", peer.removesuffix("_fp32"), "bin", "python")
        done = subprocess.run([python, os.path.join(ROOT, "bench", "peers", "embed_worker.py"), peer, self.model, str(self.args.threads),
                               os.path.join(self.model, "texts.json"), out, *more], check=True, stdout=subprocess.PIPE, text=True)
        if more:
            return None
        with open(out, encoding="utf-8") as file:
            self.vectors[peer] = json.load(file)
        return json.loads(done.stdout.splitlines()[-1])["seconds"]

    def own_vectors(self, count):
        own = {}
        with open(self.output, encoding="utf-8") as file:
            for line in file:
                number = int(line.split("_", 3)[2])
                if number <= count:
                    own[number] = json.loads(line)["response"]["body"]["data"][0]["embedding"]
        return [own[number] for number in sorted(own)]

    def rows(self, name):
        ways = {"forebay": self.forebay} | {peer: lambda peer=peer: self.worker(peer) for peer in self.args.peers}
        times, probes = {way: [] for way in ways}, Machine(self.args.forebay, holds=("flops",))
        for _ in range(self.args.rounds):
            for way, run in ways.items():
                times[way].append(probes.steady(run))
        limit = flops(self.config, self.tokens) / probes.at_first[0]
        medians = {way: statistics.median(seconds) for way, seconds in times.items()}
        cosines = {peer: min(map(cosine, vectors, self.own_vectors(len(vectors)))) for peer, vectors in self.vectors.items()}
        rows = []
        for way, seconds in times.items():
            taken, least = medians[way], f"{cosines[way]:.6f}" if way in cosines else ""
            rows.append(f"| {name} | {way} | {taken:.2f} ({min(seconds):.2f}-{max(seconds):.2f}) | {len(self.tokens) / taken:.0f} | "
                        f"{sum(self.tokens) / taken:.0f} | {limit / taken:.2f} | {taken / medians['forebay']:.2f} | {least} |")
        return rows, list(bars(name, limit, medians, cosines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("--models", default="minilm,bge-m3")
    parser.add_argument("--texts", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peers", default="", help="of sentence, sentence_fp32, openvino, vllm; the first one writes the weights")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--short", action="store_true")
    sizes.add_argument("--quick", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.quick:
        args.models, args.texts = "minilm", 400
    if args.quick or args.short:
        args.rounds = 1
    args.peers = [peer for peer in args.peers.split(",") if peer]
    rows, wanted = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models.split(","):
            bench = Bench(args, folder, name)
            of_shape, of_bars = bench.rows(name)
            rows += of_shape
            wanted += of_bars
            ran = bench.ran
    texts = "1,000 and 50" if args.short else args.texts
    rows = [f"{texts} texts of 16 to 512 tokens, {args.threads} threads", "", f"{machine()}; {ran}", "",
            "| shape | engine | seconds | texts/s | tokens/s | share of the limit | times Forebay's | least cosine |", "|---|---|---|---|---|---|---|---|",
            *rows, "", "| shape | bar | wanted | found | met |", "|---|---|---|---|---|", *wanted]
    print("\n".join(rows))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            print("\n".join(rows), file=file)


if __name__ == "__main__":
    sys.exit(main())
