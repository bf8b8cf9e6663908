"""forebay run and plan with layouts: the same results as one rank, refusals, faults of a rank, kill and resume with four ranks.

FOREBAY_LAYOUT_KILLS (12; 200 in tools/soak.sh).
"""
import json
import os
import random
import signal
import subprocess
import unittest

import support

KILLS = int(os.environ.get("FOREBAY_LAYOUT_KILLS", 12))
POOLED, SHIFTED = ["--devices", "4xcpu", "--layout", "dp=4,weights=by_layer,pool=3"], ["--devices", "2xcpu", "--layout", "sp=2"]
# How the ranks that are killed reach their weights, and how they cut their rows; a job goes on in any of them.
MODES = [["--mode", "pull"], ["--mode", "ship"], ["--mode", "auto", "--ship-threshold", 6]]
SHIFTS = [["--shift-every=-1"], ["--shift-every=1"], ["--shift-mode", "2x1"], ["--shift-parallel-threshold", 8]]
ROLES = ["--devices", "4xcpu", "--context", "dp=2", "--generation", "groups=2"]
# The profile: of the machine at hand nothing is measured.
FLAGS = ["--digest", "--quiet", "--max-model-len", 512, "--memory", "128MiB", "--device-profile", "zen4"]
MIXTURE = {"model": os.path.join(support.GOLDEN, "models", "qwen3-moe"), "flags": [*FLAGS, "--skip-tokenizer-init"]}


def requests_of_ids(rng, count, most_tokens):
    """For a model without a tokenizer."""
    return [{"custom_id": f"l-{i}", "prompt": [rng.randrange(5, 250) for _ in range(rng.randint(1, 60))],
             "max_tokens": rng.randint(1, most_tokens), "temperature": i % 2, "seed": i, "ignore_eos": True} for i in range(count)]


