// Requests that stream, requests that are given up, and sources that stay open, on a tiny model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "choose/create_engine.h"
#include "engine/load_tokenizer.h"
#include "runtime/real/real_runtime.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"

namespace forebay {
namespace {

// Puts the pieces together, and calls `act` with each.
class PieceSink : public testing_support::ListSink {
 public:
  bool Finish(RequestResult result) override {
    ended.insert(result.id);
    return testing_support::ListSink::Finish(std::move(result));
  }
  void Progress(ChoicePiece piece) override {
    EXPECT_FALSE(ended.contains(piece.id)) << "a piece after the result";
    Choice& choice = choices[{piece.id, piece.choice}];
    choice.text += piece.text;
    choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    for (PositionLogprobs& logprobs : piece.logprobs) choice.logprobs.push_back(logprobs);
    ++pieces;
    if (act) act(piece);
  }
  std::map<std::pair<int64_t, int32_t>, Choice> choices;
  std::set<int64_t> ended;
  int64_t pieces = 0;
  std::function<void(const ChoicePiece&)> act;
};

class StreamTest : public testing::Test {
 protected:
  StreamTest()
      : runtime_(runtime::CreateRealRuntime()),
        files_(std::move(*engine::OpenModel(golden::Path("models/llama3-gqa"), false, 0))),
        tokenizer_(std::move(*engine::LoadTokenizer(golden::Path("models/llama3-gqa"), nullptr))) {
    options_.machine.memory_bytes = 128 << 20;
    options_.limits.max_model_len = 128;
    options_.machine.threads = 1;
    options_.limits.max_num_seqs = 8;
    options_.digest = true;
  }
  std::unique_ptr<engine::LocalEngine> Create() {
    return std::move(*choose::CreateEngine(*runtime_, options_, files_, tokenizer_.get()));
  }
  static std::vector<Request> MakeRequests(int64_t count, bool stream) {
    std::vector<Request> requests;
    for (int64_t i = 0; i < count; ++i) {
      Request request{.id = 1000 + i, .line = i, .stream = stream};
      request.n = 1 + static_cast<int32_t>(i % 2);
      request.prompts = {std::vector<int32_t>(4 + i % 40, static_cast<int32_t>(5 + i % 100))};
      request.sampling.max_tokens = 30 + static_cast<int32_t>(i % 7);
      request.sampling.logprobs = i % 3 == 0 ? 2 : -1;
      requests.push_back(request);
    }
    return requests;
  }
  // Several such choices in few blocks: some are preempted.
  static void MakeLong(Request* request) {
    request->sampling.max_tokens = 100;
    request->sampling.ignore_eos = true;
    request->prompts[0].resize(20);
  }
  // Texts, tokens and digests by request and choice.
  static std::map<std::pair<int64_t, int32_t>, Choice> ByChoice(
      const std::vector<RequestResult>& results) {
    std::map<std::pair<int64_t, int32_t>, Choice> choices;
    for (const RequestResult& result : results) {
      for (const Choice& choice : result.choices) choices[{result.id, choice.index}] = choice;
    }
    return choices;
  }

