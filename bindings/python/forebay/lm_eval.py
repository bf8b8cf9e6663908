"""The engine as a model of PyPI's lm_eval: ``python -m forebay.lm_eval run --model forebay --model_args pretrained=MODEL --tasks ...``.

Importing this module registers it. Arguments of ``LLM`` may follow ``pretrained`` in ``--model_args``.
"""

from __future__ import annotations

from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from .llm import LLM
from .params import SamplingParams

# Of one line: the parser's bound, and tokens whose log probabilities take a third of what a line may take of memory.
_MOST_CONTINUATIONS, _MOST_TOKENS = 2048, 1 << 20


@register_model("forebay")
class ForebayLM(TemplateLM):
    """Likelihoods of continuations, and greedy or sampled texts. An answer never depends on the task's other requests."""

    def __init__(
        self, pretrained: str, max_gen_toks: int = 256, add_bos_token: bool | None = None, prefix_token_id: int | None = None, **arguments: Any
    ) -> None:
        """``add_bos_token``, ``prefix_token_id``: as in the harness's ``hf`` (texts begin as the tokenizer says, rolling ones after BOS, else EOS)."""
        super().__init__()
        # What the harness says to every model, and the engine chooses by itself.
        for name in ("batch_size", "max_batch_size", "device"):
            arguments.pop(name, None)
        self._llm = LLM(pretrained, **arguments)
        self.tokenizer = self._llm.get_tokenizer()
        self.pretrained, self.max_gen_toks = pretrained, max_gen_toks
        self._add_bos_token, self._prefix_token_id = add_bos_token, prefix_token_id
        self.max_length: int = self._llm.facts()["max_model_len"]

    @property
    def tokenizer_name(self) -> str:
        return self.pretrained.replace("/", "__")

    @property
    def eot_token_id(self) -> int:
        eos = self.tokenizer.eos_token_id
        assert eos is not None, "the tokenizer has no token with which texts end"
        return eos

    @property
    def prefix_token_id(self) -> int:
        if self._prefix_token_id is not None:
            return self._prefix_token_id
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else bos

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        if add_special_tokens is None:
            # A text that a chat template has written begins with its own BOS.
            begun = string.startswith(self.tokenizer.decode(self.prefix_token_id))
            add_special_tokens = not begun and self._add_bos_token is not False
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        text = self.tokenizer.apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt, continue_final_message=not add_generation_prompt
        )
        assert isinstance(text, str)
        return text

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        # Continuations of one context are one line, so that it is computed once.
        places: dict[tuple[int, ...], list[int]] = {}
        for index, (_text, context, continuation) in enumerate(requests):
            # As much of the context as there is room for, and one token at least.
            room = max(1, self.max_length - len(continuation))
            places.setdefault(tuple(context[-room:]), []).append(index)
        # Contexts that begin alike follow each other. Tasks whose context is empty have one for all of their requests.
        lines: list[tuple[tuple[int, ...], list[int]]] = []
        for asked in sorted(places):
            longest = max(len(requests[index][2]) for index in places[asked])
            most = max(1, min(_MOST_CONTINUATIONS, _MOST_TOKENS // (len(asked) + longest)))
            lines += [(asked, places[asked][begin : begin + most]) for begin in range(0, len(places[asked]), most)]
        outputs = self._llm.loglikelihood(
            [list(asked) for asked, _ in lines], [[requests[index][2] for index in indices] for _, indices in lines], use_tqdm=not disable_tqdm
        )
        results = [(0.0, False)] * len(requests)
        for (_context, indices), output in zip(lines, outputs):
            for index, likelihood in zip(indices, output.likelihoods):
                results[index] = (likelihood.logprob, likelihood.is_greedy)
                if requests[index][0] is not None:
                    self.cache_hook.add_partial("loglikelihood", requests[index][0], results[index])
        return results

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        windows: list[tuple[Any, list[int], list[int]]] = []
        owners: list[int] = []
        for index, request in enumerate(requests):
            rolling = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]), prefix_token=self.prefix_token_id, max_seq_len=self.max_length - 1, context_len=1
            )
            for context, continuation in map(make_disjoint_window, rolling):
                windows.append((None, context, continuation))
                owners.append(index)
        sums = [0.0] * len(requests)
        for owner, (logprob, _) in zip(owners, self._loglikelihood_tokens(windows, disable_tqdm)):
            sums[owner] += logprob
        for request, total in zip(requests, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return sums

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        prompts, params = [], []
        for request in requests:
            context, given = request.args
            asked = dict(given)
            until = asked.pop("until", None) or []
            stop = [until] if isinstance(until, str) else list(until)
            length = asked.pop("max_gen_toks", None) or self.max_gen_toks
            if not asked.pop("do_sample", asked.get("temperature", 0) > 0):
                asked["temperature"] = 0.0
            room = max(1, self.max_length - length)
            prompts.append(self.tok_encode(context)[-room:])
            params.append(SamplingParams(max_tokens=length, stop=[each for each in stop if each], **asked))
        outputs = self._llm.generate(prompts, params, use_tqdm=not disable_tqdm)
        texts = [output.outputs[0].text for output in outputs]
        for request, text in zip(requests, texts):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