class Layout(support.TestCase):
    def test_same_results(self):
        lines = support.mixed_requests(random.Random(5), 60)
        lines += [{"custom_id": f"stop-{i}", "prompt": f"{i} to the end", "stop": ["e", "a"], "max_tokens": 24, "temperature": 1} for i in range(6)]
        reference = self.job(lines, "reference", flags=FLAGS)
        self.expect(reference.run(), support.COMPLETE)
        for devices, layout in [(2, "dp=2"), (2, "dp=2,weights=by_layer,pool=3"), (2, "dp=2,weights=striped,pool=3,pool-attention=on"),
                                (3, "dp=3,weights=sharded,pool=1"), (2, "dp=2,weights=striped,pool=auto"), (2, "tp=2")]:
            job = self.job(lines, "ranks", flags=FLAGS)
            pools = ["--pool-look-ahead", 1] if "weights=" in layout else []
            self.expect(job.run("--devices", f"{devices}xcpu", "--layout", layout, *pools), support.COMPLETE)
            self.assertEqual(job.answers(), reference.answers(), layout)
            job.forget()
        # Ranks that cut rows: the FFN shared along sp, or a second model for tp alone.
        for flags, counter in [(["--layout", "sp=2,weights=striped,pool=3", "--shift-mode", "2x1"], "bytes_pulled"),
                               (["--layout", "sp=2,weights=striped,pool=3", "--shift-parallel-threshold", 8], "shift_switches"),
                               (["--layout", "sp=2", "--shift-weights", "copy", "--shift-parallel-threshold", 8], "shift_switches")]:
            job = self.job(lines, "ranks", flags=FLAGS)
            self.expect(job.run("--devices", "2xcpu", *flags), support.COMPLETE)
            self.assertEqual(job.answers(), reference.answers(), flags)
            self.assertGreater(job.summary()["mode_counters"][counter], 0)
            self.assertEqual(job.summary()["tp_wire"], "exact")
            job.forget()
        # Meetings that take as long as over a slower link.
        job = self.job(lines, "ranks", flags=FLAGS)
        self.expect(job.run("--devices", "2xcpu", "--layout", "sp=2", "--shift-mode", "2x1", "--link-gbps", "0.02"), support.COMPLETE)
        self.assertEqual(job.answers(), reference.answers())
        counters = job.summary()["mode_counters"]
        self.assertGreater(job.summary()["elapsed_time"], (counters["bytes_all_to_all"] + counters["bytes_head"]) / 2 / 20e6)
        job.forget()
        # Two roles, also where the KV cache is so small that they wait for each other.
        for flags in [ROLES, [*ROLES, "--num-kv-blocks-override", 20, "--max-num-batched-tokens", 40]]:
            job = self.job(lines, "roles", flags=FLAGS)
            self.expect(job.run(*flags), support.COMPLETE)
            self.assertEqual(job.answers(), reference.answers())
            counters = job.summary()["mode_counters"]
            self.assertGreater(counters["requests_handed_over"], 20)
            self.assertGreater(counters["kv_bytes_handed_over"], 0)
            self.assertEqual([replica["role"] for replica in job.summary()["replicas"]], ["context"] * 2 + ["generation"] * 2)
            job.forget()

    def test_experts_give_the_same_results(self):
        """Ranks that hold a part of the experts each, in every way in which they reach the others."""
        lines = requests_of_ids(random.Random(6), 30, most_tokens=12)
        reference = self.job(lines, "reference", **MIXTURE)
        self.expect(reference.run(), support.COMPLETE)
        self.assertEqual(len(reference.answers()), len(lines))
        self.assertIn("digest", json.dumps(reference.results()[1]))
        for mode, counter in (("pull", "bytes_pulled"), ("ship", "bytes_shipped"), ("routed", "bytes_routed")):
            for size in ("least", "5"):
                job = self.job(lines, "experts", **MIXTURE)
                layout = f"dp=2,experts=by_expert,expert-size={size}"
                self.expect(job.run("--devices", "2xcpu", "--layout", layout, "--mode", mode), support.COMPLETE)
                self.assertEqual(job.answers(), reference.answers(), (mode, size))
                self.assertGreater(job.summary()["mode_counters"][counter], 0, (mode, size))
                job.forget()

    def test_refusals(self):
        for flags, texts in [(["--layout", "dp=3"], ["needs 3 devices, there are 1"]),
                             (["--layout", "dq=1"], ["--layout", "dq", "expected groups, dp"]),
                             (["--memory-per-rank", "1GiB"], ["--memory 128.0 MiB", "--memory-per-rank 1.00 GiB", "one of them"]),
                             (["--pool-slots", "x"], ["--pool-slots", "8GiB"]),
                             (["--link-gbps", "1"], ["--link-gbps 1", "expected real ranks that meet"]),
                             (["--kv-up-gbps", "1"], ["--kv-up-gbps and --kv-up-stall", "expected real devices with KV below"]),
                             (["--kv-up-stall", "0"], ["--kv-up-stall"]),
                             (["--pool-slice", "0"], ["--pool-slice is 0"]),
                             (["--pool-requests", "0"], ["--pool-requests"]),
                             (["--devices", "2xcpu", "--layout", "dp=2,weights=striped,pool=1", "--pool-requests", "4"],
                              ["--pool-requests 4 on real devices", "expected --devices sim:..."]),
                             (["--devices", "2xcpu", "--layout", "dp=2,experts=by_expert"], ["layout_pool", "of a model without experts"]),
                             (["--devices", "2xcpu", "--layout", "tp=2", "--sim-tp-wire", "bf16"], ["--sim-tp-wire bf16 on real devices"]),
                             (["--devices", "2xcpu", "--layout", "sp=2,weights=by_layer"], ["layout_pool", "beside sp=2"]),
                             (["--layout", "pool=1"], ["pool=1", "weights=replicated"]),
                             (["--context", "dp=1"], ["roles_invalid", "--context dp=1 without --generation"]),
                             (["--generation", "dp=1"], ["roles_invalid", "--generation dp=1 without --context"]),
                             ([*ROLES, "--layout", "auto"], ["roles_invalid", "--layout auto beside --context dp=2"]),
                             ([*ROLES, "--tensor-parallel-size", "2"], ["roles_invalid", "--layout tp=2 beside"]),
                             (["--context", "dq=1", "--generation", "dp=1"], ["--context", "dq", "expected groups, dp"]),
                             (["--context", "dp=3", "--generation", "dp=2"], ["needs 3 devices", "needs 2, there are 1"]),
                             (["--generation-mode", "ship"], ["roles_invalid", "--generation-mode ship without --generation"]),
                             (["--expert-wire", "nothing"], ["--expert-wire", "exact"])]:
            job = self.job([{"prompt": "x"}], "refused", flags=FLAGS)
            self.expect(job.run(*flags), support.USAGE, *texts)
        for flags, texts in [(["--layout", "sp=2", "--kv-replication", "two-step"], ["--kv-replication two-step with sp=2", "2 KV heads"]),
                             (["--layout", "tp=2", "--shift-weights", "copy"], ["--shift-weights copy", "sp=1, tp=2"]),
                             (["--layout", "tp=2", "--shift-every=-1"], ["--shift-every -1", "sp=1, tp=2"]),
                             (["--layout", "sp=2,weights=striped", "--shift-weights", "copy"], ["--shift-weights copy", "sp=2,weights=striped"])]:
            job = self.job([{"prompt": "x"}], "refused", flags=FLAGS)
            self.expect(job.run("--devices", "2xcpu", *flags), support.USAGE, "shift_invalid", *texts)

    def check_fault(self, job, transfer, count, expected, spared):
        """Rank 1 fails in such a transfer: rank, layer and transfer are named. A spared group finishes the job; else it is resumed."""
        finished = job.run("--plant-fault-rank", 1, f"--plant-fault-at-{transfer}", count, timeout=60)
        # The layer of the transfer, and of the meeting.
        self.expect(finished, support.COMPLETE if spared else support.STALLED, f"a fault was planted in {transfer} {count} of rank 1",
                    "stalled", "rank 1 weights copy in layer" if transfer == "pull" else "rank 1 compute in layer")
        if not spared:
            self.assertIn("the same command goes on", finished.err)
            found = job.answers()
            for number, answer in found.items():
                self.assertEqual(answer, expected[number], f"input line {number}")
            self.assertLess(len(found), len(expected))
            self.expect(job.run(), support.COMPLETE)
        self.assertEqual(job.answers(), expected)
        job.forget()

    def test_a_fault_stops_its_group_and_the_job_goes_on(self):
        lines = support.mixed_requests(random.Random(9), 90, most_tokens=32)
        reference = self.job(lines, "one", flags=FLAGS)
        self.expect(reference.run(), support.COMPLETE)
        expected = reference.answers()
        groups = ["--devices", "4xcpu", "--layout", "groups=2,dp=2,weights=by_layer,pool=3", "--max-num-seqs", 4]
        pipeline = ["--devices", "2xcpu", "--layout", "dp=1,tp=2", "--max-num-seqs", 4]
        cut_rows = ["--devices", "2xcpu", "--layout", "sp=2", "--shift-mode", "2x1", "--max-num-seqs", 4]
        for layout, mode, fault, spared in [(groups, "ship", ("post", 40), True), (groups, "pull", ("pull", 9), True),
                                            (pipeline, "auto", ("post", 30), False), (cut_rows, "auto", ("post", 50), False)]:
            with self.subTest(mode=mode, fault=fault):
                job = self.job(lines, "faulty", flags=[*FLAGS, *layout, "--mode", mode])
                self.check_fault(job, *fault, expected, spared)

    def test_a_fault_among_experts(self):
        """Whichever way they reach each other: rank, layer and transfer are named, and the other group answers all."""
        lines = requests_of_ids(random.Random(8), 60, most_tokens=24)
        reference = self.job(lines, "reference", **MIXTURE)
        self.expect(reference.run(), support.COMPLETE)
        layout = ["--devices", "4xcpu", "--layout", "groups=2,dp=2,experts=by_expert", "--max-num-seqs", 4]
        for mode, fault in (("pull", ("pull", 9)), ("routed", ("pull", 9)), ("ship", ("post", 40)), ("gather", ("post", 40))):
            with self.subTest(mode=mode):
                job = self.job(lines, "faulty", model=MIXTURE["model"], flags=[*MIXTURE["flags"], *layout, "--mode", mode])
                self.check_fault(job, *fault, reference.answers(), True)

    def test_a_role_that_is_lost_ends_the_run(self):
        lines = support.mixed_requests(random.Random(9), 60, most_tokens=32)
        reference = self.job(lines, "one", flags=FLAGS)
        self.expect(reference.run(), support.COMPLETE)
        flags = [*FLAGS, "--devices", "3xcpu", "--context", "dp=2", "--generation", "dp=1"]
        # With so little room the prompts cannot all be done before the others take them: who has none left has ended.
        flags += ["--num-kv-blocks-override", 24]
        job = self.job(lines, "lost", flags=flags)
        finished = job.run("--plant-fault-rank", 2, "--plant-fault-at-pull", 2, timeout=60)
        self.expect(finished, support.STALLED, "a fault was planted in pull 2 of rank 2", "role_lost", "the same command goes on")
        self.assertLess(len(job.answers()), len(lines))
        self.expect(job.run(), support.COMPLETE)
        self.assertEqual(job.answers(), reference.answers())

    def test_kill_and_resume_with_four_ranks(self):
        self.kill_and_resume(POOLED, MODES)

    def test_kill_and_resume_with_modes_at_random(self):
        job = self.kill_and_resume(SHIFTED, SHIFTS)
        job.forget()
        self.expect(job.run(*SHIFTS[0]), support.COMPLETE)
        self.assertGreater(job.summary()["mode_counters"]["shift_switches"], 10)

    def test_kill_and_resume_with_roles(self):
        self.kill_and_resume(ROLES, [[]])

    def kill_and_resume(self, layout, modes):
        rng = random.Random(7)
        lines = support.mixed_requests(rng, 40, most_tokens=48)
        reference = self.job(lines, "one", flags=FLAGS)
        self.expect(reference.run(), support.COMPLETE)
        expected = reference.answers()
        job = self.job(lines, "four", flags=[*FLAGS, *layout])
        kills, rounds, reach = 0, 0, 0.6
        while kills < KILLS:
            rounds += 1
            self.assertLess(rounds, 5 * KILLS + 20, f"{kills} kills: runs end before they are killed")
            process = job.start(*rng.choice(modes))
            try:
                process.wait(rng.uniform(0, reach))
            except subprocess.TimeoutExpired:
                process.kill()
            code = process.wait()
            self.assertIn(code, (support.COMPLETE, -signal.SIGKILL), process.stderr.read().decode())
            process.stderr.close()
            kills += code == -signal.SIGKILL
            reach *= 1.05  # about one run in six comes to its end
            for number, found in job.answers().items():
                self.assertEqual(found, expected[number], f"input line {number}")
            if code == support.COMPLETE:
                job.forget()
                reach *= 0.8
        self.expect(job.run(*modes[0]), support.COMPLETE)
        self.assertEqual(job.answers(), expected)
        return job

    @unittest.skipUnless(os.path.exists(support.DEMO_MODEL), f"no demo model at {support.DEMO_MODEL}")
    def test_the_demo_model_on_three_ranks_that_cut_rows(self):
        """Its 9 heads, 3 KV heads and 40 prompts on 3 ranks: the answers of one."""
        with open(os.path.join(support.ROOT, "examples", "demo.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(next(file)) for _ in range(40)]
        for i, line in enumerate(lines):
            line["body"].pop("max_completion_tokens", None)
            line["body"] |= {"max_tokens": 6, "temperature": i % 2}
        flags = ["--digest", "--quiet", "--max-model-len", 512, "--device-profile", "zen4", "--memory", "2304MiB"]
        reference = self.job(lines, "one", model=support.DEMO_MODEL, flags=flags)
        self.expect(reference.run(), support.COMPLETE)
        job = self.job(lines, "three", model=support.DEMO_MODEL, flags=flags)
        self.expect(job.run("--devices", "3xcpu", "--layout", "sp=3", "--shift-parallel-threshold", 64), support.COMPLETE)
        self.assertEqual(len(job.answers()), 40)
        self.assertEqual(job.answers(), reference.answers())
        counters = job.summary()["mode_counters"]
        for counter in ("steps_sp3tp1", "steps_sp1tp3", "bytes_all_to_all", "bytes_all_reduce"):
            self.assertGreater(counters[counter], 0, counter)

    def test_plan(self):
        layouts = ["dp=8", "dp=8,weights=by_layer,pool=64", "dp=8,weights=striped", "dp=2,tp=4,weights=by_layer,pool=64"]
        flags = [flag for layout in layouts for flag in ("--layout", layout)]
        done = self.expect(support.call("plan", "--memory", "-m", "builtin:Qwen3-32B", "--devices", "sim:8xh200", *flags, "--json"), 0)
        plans = json.loads(done.out)["layouts"]
        self.assertEqual([plan["fits"] for plan in plans], [True] * 4)
        self.assertGreater(plans[1]["kv_tokens"], 1.3 * plans[0]["kv_tokens"])
        self.assertIn("pool=auto", plans[2]["choice"])
        roles = support.call("plan", "--memory", "-m", "builtin:Qwen3-32B", "--devices", "sim:8xh200", "--context", "dp=2", "--generation",
                             "dp=6,weights=by_layer,pool=64", "--json")
        plans = json.loads(self.expect(roles, 0).out)["layouts"]
        self.assertEqual([plan["role"] for plan in plans], ["context", "generation"])
        self.assertEqual(plans[0]["max_model_len"], plans[1]["max_model_len"])
        self.assertGreater(plans[1]["kv_tokens"], plans[0]["kv_tokens"])
        # Weights and slots of DeepSeek-R1 in NVFP4 on GB200, and how many of its 256 experts a rank has.
        for ranks, gigabytes, held in ((4, 130, 64), (3, 161, 86)):
            plan = support.call("plan", "--memory", "-m", "builtin:DeepSeek-R1-NVFP4", "--devices", f"sim:{ranks}xgb200-nvl72",
                                "--layout", f"dp={ranks},experts=by_expert", "--pool-look-ahead", "1", "--json")
            plan = json.loads(self.expect(plan, 0).out)["layouts"][0]
            parts = sum(plan[part] for part in ("weight_bytes", "pool_bytes", "slot_bytes"))
            self.assertAlmostEqual(parts * 1e-9, gigabytes, delta=2)
            self.assertEqual((plan["held_experts"], plan["num_experts"]), (held, 256))
            self.assertAlmostEqual(plan["expert_redundancy"], ranks * held / 256)
            self.assertEqual(plan["fits"], ranks == 4, "at .9 of the memory")
        # Of a tp rank's part it has what its replica does not pull.
        layouts = [("tp=4", 32, 1), ("dp=2,tp=2", 64, 2), ("dp=2,tp=2,experts=by_expert", 32, 1),
                   ("dp=2,tp=2,experts=by_expert,expert-size=48", 48, 1.5)]
        flags = [flag for layout in layouts for flag in ("--layout", layout[0])]
        parts = support.call("plan", "--memory", "-m", "builtin:Qwen3-30B-A3B", "--devices", "sim:4xh20", *flags, "--json")
        parts = json.loads(self.expect(parts, 0).out)["layouts"]
        self.assertEqual([(each["held_experts"], each["expert_redundancy"]) for each in parts], [layout[1:] for layout in layouts])
        self.assertLess(parts[2]["weight_bytes"] + parts[2]["pool_bytes"], parts[3]["weight_bytes"] + parts[3]["pool_bytes"])
        self.assertRegex(plan["error"], r"staging for other ranks 1.37 GiB.*what would fit: slots for pulled weights of at most")
        # Rounds of so many rows do not fit.
        staged = support.call("plan", "--memory", "-m", "builtin:DeepSeek-R1-NVFP4", "--devices", "sim:4xgb200-nvl72", "--layout",
                              "dp=4,experts=by_expert", "--expert-rows", "65536", "--json")
        self.assertRegex(json.loads(self.expect(staged, 0).out)["layouts"][0]["error"],
                         r"or staging for other ranks of at most \d+\.\d+ GiB \(--max-num-batched-tokens, of experts --expert-rows\)")
        whole = support.call("plan", "--memory", "-m", "builtin:Llama-3.1-70B", "--devices", "sim:8xh200", "--layout", "dp=8")
        self.expect(whole, 0)
        self.assertIn("does not fit", whole.out)
        self.expect(support.call("plan", "-m", "builtin:Qwen3-32B"), support.USAGE, "expected --memory")
        for flags, text in [(["--modes", "--json"], "--json is for --memory"), (["--memory", "--modes"], "exclude each other")]:
            self.expect(support.call("plan", "-m", "builtin:Qwen3-32B", *flags), support.USAGE, text)

    def test_plan_of_modes(self):
        """What a step costs in each mode of each layout, and where the mode changes."""
        done = support.call("plan", "--modes", "-m", "builtin:Llama-3.1-70B", "--quantization", "fp8", "--devices", "sim:8xh200",
                            "--layout", "sp=8", "--layout", "sp=4,tp=2", "--layout", "tp=8")
        out = self.expect(done, 0).out
        self.assertRegex(out, r"rows +8x1 ms +4x2 ms +2x4 ms +1x8 ms  mode")
        self.assertRegex(out, r"rows +4x2 ms +2x4 ms +1x8 ms  mode")
        self.assertIn("by the prices of h200: up to 95 rows 1x8, up to 319 rows 2x4, up to 1023 rows 4x2, above, 8x1\n", out)
        self.assertIn("one mode: 1x8\n", out)


if __name__ == "__main__":
    support.main()
