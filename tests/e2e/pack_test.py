"""`forebay pack` as a user types it: what it draws, its JSON, and how it refuses."""
import json
import os

import support

LENGTHS = "num_prefill_tokens,num_decode_tokens\n60,10\n30,20\n30,20\n50,5\n"
SOLVER = os.environ.get("FOREBAY_HIGHS") or os.path.join(os.path.dirname(__file__), "..", "..", "build", "highs", "libhighs.so")


class Pack(support.TestCase):
    def setUp(self):
        super().setUp()
        self.lengths = os.path.join(self.folder, "lengths.csv")
        with open(self.lengths, "w", encoding="utf-8") as file:
            file.write(LENGTHS)

    def pack(self, *flags, code=0, texts=()):
        return self.expect(support.call("pack", self.lengths, *flags), code, *texts)

    def test_draws_the_packing(self):
        out = self.pack("--capacity", "110").out
        lines = out.splitlines()
        self.assertIn("in the order of the file", lines[0])
        self.assertIn("best found", lines[1])
        self.assertEqual(sum("#" in line for line in lines), 4)
        self.assertIn("a column is 1 step", lines[-1])

    def test_json_of_each_form(self):
        for form, most in (("printed", 40), ("grown", 40), ("chunked", 44)):
            told = json.loads(self.pack("--capacity", "110", "--form", form, "--chunk", "32", "--json").out)
            self.assertLessEqual(told["bound_steps"], told["best_steps"])
            self.assertLessEqual(told["best_steps"], told["fifo_steps"])
            self.assertLessEqual(told["best_steps"], most)
            self.assertEqual(len(told["begin"]), 4)

    def test_the_solver_proves_the_optimum(self):
        if not os.path.exists(SOLVER):
            self.skipTest("no solver: tools/fetch_highs.sh fetches it")
        told = json.loads(self.pack("--capacity", "110", "--form", "printed", "--oracle", "--solver", SOLVER, "--json").out)
        self.assertTrue(told["proven"])

    def test_refuses(self):
        self.pack("--capacity", "60", code=2, texts=["request 1 holds 70 tokens, more than the capacity of 60", "[pack_invalid]"])
        self.pack("--capacity", "100", "--form", "paper", code=2, texts=["expected printed, grown or chunked"])
        self.pack("--capacity", "100", "--oracle", "--solver", "/no/such.so", code=1, texts=["/no/such.so", "[solver_missing]"])


if __name__ == "__main__":
    support.main()
