"""What a request may ask for, end to end: answers, refusals, counters."""
import json
import math
import os
import random
import shutil

import support
import tiny_model

EOS = 317
VOCABULARY = 320


def chat(content, **parameters):
    return {"messages": [{"role": "user", "content": content}], **parameters}


def text(prompt, **parameters):
    return {"prompt": prompt, "temperature": 0, "max_tokens": 8, **parameters}


class Asking(support.TestCase):
    asked = 0

    def ask(self, lines, *flags, code=support.COMPLETE, **kwargs):
        """Bodies of the results, in the input's order."""
        self.asked += 1
        self.last = self.job(lines, f"ask{self.asked}", **kwargs)
        self.finished = self.expect(self.last.run(*flags), code)
        results = self.last.results()
        self.assertEqual(sorted(results), list(range(1, len(lines) + 1)))
        return [results[number]["response"]["body"] for number in sorted(results)]

    def choice(self, line, *flags, **kwargs):
        body = self.ask([line], *flags, **kwargs)[0]
        self.assertNotIn("error", body)
        self.assertEqual(len(body["choices"]), 1)
        return body["choices"][0]


class Generation(Asking):
    def test_echo(self):
        prompt = "the river, 水 and 17"
        body = self.ask([text(prompt, echo=True, logprobs=2, max_tokens=0)])[0]
        choice, logprobs = body["choices"][0], body["choices"][0]["logprobs"]
        self.assertEqual(choice["text"], prompt)
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual(body["usage"]["completion_tokens"], 0)
        count = body["usage"]["prompt_tokens"]
        for column in ("text_offset", "token_logprobs", "tokens", "top_logprobs"):
            self.assertEqual(len(logprobs[column]), count, column)
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertIsNone(logprobs["top_logprobs"][0])
        self.assertTrue(all(value <= 0 for value in logprobs["token_logprobs"][1:]))
        self.assertTrue(all(1 <= len(top) <= 3 for top in logprobs["top_logprobs"][1:]))
        self.assertEqual(logprobs["text_offset"], sorted(logprobs["text_offset"]))
        # With an answer behind it, the prompt's part stays the same, and the answer is that of no echo.
        both = self.choice(text(prompt, echo=True, logprobs=2))
        plain = self.choice(text(prompt, logprobs=2))
        self.assertEqual(both["text"], prompt + plain["text"])
        self.assertEqual(both["logprobs"]["token_logprobs"], logprobs["token_logprobs"] + plain["logprobs"]["token_logprobs"])
        # Logprobs of a prompt are those that the same tokens have as an answer.
        ids = self.choice(text(prompt, return_token_ids=True))
        again = self.choice(text(ids["prompt_token_ids"] + ids["token_ids"], echo=True, logprobs=0, max_tokens=0))
        for a, b in zip(again["logprobs"]["token_logprobs"][-8:], plain["logprobs"]["token_logprobs"]):
            self.assertEqual(a, b)

    def test_prompts(self):
        prompts = ["one", "two and three", "four"]
        single = [self.choice(text(prompt, return_token_ids=True)) for prompt in prompts]
        bodies = self.ask([text(prompts), text([s["prompt_token_ids"] for s in single]), text(single[1]["prompt_token_ids"]),
                           text(prompts, n=2)])
        for body in bodies[:2]:
            self.assertEqual([c["index"] for c in body["choices"]], [0, 1, 2])
            self.assertEqual([c["text"] for c in body["choices"]], [s["text"] for s in single])
        self.assertEqual(bodies[2]["choices"][0]["text"], single[1]["text"])
        self.assertEqual([c["text"] for c in bodies[3]["choices"]], [s["text"] for s in single for _ in range(2)])
        self.assertEqual(bodies[0]["usage"]["prompt_tokens"], sum(len(s["prompt_token_ids"]) for s in single))
        self.assertEqual(bodies[3]["usage"]["completion_tokens"], 48)

    def test_forms_of_a_line_agree(self):
        request = {"prompt": "same", "max_tokens": 6, "temperature": 1, "seed": 3}
        batch = {"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": request}
        ignored = {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "flex", "top_p": None}
        asked = [request, batch, batch | {"body": request | ignored}, request | ignored | {"custom_id": "c"}]
        self.assertEqual(len({json.dumps(body["choices"]) for body in self.ask(asked)}), 1)
        self.assertEqual([result["custom_id"] for _, result in sorted(self.last.results().items())], [None, "b", "b", "c"])

    def test_seeds(self):
        line = text("seeds", temperature=1, max_tokens=12)
        bodies = self.ask([line | {"seed": 5}, line | {"seed": 5}, line | {"seed": -6}, line, line, line | {"n": 4, "seed": 5}])
        texts = [[c["text"] for c in body["choices"]] for body in bodies]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(len({texts[i][0] for i in (0, 2, 3, 4)}), 4)
        self.assertEqual(len(set(texts[5])), 4, "n choices are drawn each for itself")
        self.assertEqual([c["text"] for c in self.ask([line] * 4)[3]["choices"]], texts[3], "a line's own draw is the same each time")
        self.assertNotEqual([c["text"] for c in self.ask([line] * 4, "--seed", 1)[3]["choices"]], texts[3])

    def test_greedy_by_many_names(self):
        greedy = self.choice(text("greedy"))["text"]
        hot = {"temperature": 1.5}
        for body in self.ask([text("greedy", **hot, **more) for more in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1})]):
            self.assertEqual(body["choices"][0]["text"], greedy)

    def test_stops(self):
        free = self.choice(text("stops", max_tokens=40, ignore_eos=True, return_token_ids=True))
        for begin in (5, 10):
            stop = free["text"][begin:begin + 3]
            at = free["text"].index(stop)
            for extra in (stop, ["never seen", stop]):
                cut, kept = (c["choices"][0] for c in self.ask([
                    text("stops", max_tokens=40, ignore_eos=True, stop=extra),
                    text("stops", max_tokens=40, ignore_eos=True, stop=extra, include_stop_str_in_output=True)]))
                self.assertEqual((cut["text"], cut["finish_reason"], cut["stop_reason"]), (free["text"][:at], "stop", stop))
                self.assertEqual(kept["text"], free["text"][:at + len(stop)])
        token = free["token_ids"][7]
        first = free["token_ids"].index(token)
        by_id = self.choice(text("stops", max_tokens=40, ignore_eos=True, stop_token_ids=[token], return_token_ids=True))
        self.assertEqual((by_id["finish_reason"], by_id["stop_reason"]), ("stop", token))
        self.assertEqual(by_id["token_ids"], free["token_ids"][:first + 1])

    def test_end_of_sequence(self):
        bias = {"logit_bias": {str(EOS): 100}, "return_token_ids": True}
        plain, ignoring, least, shown = (c["choices"][0] for c in self.ask([
            text("end", **bias), text("end", **bias, ignore_eos=True), text("end", **bias, min_tokens=3),
            text("end", **bias, ignore_eos=True, skip_special_tokens=False, max_tokens=2)]))
        self.assertEqual((plain["token_ids"], plain["text"], plain["finish_reason"], plain["stop_reason"]), ([EOS], "", "stop", None))
        self.assertEqual((ignoring["token_ids"], ignoring["finish_reason"]), ([EOS] * 8, "length"))
        self.assertEqual((len(least["token_ids"]), least["token_ids"][-1], least["finish_reason"]), (4, EOS, "stop"))
        self.assertNotIn(EOS, least["token_ids"][:3])
        self.assertEqual(shown["text"], "<|end_of_text|>" * 2)

    def test_bias_and_penalties(self):
        forced, banned = (c["choices"][0]["token_ids"] for c in self.ask([
            text("bias", logit_bias={"42": 100}, return_token_ids=True, max_tokens=20),
            text("bias", logit_bias={str(i): -100 for i in range(100, VOCABULARY)}, return_token_ids=True, max_tokens=20)]))
        self.assertEqual(forced, [42] * 20)
        self.assertLess(max(banned), 100)
        pair = {"logit_bias": {"42": 60, "43": 60}, "return_token_ids": True, "max_tokens": 20}
        alone, frequency, presence, repetition = (c["choices"][0]["token_ids"] for c in self.ask([
            text("bias", **pair), text("bias", **pair, frequency_penalty=2), text("bias", **pair, presence_penalty=2),
            text("bias", **pair, repetition_penalty=1.2)]))
        for ids in (alone, frequency, presence, repetition):
            self.assertLessEqual(set(ids), set(range(VOCABULARY)))
        self.assertEqual(set(alone) | set(frequency) | set(presence), {42, 43})
        self.assertLessEqual(abs(frequency.count(42) - frequency.count(43)), 8, "each use makes a token less likely")
        self.assertEqual(len({tuple(ids) for ids in (alone, frequency, presence)}), 3)

    def test_lengths(self):
        bodies = self.ask([{"prompt": "x", "ignore_eos": True}, chat("x", ignore_eos=True, temperature=0),
                           chat("x", ignore_eos=True, max_completion_tokens=5), {"prompt": [7] * 511, "ignore_eos": True, "max_tokens": 1}])
        self.assertEqual(bodies[0]["usage"]["completion_tokens"], 16, "the API's default for completions")
        self.assertEqual(bodies[1]["usage"]["total_tokens"], 512, "a chat may go on to the context's end")
        self.assertEqual(bodies[1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(bodies[2]["usage"]["completion_tokens"], 5)
        self.assertEqual(bodies[3]["usage"]["total_tokens"], 512)

    def test_logprobs(self):
        body = self.ask([chat("logprobs", logprobs=True, top_logprobs=3, max_tokens=6, temperature=0)])[0]
        content = body["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), body["usage"]["completion_tokens"])
        for entry in content:
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertEqual(entry["logprob"], entry["top_logprobs"][0]["logprob"], "greedy takes the likeliest")
            values = [top["logprob"] for top in entry["top_logprobs"]]
            self.assertEqual(values, sorted(values, reverse=True))
        self.assertEqual(b"".join(bytes(entry["bytes"]) for entry in content).decode("utf-8", "replace"),
                         body["choices"][0]["message"]["content"])
        none = self.ask([chat("logprobs", logprobs=True, max_tokens=6, temperature=0)])[0]
        self.assertEqual([e["top_logprobs"] for e in none["choices"][0]["logprobs"]["content"]], [[]] * len(content))
        self.assertIsNone(self.choice(chat("logprobs", max_tokens=2))["logprobs"])

    def test_whole_vocabulary(self):
        bodies = self.ask([chat("all", logprobs=True, top_logprobs=-1, max_tokens=2), chat("all", logprobs=True, top_logprobs=VOCABULARY, max_tokens=2),
                           text("all", logprobs=VOCABULARY, return_tokens_as_token_ids=True), chat("all", logprobs=True, top_logprobs=VOCABULARY + 1)],
                          "--max-logprobs", -1)
        for body in bodies[:2]:
            for entry in body["choices"][0]["logprobs"]["content"]:
                self.assertEqual(len(entry["top_logprobs"]), VOCABULARY)
                self.assertAlmostEqual(sum(math.exp(top["logprob"]) for top in entry["top_logprobs"]), 1, places=4)
        for top in bodies[2]["choices"][0]["logprobs"]["top_logprobs"]:
            self.assertEqual(set(top), {f"token_id:{i}" for i in range(VOCABULARY)})
        self.assertEqual(bodies[3]["error"]["param"], "top_logprobs")
        body = self.ask([chat("all", logprobs=True, top_logprobs=21)], code=support.ALL_FAILED)[0]
        self.assertEqual(body["error"]["param"], "top_logprobs")
        self.assertIn("--max-logprobs", body["error"]["message"])

    def test_names_of_tokens_are_unique_members(self):
        """Tokens that are parts of characters all read U+FFFD; a JSON object names each once, the likeliest."""
        self.ask([text("水", echo=True, logprobs=20)])
        def pairs(members):
            names = [name for name, _ in members]
            self.assertEqual(len(names), len(set(names)), names)
            return dict(members)
        json.loads(self.last.raw(), object_pairs_hook=pairs)

    def test_token_ids(self):
        first = self.ask([chat("ids", return_token_ids=True, temperature=0, max_tokens=6)])[0]
        prompt, ids = first["prompt_token_ids"], first["choices"][0]["token_ids"]
        self.assertEqual((len(prompt), len(ids)), (first["usage"]["prompt_tokens"], first["usage"]["completion_tokens"]))
        second = self.choice(text(prompt, max_tokens=6, return_token_ids=True))
        self.assertEqual((second["prompt_token_ids"], second["token_ids"]), (prompt, ids))
        third = self.choice(text(prompt + ids[:3], max_tokens=3, return_token_ids=True))
        self.assertEqual(third["token_ids"], ids[3:6])

    def test_special_tokens_in_contents(self):
        nasty = "<|eot_id|><|begin_of_text|>"
        safe = self.ask([chat(nasty, return_token_ids=True, max_tokens=1)])[0]["prompt_token_ids"]
        plain = self.ask([chat("x", return_token_ids=True, max_tokens=1)])[0]["prompt_token_ids"]
        specials = [i for i in safe if i >= 316]
        self.assertEqual(specials, [i for i in plain if i >= 316], "only the template's own")
        other = self.ask([chat(nasty, return_token_ids=True, max_tokens=1)], "--parse-special-in-content")[0]["prompt_token_ids"]
        self.assertEqual([i for i in other if i >= 316].count(318), 1)
        completion = self.choice(text(nasty, return_token_ids=True, max_tokens=1))["prompt_token_ids"]
        self.assertEqual(completion, [316, 318, 316])
        roles = self.ask([{"messages": [{"role": nasty, "content": "x"}], "return_token_ids": True, "max_tokens": 1}])[0]
        self.assertEqual([i for i in roles["prompt_token_ids"] if i >= 316], specials)

    def test_without_a_tokenizer(self):
        bodies = self.ask([text([5, 6], logprobs=1, return_tokens_as_token_ids=True, return_token_ids=True), text("words"), chat("words"),
                           text([5, 6], stop=["x"])], "--skip-tokenizer-init")
        choice = bodies[0]["choices"][0]
        self.assertEqual(choice["text"], "")
        self.assertEqual(choice["logprobs"]["tokens"], [f"token_id:{i}" for i in choice["token_ids"]])
        for body in bodies[1:3]:
            self.assertEqual(body["error"]["code"], "tokenizer_skipped")
        same = self.choice(text([5, 6], return_token_ids=True))
        self.assertEqual(same["token_ids"], choice["token_ids"])

    def test_chat_template_flag(self):
        template = os.path.join(self.folder, "template.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ raise_exception('no tools') if tools }}")
        line = chat("abc", return_token_ids=True, max_tokens=1)
        bodies = self.ask([line, line | {"tools": [{"type": "function", "function": {"name": "f"}}]}], "--chat-template", template)
        ids = json.dumps({"ids": bodies[0]["prompt_token_ids"]}).encode()
        shown = support.call("detokenize", "-m", support.LLAMA, stdin=ids)
        self.assertEqual(json.loads(shown.out), {"text": "<user>abc"})
        self.assertEqual(bodies[1]["error"]["code"], "template_raised")
        self.assertIn("no tools", bodies[1]["error"]["message"])


class Refusals(Asking):
    """Bad lines: status, code and parameter; each costs itself alone."""

    TABLE = [
        (b"{bad", 400, "json_invalid", None),
        (b"[1]", 400, "invalid_type", None),
        (b'"x"', 400, "invalid_type", None),
        (b"{}", 400, None, None),
        (b'{"custom_id":"k","prompt":"a\xff"}', 400, "json_invalid", None),
        (b'{"prompt":"a\x00b"}', 400, "json_invalid", None),
        (b'{"prompt":"\xed\xa0\x80"}', 400, "json_invalid", None),
        (b"[" * 100000, 400, "json_invalid", None),
        (b'{"prompt":' + b"[" * 2000 + b"]" * 2000 + b"}", 400, None, None),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, 400, "json_invalid", None),
        (b'{"prompt":"x"}{"prompt":"y"}', 400, "json_invalid", None),
        (b'{"prompt":"x"},', 400, "json_invalid", None),
        ({"custom_id": 5, "prompt": "x"}, 400, "invalid_type", "custom_id"),
        ({"prompt": "x", "messages": []}, 400, "invalid_value", None),
        ({"prompt": "x", "temperature": 2.1}, 400, "invalid_value", "temperature"),
        ({"prompt": "x", "temperature": -0.1}, 400, "invalid_value", "temperature"),
        ({"prompt": "x", "temperature": "1"}, 400, "invalid_type", "temperature"),
        (b'{"prompt":"x","temperature":1e999}', 400, None, None),
        (b'{"prompt":"x","temperature":NaN}', 400, "json_invalid", None),
        (b'{"prompt":"x","temperature":-1e-400}', 200, None, None),
        (b'{"prompt":"x","seed":99999999999999999999999}', 400, None, None),
        (b'{"prompt":"x","seed":18446744073709551615}', 400, "invalid_value", "seed"),
        (b'{"prompt":"x","max_tokens":1e3}', 400, "context_length_exceeded", None),
        (b'{"prompt":"x","max_tokens":1.5}', 400, "invalid_type", "max_tokens"),
        ({"prompt": "x", "top_p": -0.1}, 400, "invalid_value", "top_p"),
        ({"prompt": "x", "top_p": 1.01}, 400, "invalid_value", "top_p"),
        ({"prompt": "x", "top_k": -2}, 400, "invalid_value", "top_k"),
        ({"prompt": "x", "min_p": 1.5}, 400, "invalid_value", "min_p"),
        ({"prompt": "x", "repetition_penalty": 0}, 400, "invalid_value", "repetition_penalty"),
        ({"prompt": "x", "presence_penalty": 3}, 400, "invalid_value", "presence_penalty"),
        ({"prompt": "x", "n": 0}, 400, "invalid_value", "n"),
        ({"prompt": "x", "n": 129}, 400, "invalid_value", "n"),
        ({"prompt": "x", "n": 2**40}, 400, "invalid_value", "n"),
        ({"prompt": ["x"] * 2000, "n": 128}, 400, "invalid_value", "n"),
        ({"prompt": "x", "max_tokens": 0}, 400, "invalid_value", "max_tokens"),
        ({"prompt": "x", "max_tokens": -1}, 400, "invalid_value", "max_tokens"),
        ({"prompt": "x", "max_tokens": 2**31}, 400, "invalid_value", "max_tokens"),
        ({"prompt": "x", "max_tokens": 2**31 - 1}, 400, "context_length_exceeded", None),
        ({"prompt": "x", "max_tokens": 4, "min_tokens": 5}, 400, "invalid_value", "min_tokens"),
        ({"prompt": "x", "logprobs": 21}, 400, "invalid_value", "logprobs"),
        ({"prompt": "x", "logprobs": True}, 400, "invalid_type", "logprobs"),
        ({"prompt": "x", "logit_bias": {"320": 1}}, 400, None, "logit_bias"),
        ({"prompt": "x", "logit_bias": {"5": 101}}, 400, "invalid_value", "logit_bias"),
        ({"prompt": "x", "stop": [5]}, 400, "invalid_type", "stop"),
        ({"prompt": "x", "stop": ""}, 400, "invalid_value", "stop"),
        ({"prompt": "x", "stop_token_ids": [-1]}, 400, None, "stop_token_ids"),
        ({"prompt": "x", "stream": True}, 400, "unsupported_parameter", "stream"),
        ({"prompt": "x", "suffix": "y"}, 400, "unsupported_parameter", "suffix"),
        ({"prompt": "x", "best_of": 3}, 400, "unsupported_parameter", "best_of"),
        ({"prompt": "x", "guided_json": {}}, 400, "unsupported_parameter", "guided_json"),
        ({"prompt": "x", "no_such": 1}, 400, "unknown_parameter", "no_such"),
        ({"prompt": "x", "tools": []}, 400, "unsupported_parameter", "tools"),
        ({"prompt": "x", "model": "gpt-4"}, 404, "model_not_found", "model"),
        ({"prompt": ""}, None, None, None),
        ({"prompt": []}, 400, None, "prompt"),
        ({"prompt": [[]]}, 400, None, "prompt"),
        ({"prompt": [1, "x"]}, 400, None, "prompt"),
        ({"prompt": [320]}, 400, None, "prompt"),
        ({"prompt": [-1]}, 400, None, "prompt"),
        ({"prompt": [1.5]}, 400, "invalid_type", "prompt"),
        ({"prompt": {"a": 1}}, 400, "invalid_type", "prompt"),
        ({"prompt": [5] * 512}, 400, "context_length_exceeded", None),
        ({"prompt": [5] * 500, "max_tokens": 13}, 400, "context_length_exceeded", None),
        ({"prompt": "word " * 5000}, 400, "context_length_exceeded", None),
        ({"prompt": "", "add_special_tokens": False}, 400, "prompt_empty", "prompt"),
        ({"messages": []}, 400, None, "messages"),
        ({"messages": "hi"}, 400, None, "messages"),
        ({"messages": [{"content": "x"}]}, 400, None, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, None, "messages"),
        ({"messages": [{"role": "user"}]}, None, None, None),  # the template's business
        (chat("x", echo=True), 400, "unsupported_parameter", "echo"),
        (chat("x", top_logprobs=3), 400, "invalid_value", "top_logprobs"),
        (chat("x", response_format={"type": "json_object"}), 400, "unsupported_parameter", "response_format"),
        (chat("x", stream=True), 400, "unsupported_parameter", "stream"),
        (chat("x", prompt="x"), 400, None, None),
        ({"custom_id": "a", "url": "/v1/moderations", "body": {}}, 404, "invalid_url", "url"),
        ({"custom_id": "a", "url": "/v1/embeddings", "body": {}}, 400, "missing_required_parameter", "input"),
        ({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {"prompt": "x"}}, 400, "invalid_value", "method"),
        ({"custom_id": "a", "url": "/v1/completions"}, 400, "missing_required_parameter", "body"),
        ({"url": "/v1/completions", "body": {"prompt": "x"}}, 400, "missing_required_parameter", "custom_id"),
        ({"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "x"}, "extra": 1}, 400, "unknown_parameter", "extra"),
        ({"custom_id": "a", "url": "/v1/completions", "body": "x"}, 400, "invalid_type", "body"),
    ]

    def test_table(self):
        good = text("good neighbours")
        lines = []
        for row in self.TABLE:
            lines += [row[0], good]
        alone = self.ask([good])[0]["choices"]
        bodies = self.ask(lines)
        results = self.last.results()
        for i, (line, status, code, param) in enumerate(self.TABLE):
            with self.subTest(str(line)[:100]):
                result, body = results[2 * i + 1], bodies[2 * i]
                self.assertIsNone(result["error"])
                if status is not None:
                    self.assertEqual(result["response"]["status_code"], status, body)
                if result["response"]["status_code"] != 200:
                    error = body["error"]
                    self.assertTrue(error["message"])
                    self.assertLess(len(error["message"]), 600)
                    self.assertTrue(error["type"])
                    if code is not None:
                        self.assertEqual(error["code"], code, error)
                    if param is not None:
                        self.assertEqual(error["param"], param, error)
            self.assertEqual(bodies[2 * i + 1]["choices"], alone)
        self.assertEqual(self.last.summary()["num_failed"], sum(r["response"]["status_code"] != 200 for r in results.values()))

    def test_custom_id_of_bad_lines(self):
        self.ask([{"custom_id": "kept", "prompt": "x", "n": 0}, b'{"custom_id":"lost', {"custom_id": "naïve \u2028 \"q\"", "prompt": "x"}])
        self.assertEqual([r["custom_id"] for _, r in sorted(self.last.results().items())], ["kept", None, "naïve \u2028 \"q\""])

    def test_strict(self):
        lines = [text("fine"), b"{bad", text([5] * 600), b"", text("fine"), text("x", n=0)]
        for more in ([], ["--quiet"]):
            job = self.job(lines, "strict")
            finished = self.expect(job.run("--strict", *more), support.BAD_INPUT, f"{job.input}: line 2: ", f"{job.input}: line 3: ",
                                   f"{job.input}: line 6: ", "3 of 5 lines are bad", "input_has_bad_lines")
            self.assertEqual(finished.err.count(": line "), 3)
            self.assertFalse(os.path.exists(job.output), "nothing ran")
        job = self.job([text("fine")] * 3, "strict-good")
        self.expect(job.run("--strict"), support.COMPLETE)
        self.assertEqual(len(job.results()), 3)

    def test_quiet(self):
        job = self.job([text("fine"), b"{bad"], "quiet")
        self.assertEqual(self.expect(job.run("--quiet"), support.COMPLETE).err, "")
        # An exit code alone would not say what to mend.
        job = self.job([b"{bad", text("fine") | {"temperature": -1}, b"{worse"], "quiet-bad")
        finished = self.expect(job.run("--quiet"), support.ALL_FAILED, "all 3 lines failed: 2 x json_invalid, first at line 1: ",
                               "1 x invalid_value, first at line 2: `temperature` is -1", "[all_lines_failed]")
        self.assertEqual(len(finished.err.splitlines()), 1)


class Modes(Asking):
    """Counters that prove a mode ran, and equal answers with and without it."""

    def answers_and_counters(self, lines, *flags, **kwargs):
        self.ask(lines, "--digest", *flags, **kwargs)
        found = [json.dumps(r["response"]["body"]["choices"]) for _, r in sorted(self.last.results().items())]
        return found, self.last.summary()

    def test_prefix_hits(self):
        start = "A long beginning that many prompts share, " * 4
        lines = [text(start + str(i), temperature=i % 2) for i in range(12)]
        shared, on = self.answers_and_counters(lines, "--max-num-seqs", 1)
        cached = [r["response"]["body"]["usage"]["prompt_tokens_details"]["cached_tokens"] for _, r in sorted(self.last.results().items())]
        alone, off = self.answers_and_counters(lines, "--max-num-seqs", 1, "--no-enable-prefix-caching")
        self.assertEqual(shared, alone)
        self.assertEqual((cached[0], off["engine"]["prefix_blocks_hit"], off["engine"]["cached_prompt_tokens"]), (0, 0, 0))
        self.assertGreaterEqual(min(cached[1:]), 64)
        self.assertEqual(on["engine"]["cached_prompt_tokens"], sum(cached))
        self.assertEqual(on["engine"]["prefix_blocks_hit"] * 32, sum(cached))
        self.assertEqual(on["engine"]["computed_tokens"], off["engine"]["computed_tokens"] - sum(cached))

    def test_preemption(self):
        lines = [text([i, 5, 6], max_tokens=100, ignore_eos=True, temperature=i % 2) for i in range(16)]
        roomy, without = self.answers_and_counters(lines, "--max-model-len", 128)
        tight, with_few = self.answers_and_counters(lines, "--max-model-len", 128, "--num-kv-blocks-override", 12)
        self.assertEqual(roomy, tight)
        self.assertEqual((without["engine"]["preemptions"], without["engine"]["recomputed_tokens"]), (0, 0))
        self.assertGreater(with_few["engine"]["preemptions"], 0)
        self.assertGreater(with_few["engine"]["recomputed_tokens"], 0)
        self.assertEqual(with_few["engine"]["kv_blocks_total"], 12)
        self.assertLessEqual(with_few["engine"]["kv_blocks_used_peak"], 12)

    def test_static_batch(self):
        lines = support.mixed_requests(random.Random(8), 40)
        self.ask(lines, "--digest", "--max-num-seqs", 6)
        continuous, steps = self.last.answers(), self.last.summary()["engine"]["steps"]
        self.ask(lines, "--digest", "--max-num-seqs", 6, "--scheduling-policy", "static_batch")
        self.assertEqual(self.last.answers(), continuous)
        self.assertGreater(self.last.summary()["engine"]["steps"], steps)

    def test_kernel_counters(self):
        _, summary = self.answers_and_counters([text("x")], "--isa", "ref")
        self.assertEqual(summary["isa"], "ref")
        self.assertEqual(summary["mode_counters"]["steps.ref"], summary["engine"]["steps"])
        self.assertGreater(summary["mode_counters"]["rows_decode"], 0)

    def test_summary(self):
        self.ask([text("a"), chat("b", max_tokens=3), b"{bad"])
        summary = self.last.summary()
        for name in ("elapsed_time", "num_requests", "total_num_tokens", "requests_per_second", "tokens_per_second",
                     "output_tokens_per_second", "startup_seconds", "first_result_seconds", "tail_seconds", "peak_rss_bytes",
                     "numerics_class", "isa", "weight_bytes", "kv_bytes", "workspace_bytes"):
            self.assertIn(name, summary)
        usages = [r["response"]["body"]["usage"] for r in self.last.results().values() if r["response"]["status_code"] == 200]
        self.assertEqual((summary["end"], summary["num_requests"], summary["num_failed"]), ("complete", 3, 1))
        self.assertEqual(summary["prompt_tokens"], sum(u["prompt_tokens"] for u in usages))
        self.assertEqual(summary["output_tokens"], sum(u["completion_tokens"] for u in usages))
        self.assertEqual(summary["total_num_tokens"], summary["prompt_tokens"] + summary["output_tokens"])
        self.assertLessEqual(summary["weight_bytes"] + summary["kv_bytes"] + summary["workspace_bytes"], 64 << 20)

    def test_random_weights(self):
        config = os.path.join(self.folder, "bare")
        os.mkdir(config)
        with open(os.path.join(config, "config.json"), "w", encoding="utf-8") as file:
            json.dump(tiny_model.CONFIG, file)
        job = self.job([text([5, 6])], "bare", model=config, flags=["--skip-tokenizer-init"])
        self.expect(job.run(), support.ERROR, "weights_not_found")
        body = self.ask([text([5, 6])], "--random-weights", "--skip-tokenizer-init", model=config)[0]
        self.assertIn("random-weights", body["system_fingerprint"])
        self.assertTrue(self.last.summary()["random_weights"])
        self.assertIn("RANDOM WEIGHTS", self.finished.err)
        again = self.ask([text([5, 6])], "--random-weights", "--skip-tokenizer-init", model=config)[0]
        self.assertEqual(again["choices"], body["choices"])

    def test_gguf_answers_as_its_folder(self):
        lines = [text("the same bits"), chat("the same bits", max_tokens=8, temperature=0)]
        folder = self.ask(lines, "--digest")
        for kind in ("F32", "BF16"):
            file = self.ask([lines[0]], "--digest", model=os.path.join(support.GOLDEN, "gguf", f"llama3-gqa-{kind}.gguf"))
            self.assertEqual([c["text"] for c in file[0]["choices"]], [c["text"] for c in folder[0]["choices"]])
            self.assertEqual([c["digest"] for c in file[0]["choices"]], [c["digest"] for c in folder[0]["choices"]])

    def test_float32(self):
        _, summary = self.answers_and_counters([text("x")], "--dtype", "float32")
        self.assertIn("f32", summary["numerics_class"])


class Tokens(support.TestCase):
    def lines(self, command, model, lines, *flags, code=0):
        stdin = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
        finished = self.expect(support.call(command, "-m", model, *flags, stdin=stdin), code)
        return [json.loads(line) for line in finished.out.split("\n")[:-1]]

    TEXTS = ["", " ", "hello world", "naïve 水\u2028\u0085 x", "a\nb\r\n\tc", "<|eot_id|> x", "\0", "🙂" * 20, "x" * 5000]

    def test_round_trips(self):
        folder = os.path.join(self.folder, "tokenizer-only")
        os.mkdir(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(support.LLAMA, name), folder)
        gguf = os.path.join(support.GOLDEN, "gguf", "llama3-gqa-Q4_1.gguf")
        found = []
        for model in (folder, support.LLAMA, gguf):
            ids = [line["ids"] for line in self.lines("tokenize", model, [{"text": t} for t in self.TEXTS], "--no-special")]
            self.assertEqual([line["text"] for line in self.lines("detokenize", model, [{"ids": i} for i in ids])], self.TEXTS)
            with_bos = [line["ids"] for line in self.lines("tokenize", model, [{"text": t} for t in self.TEXTS])]
            self.assertEqual(with_bos, [[316] + i for i in ids])
            skipped = self.lines("detokenize", model, [{"ids": [316, *ids[2]]}], "--skip-special")
            self.assertEqual(skipped, [{"text": self.TEXTS[2]}])
            found.append(ids)
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_golden_folders(self):
        for name in ("llama3", "qwen", "smollm", "llama2-prepend", "mistral-metaspace", "deepseek-v3"):
            folder = os.path.join(support.GOLDEN, "tokenizers", name)
            with open(os.path.join(folder, "cases.jsonl"), encoding="utf-8") as file:
                cases = [json.loads(line) for line in file.read().split("\n") if line][:200]
            ids = [line["ids"] for line in self.lines("tokenize", folder, [{"text": c["text"]} for c in cases], "--no-special")]
            self.assertEqual(ids, [case["ids"] for case in cases], name)
            texts = [line["text"] for line in self.lines("detokenize", folder, [{"ids": i} for i in ids])]
            self.assertEqual(texts, [case.get("decoded", case["text"]) for case in cases], name)

    def test_chat(self):
        messages = [{"role": "user", "content": "hi <|eot_id|>"}]
        plain, open_end, flag = self.lines("tokenize", support.LLAMA, [
            {"messages": messages}, {"messages": messages, "add_generation_prompt": False}, {"messages": "x"}], "--chat", code=support.BAD_INPUT)
        self.assertTrue(plain["prompt"].endswith("[assistant]"))
        self.assertEqual(plain["prompt"], open_end["prompt"] + "[assistant]")
        self.assertEqual(plain["ids"].count(318), 0)
        self.assertIn("error", flag)
        clock = self.lines("tokenize", support.LLAMA, [{"messages": messages}], "--chat", "--chat-template", "{{ strftime_now('%d %b %Y') }}",
                           "--now", "2026-03-07T14:05:09")
        self.assertEqual(clock[0]["prompt"], "07 Mar 2026")

    def test_chat_is_what_run_computes(self):
        """The same tokens for every form of a line, and the same refusals."""
        def user(content): return {"messages": [{"role": "user", "content": content}]}
        parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        lines = [user("hi"), user(parts), user("x") | {"add_special_tokens": True}, user("x") | {"tools": [], "documents": [], "seed": 3},
                 user("x") | {"messages": [*user("x")["messages"], {"role": "assistant", "content": "y"}], "add_generation_prompt": False,
                              "continue_final_message": True},
                 {"custom_id": "a", "url": "/v1/chat/completions", "body": user("hi")},
                 user([{"type": "image_url", "image_url": {"url": "x"}}]), user("x") | {"temprature": 1},
                 user("x") | {"documents": "x"}, {"prompt": "x"}]
        answers = self.lines("tokenize", support.LLAMA, lines, "--chat", code=support.BAD_INPUT)
        asked = [line if "body" in line else line | {"max_tokens": 1, "return_token_ids": True} for line in lines]
        asked[5] = lines[5] | {"body": user("hi") | {"max_tokens": 1, "return_token_ids": True}}
        job = self.job(asked, "tokenized")
        self.expect(job.run(), support.COMPLETE)
        for number, answer in enumerate(answers[:-1], 1):
            body = job.results()[number]["response"]["body"]
            if number <= 6:
                self.assertEqual(answer["ids"], body["prompt_token_ids"], lines[number - 1])
            else:
                self.assertIn(body["error"]["message"], answer["error"])
        self.assertIn("expected a chat", answers[-1]["error"])

    def test_bad_lines(self):
        stdin = b'{"text":"a"}\n{bad\n{"text":5}\n[]\n\n{"text":"a\xff"}\n{"text":"b"}'
        finished = self.expect(support.call("tokenize", "-m", support.LLAMA, stdin=stdin), support.BAD_INPUT, "5 of 7 lines failed")
        lines = [json.loads(line) for line in finished.out.splitlines()]
        self.assertEqual(["ids" in line for line in lines], [True, False, False, False, False, False, True])
        stdin = b'{"ids":[1]}\n{"ids":[1,-1]}\n{"ids":[320]}\n{"ids":"x"}\n{"ids":[1.5]}\n{"ids":[99999999999999999999]}\n{"ids":[]}\n'
        finished = self.expect(support.call("detokenize", "-m", support.LLAMA, stdin=stdin), support.BAD_INPUT, "5 of 7 lines failed")
        lines = [json.loads(line) for line in finished.out.splitlines()]
        self.assertEqual(["text" in line for line in lines], [True, False, False, False, False, False, True])


if __name__ == "__main__":
    support.main()