  std::unique_ptr<runtime::Runtime> runtime_;
  engine::ModelFiles files_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  layout::EngineOptions options_;
};

TEST_F(StreamTest, PiecesPutTogetherAreTheUnstreamedAnswer) {
  options_.limits.kv_blocks = 10;  // some are preempted
  std::vector<Request> requests = MakeRequests(30, false);
  // Stop strings from the answers themselves, two characters each, so that they span tokens.
  const auto plain = ByChoice(testing_support::RunAll(*Create(), requests));
  for (Request& request : requests) {
    if (request.line % 3 == 1) {
      MakeLong(&request);
      continue;
    }
    const std::string& text = plain.at({request.id, 0}).text;
    for (size_t at = 5; at + 2 < text.size() && at < 40; at += 17)
      request.sampling.stop.push_back(text.substr(at, 2));
    request.sampling.stop.push_back("never in it");
  }
  const auto engine = Create();
  const auto expected = ByChoice(testing_support::RunAll(*engine, requests));
  EXPECT_GT(engine->stats().preemptions, 0);
  for (Request& request : requests) request.stream = true;
  testing_support::ListSource source(requests);
  PieceSink sink;
  RunControl control;
  ASSERT_EQ(Create()->Run(source, sink, control), RunEnd::kComplete);
  int64_t stopped = 0;
  ASSERT_EQ(sink.choices.size(), expected.size());
  for (const auto& [key, choice] : expected) {
    const Choice& streamed = sink.choices.at(key);
    EXPECT_EQ(streamed.text, choice.text);
    EXPECT_EQ(streamed.tokens, choice.tokens);
    ASSERT_EQ(streamed.logprobs.size(), choice.logprobs.size());
    for (size_t i = 0; i < choice.logprobs.size(); ++i)
      EXPECT_EQ(streamed.logprobs[i].top[0].logprob, choice.logprobs[i].top[0].logprob);
    stopped += choice.stop_string.has_value();
  }
  EXPECT_GT(stopped, 5);
  // Streaming changes no answer.
  for (const auto& [key, choice] : ByChoice(sink.results))
    EXPECT_EQ(choice.digest, expected.at(key).digest);
  EXPECT_GT(sink.pieces, 200);
}

// A SentencePiece tokenizer holds bytes back until their run ends. Those of the prompt are no part
// of the answer, in pieces or in whole, nor does a stop string match them.
TEST_F(StreamTest, AnAnswerBeginsAfterItsPrompt) {
  tokenizer_ =
      std::move(*engine::LoadTokenizer(golden::Path("tokenizers/llama2-prepend"), nullptr));
  const int32_t newline = *tokenizer_->TokenToId("<0x0A>"), letter = *tokenizer_->TokenToId("T");
  std::vector<Request> requests = MakeRequests(4, true);
  for (Request& request : requests) {
    request.prompts[0].push_back(newline);
    request.sampling.max_tokens = 3;
    request.sampling.logit_bias = {{request.line < 2 ? letter : newline, 1e4f}};
    if (request.line % 2 == 0) request.sampling.stop = {request.line == 0 ? "\n" : "\n\n"};
  }
  testing_support::ListSource source(requests);
  PieceSink sink;
  RunControl control;
  ASSERT_EQ(Create()->Run(source, sink, control), RunEnd::kComplete);
  const auto choices = ByChoice(sink.results);
  ASSERT_EQ(choices.size(), 6u);
  const std::string expected[] = {"TTT", "TTT", "", "\n\n\n"};
  for (const auto& [key, choice] : choices) {
    EXPECT_EQ(choice.text, expected[key.first - 1000]) << key.first;
    EXPECT_EQ(sink.choices.at(key).text, choice.text) << key.first;
    // As soon as it is there, whether or not the run goes on.
    EXPECT_EQ(choice.tokens.size(), key.first == 1002 ? 2u : 3u);
    EXPECT_EQ(choice.stop_string.has_value(), key.first == 1002);
  }
}

TEST_F(StreamTest, NobodyStreamsNobodyIsTold) {
  testing_support::ListSource source(MakeRequests(4, false));
  PieceSink sink;
  RunControl control;
  Create()->Run(source, sink, control);
  EXPECT_EQ(sink.pieces, 0);
}

TEST_F(StreamTest, ACancelledRequestEndsAndOthersAnswersStay) {
  struct Case {
    const char *devices, *cut;
    int32_t kv_blocks;
  };
  // One replica, one that preempts, two that steal, and a pipeline with steps in flight.
  const Case cases[] = {
      {"cpu", "dp=1", 0}, {"cpu", "dp=1", 10}, {"2xcpu", "dp=2", 0}, {"2xcpu", "pp=2", 0}};
  for (const auto& [devices, cut, kv_blocks] : cases) {
    SCOPED_TRACE(fmt::format("{}, {}, {} blocks", devices, cut, kv_blocks));
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.machine.threads = devices[0] == '2' ? 2 : 1;
    options_.layout = *layout::ParseLayout(cut);
    options_.limits.kv_blocks = kv_blocks;
    std::vector<Request> requests = MakeRequests(40, true);
    for (Request& request : requests) {
      if (request.line % 3 == 1) MakeLong(&request);
    }
    const auto expected = ByChoice(testing_support::RunAll(*Create(), requests));
    const auto engine = Create();
    testing_support::ListSource source(requests);
    PieceSink sink;
    std::set<int64_t> cancelled;
    std::mt19937 random(7);
    sink.act = [&](const ChoicePiece&) {
      if (random() % 40 != 0) return;
      // Running, waiting, read ahead, or not read yet: wherever it is.
      const int64_t id = 1000 + static_cast<int64_t>(random() % 40);
      if (sink.ended.contains(id)) return;
      engine->Cancel(id);
      cancelled.insert(id);
    };
    RunControl control;
    ASSERT_EQ(engine->Run(source, sink, control), RunEnd::kComplete);
    ASSERT_EQ(sink.results.size(), requests.size());
    size_t ended = 0;
    for (const RequestResult& result : sink.results) {
      if (result.error_code == "request_cancelled") {
        EXPECT_TRUE(cancelled.contains(result.id));
        ++ended;
        continue;
      }
      for (const Choice& choice : result.choices) {
        const Choice& other = expected.at({result.id, choice.index});
        EXPECT_EQ(choice.digest, other.digest);
        EXPECT_EQ(choice.text, other.text);
      }
    }
    EXPECT_GT(ended, 3u);
    EXPECT_EQ(engine->stats().preemptions > 0, kv_blocks > 0);
    // Everything came back.
    EXPECT_EQ(engine->stats().kv_blocks_used, 0);
    EXPECT_EQ(engine->stats().choices_running + engine->stats().choices_waiting, 0);
    EXPECT_EQ(engine->stats().output_room, 0);
    EXPECT_EQ(testing_support::RunAll(*engine, requests).size(), requests.size());
  }
}

// What waits for a place ends at the next border, too, however long those run that have the places.
TEST_F(StreamTest, ACancelledRequestThatWasReadAheadEndsAtOnce) {
  options_.limits.max_num_seqs = 4;
  // With many requests the next ones are read ahead; with few all are, and they are dealt.
  for (const int64_t count : {20, 8}) {
    SCOPED_TRACE(count);
    std::vector<Request> requests = MakeRequests(count, true);
    for (Request& request : requests) {
      MakeLong(&request);
      request.n = 1;
    }
    const auto engine = Create();
    testing_support::ListSource source(requests);
    PieceSink sink;
    int pieces = 0;
    sink.act = [&](const ChoicePiece& piece) {
      // Four have places, and one waits for the next.
      if (piece.id == 1000 && ++pieces == 5) {
        for (const int64_t id : {1005, 1006, 1007}) engine->Cancel(id);
      }
    };
    RunControl control;
    ASSERT_EQ(engine->Run(source, sink, control), RunEnd::kComplete);
    ASSERT_EQ(sink.results.size(), requests.size());
    std::set<int64_t> first;
    for (int i = 0; i < 3; ++i) first.insert(sink.results[i].id);
    EXPECT_EQ(first, (std::set<int64_t>{1005, 1006, 1007}));
    for (const RequestResult& result : sink.results)
      EXPECT_EQ(result.error_code == "request_cancelled", first.contains(result.id)) << result.id;
  }
}

// Gives what it is handed, whenever that is; ends when told.
class OpenSource : public RequestSource {
 public:
  explicit OpenSource(runtime::Runtime& runtime) : woken_(runtime.NewEvent("a request")) {}
  void Give(Request request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    woken_->Set();
  }
  void End() {
    ended_ = true;
    woken_->Set();
  }
  std::optional<Request> Next(bool wait) override {
    if (wait) woken_->Wait(50'000'000);
    const std::lock_guard lock(mutex_);
    if (requests_.empty()) {
      if (!ended_) woken_->Reset();
      return std::nullopt;
    }
    Request request = std::move(requests_.front());
    requests_.pop_front();
    return request;
  }
  bool ended() const override {
    const std::lock_guard lock(mutex_);
    return ended_ && requests_.empty();
  }

