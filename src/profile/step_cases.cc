#include "choose/create_engine.h"
#include "model/decoder_weights.h"
#include "model/files/config_reader.h"
#include "profile/cases.h"
#include "weights/random_reader.h"

namespace forebay::profile {
namespace {

// One small layer: almost all of a step is what every step takes beside its operations.
constexpr const char* kSmallModel =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512,
  "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "head_dim": 32, "rms_norm_eps": 1e-6, "max_position_embeddings": 1024, "rope_theta": 10000.0, "hidden_act": "silu",
  "tie_word_embeddings": true, "torch_dtype": "bfloat16"})";
constexpr int32_t kPromptTokens = 4;

class Requests final : public RequestSource {
 public:
  Requests(int count, int32_t tokens) : count_(count), tokens_(tokens) {}
  std::optional<Request> Next(bool) override {
    if (ended()) return std::nullopt;
    Request request;
    request.id = request.line = next_++;
    request.prompts = {
        std::vector<int32_t>(kPromptTokens, static_cast<int32_t>(request.line % 500))};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = tokens_;
    request.sampling.ignore_eos = true;
    return request;
  }
  bool ended() const override { return next_ >= count_; }

 private:
  const int count_;
  const int32_t tokens_;
  int64_t next_ = 0;
};

class Nowhere final : public ResultSink {
 public:
  bool Finish(RequestResult) override { return true; }
};

// Seconds of a step of `sequences` beside its operations.
base::Result<double> OverheadOf(const Subject& subject, const engine::ModelFiles& files,
                                int sequences, runtime::Runtime& runtime) {
  layout::EngineOptions engine_options;
  engine_options.machine.devices = subject.options().devices;
  engine_options.machine.kernels = &subject.kernels();
  engine_options.machine.threads = subject.options().threads;
  engine_options.trial.driver = subject.options().driver;
  engine_options.machine.memory_bytes = 256 << 20;
  engine_options.limits.max_num_seqs = sequences;
  engine_options.profile = true;
  FB_ASSIGN_OR_RETURN(const auto engine,
                      choose::CreateEngine(runtime, engine_options, files, nullptr));
  Requests requests(sequences, subject.grid().step_tokens);
  Nowhere nowhere;
  RunControl control;
  const runtime::TimeNs begin = runtime.Now();
  engine->Run(requests, nowhere, control);
  double seconds = runtime::SecondsOf(runtime.Now() - begin);
  for (const device::OpProfile& op : engine->Profile()) seconds -= op.seconds;
  return std::max(seconds, 0.0) / static_cast<double>(std::max<int64_t>(engine->stats().steps, 1));
}

}  // namespace

base::Status MeasureStepOverhead(const Subject& subject, runtime::Runtime& runtime,
                                 cost::DeviceProfile* profile) {
  engine::ModelFiles files;
  files.name = "small";
  FB_ASSIGN_OR_RETURN(files.config, model::ParseHfConfig(kSmallModel, "small model"));
  const auto plan = model::PlanDecoder(files.config, tensor::DType::kBF16);
  files.reader = std::make_unique<weights::RandomReader>(0, plan.TensorShapes());
  files.random_weights = true;
  const int sequences = subject.grid().step_sequences;
  FB_ASSIGN_OR_RETURN(const double one, OverheadOf(subject, files, 1, runtime));
  FB_ASSIGN_OR_RETURN(const double many, OverheadOf(subject, files, sequences, runtime));
  const double each = std::max(many - one, 0.0) / (sequences - 1);
  SetNumber(profile, "step_overhead_s", std::max(one - each, 0.0), cost::Mark::kMeasured,
            "decode steps of one sequence of a model of one small layer, operations not counted");
  SetNumber(profile, "sequence_overhead_s", each, cost::Mark::kMeasured,
            fmt::format("the same with {} sequences", sequences));
  return base::Status::Ok();
}

}  // namespace forebay::profile
