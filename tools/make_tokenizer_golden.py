#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/bert and unigram: tokenizers trained on this repository's pages, and
what PyPI tokenizers 0.23.3 (sentencepiece for the map of the second) says about texts.

    pip install tokenizers==0.23.3 sentencepiece protobuf && tools/make_tokenizer_golden.py
"""
import io
import json
import pathlib
import random

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = 1600
PAGES = ['ARCHITECTURE.md', 'docs/parallelism.md', 'docs/simulator.md']
LINES = [line for page in PAGES for line in (ROOT / page).read_text().split('\n')]
WORDS = ' '.join(LINES).split()
RANGES = [(0x20, 0x180), (0x370, 0x400), (0x1e00, 0x1f00), (0x2000, 0x2070), (0x2460, 0x2480),
          (0x3040, 0x3060), (0x4e00, 0x4e20), (0xac00, 0xac20), (0xff00, 0xff30), (0xfb00, 0xfb07)]
CHARS = [chr(c) for first, end in RANGES for c in range(first, end)] + list(
    '\t\n\r\u0301\u0308\u0327\u0323\u3099\ufffd\u00ad\u200b\u200d\ufe0f\U0001f468\U0001f469')


def text(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return ' '.join(rng.choices(WORDS, k=rng.randrange(12)))
    if kind == 1:
        return ''.join(rng.choices(CHARS, k=rng.randrange(20)))
    if kind == 2:
        return ''.join(rng.choice([rng.choice(WORDS), rng.choice(CHARS), ' ', '  '])
                       for _ in range(rng.randrange(16)))
    return rng.choice(WORDS) * rng.randrange(1, 12)


def small_map():
    """A map as sentencepiece compiles it, of a few rules in place of NFKC's thousands."""
    rules = {'\u00c4': 'A\u0308', '\uff21': 'A', '\ufb01': 'fi', '\u3000': ' ', '\t': ' ',
             'e\u0301': '\u00e9', '\u200b': '', '\u2460': '1'}
    tsv = pathlib.Path('/tmp/rules.tsv')
    tsv.write_text(''.join(
        '%s\t%s\n' % (' '.join('%X' % ord(c) for c in a), ' '.join('%X' % ord(c) for c in b))
        for a, b in rules.items()))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, vocab_size=300, hard_vocab_limit=False,
        normalization_rule_tsv=str(tsv), minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token='[UNK]'))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(LINES, trainers.WordPieceTrainer(
        vocab_size=1200, special_tokens=['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']))
    tokenizer.post_processor = processors.BertProcessing(('[SEP]', 3), ('[CLS]', 2))
    return tokenizer


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(small_map()), normalizers.Replace(Regex(' {2,}'), ' ')])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(LINES, trainers.UnigramTrainer(
        vocab_size=1200, special_tokens=['<s>', '<pad>', '</s>', '<unk>'], unk_token='<unk>'))
    tokenizer.post_processor = processors.RobertaProcessing(('</s>', 2), ('<s>', 0))
    return tokenizer


def main():
    for name, tokenizer in (('bert', bert()), ('unigram', unigram())):
        rng = random.Random(name)
        folder = ROOT / 'tests/golden/tokenizers' / name
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / 'tokenizer.json'), pretty=False)
        with open(folder / 'cases.jsonl', 'w') as out:
            for _ in range(CASES):
                given = text(rng)
                ids = tokenizer.encode(given, add_special_tokens=False).ids
                whole = tokenizer.encode(given).ids
                case = {'text': given, 'ids': ids, 'pre': whole[:1], 'post': whole[1 + len(ids):]}
                decoded, skipped = tokenizer.decode(ids, False), tokenizer.decode(ids, True)
                if decoded != given:
                    case['decoded'] = decoded
                if skipped != decoded:
                    case['decoded_skip'] = skipped
                out.write(json.dumps(case, ensure_ascii=False) + '\n')


if __name__ == '__main__':
    main()