 private:
  std::unique_ptr<runtime::Event> woken_;
  mutable std::mutex mutex_;
  std::deque<Request> requests_;
  std::atomic<bool> ended_{false};
};

double CpuSeconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

TEST_F(StreamTest, ASourceMayStayOpenAndBeIdle) {
  for (const char* devices : {"cpu", "2xcpu"}) {
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.machine.threads = devices[0] == '2' ? 2 : 1;
    const std::vector<Request> requests = MakeRequests(24, false);
    const auto expected = ByChoice(testing_support::RunAll(*Create(), requests));
    const auto engine = Create();
    OpenSource source(*runtime_);
    PieceSink sink;
    RunControl control;
    std::thread run([&] { EXPECT_EQ(engine->Run(source, sink, control), RunEnd::kComplete); });
    const auto sleep = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
    // The start may reach into the first second, and a wake-up costs several times as much where
    // others load the machine: alone an idle engine takes .001 to .002 of a core.
    double least = 1;
    for (int second = 0; second < 10 && least > .01; ++second) {
      const double before = CpuSeconds();
      sleep(1000);
      least = std::min(least, CpuSeconds() - before);
    }
    EXPECT_LT(least, .05) << devices << ": an idle engine uses a core";
    for (const Request& request : requests) {
      source.Give(request);
      if (request.line % 6 == 0) sleep(60);
    }
    source.End();
    run.join();
    const auto answers = ByChoice(sink.results);
    ASSERT_EQ(answers.size(), expected.size());
    for (const auto& [key, choice] : expected) EXPECT_EQ(answers.at(key).digest, choice.digest);
  }
}

}  // namespace
}  // namespace forebay
