#include "model.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <future>
#include <thread>

#include "engine/group_control.h"
#include "kv/book/block_tokens.h"
#include "settings/mute.h"
#include "settings/table.h"
#include "trace/trace.h"

namespace forebay::python {
namespace {

inline constexpr base::ErrorCode kProcessForked{"process_forked"};
// How long devices may take to be freed of which one has failed: it may hang.
constexpr std::chrono::seconds kPatience(10);

// "--name=text", or a switch and what it says.
settings::Given GivenBy(const std::string& flag) {
  const size_t equals = std::min(flag.find('='), flag.size());
  const std::string name = flag.substr(0, equals);
  const settings::Setting* const setting = settings::Find(name, settings::kPython);
  if (setting == nullptr)
    throw Failure{base::kInvalidArgument.name, fmt::format("{} is no setting", name), true};
  if (equals < flag.size()) return {setting, flag.substr(equals + 1)};
  return {setting, name == setting->name() ? "true" : "false"};
}

}  // namespace

void Throw(const base::Status& status) {
  const bool usage = job::ExitCodeOf(status) == job::ExitCode::kUsage;
  throw Failure{status.code().name, status.message(), usage};
}

std::vector<std::tuple<std::string, bool, bool>> FlagNames() {
  std::vector<std::tuple<std::string, bool, bool>> names;
  for (const settings::Group& group : settings::Table()) {
    for (const settings::Setting& setting : group.settings) {
      if ((setting.callers & settings::kPython) == 0) continue;
      using Arity = settings::Value::Arity;
      const Arity arity = setting.value.arity;
      for (const std::string_view name : {setting.name(), setting.opposite()})
        if (!name.empty())
          names.emplace_back(name.substr(2), arity != Arity::kSwitch, arity == Arity::kMany);
    }
  }
  return names;
}

settings::RunOptions ParseFlags(const std::string& model, const Flags& flags) {
  std::vector<settings::Given> given;
  for (const std::string& flag : flags) given.push_back(GivenBy(flag));
  settings::RunOptions options;
  options.engine.model = model;
  Check(settings::Read(given, &options));
  Check(settings::CheckMute(options));
  return options;
}

bool FreeEngine(open::OpenedModel& model) {
  if (!model.engine().failed()) {
    model.CloseEngine();
    return true;
  }
  const auto freed = std::make_shared<std::promise<void>>();
  const std::future<void> end = freed->get_future();
  std::thread([&model, freed] {
    model.CloseEngine();
    freed->set_value();
  }).detach();
  return end.wait_for(kPatience) == std::future_status::ready;
}

Model::Model(const std::string& name, const Flags& given, const std::string& trace)
    : flags_(ParseFlags(name, given)) {
  const GilRelease release;
  std::optional<trace::LengthTrace> lengths;
  if (!trace.empty()) {
    auto read = trace::ReadTrace(trace, {});
    if (!read.ok()) throw Failure{read.status().code().name, read.status().message(), true};
    lengths = std::move(*read);
  }
  runtime_ = runtime::CreateRealRuntime();
  auto opened =
      open::OpenedModel::Open(*runtime_, flags_, {.job = {.trace = lengths ? &*lengths : nullptr}});
  if (!opened.ok()) Throw(opened.status());
  opened_ = std::move(*opened);
  isa_ = opened_->engine().isa();
  job::RequestRules rules = opened_->rules();
  rules.ends_at_context = true;
  parser_.emplace(std::move(rules), opened_->text(), &opened_->engine());
  session_ = std::make_unique<job::Session>(*runtime_, opened_->engine());
}

Model::~Model() {
  Close();
  if (!is_forked() && !hangs_) return;
  static_cast<void>(session_.release());
  static_cast<void>(opened_.release());
  static_cast<void>(runtime_.release());
}

void Model::Close() {
  if (is_forked()) return;
  const GilRelease release;
  // A second caller must not free the engine while the first still waits for its end.
  const std::lock_guard closing(closing_);
  session_->Close();
  const std::unique_lock lock(engine_mutex_);
  if (last_) return;
  last_ = Counters{opened_->engine().stats(), opened_->engine().meters()};
  hangs_ = !FreeEngine(*opened_);
}

void Model::CheckProcess() const {
  if (!is_forked()) return;
  throw Failure{kProcessForked.name,
                "this LLM was made before the process was forked; make one in the child, or start "
                "it by \"spawn\"",
                false};
}

void Model::Check() const {
  CheckProcess();
  if (session_->failed()) {
    throw Failure{engine::kGroupFailed.name,
                  "all replicas of this LLM have failed, and the log says why; make another LLM",
                  false};
  }
  if (!session_->open()) throw Failure{job::kSessionClosed.name, "this LLM is closed", false};
}

std::shared_lock<std::shared_mutex> Model::Use() const {
  std::shared_lock use(engine_mutex_);
  Check();
  return use;
}

Model::Counters Model::ReadCounters() const {
  CheckProcess();
  const GilRelease release;
  const std::shared_lock use(engine_mutex_);
  return last_ ? *last_ : Counters{opened_->engine().stats(), opened_->engine().meters()};
}

void Model::ForgetPrefixes() {
  const GilRelease release;
  const auto use = Use();
  opened_->engine().ForgetPrefixes();
}

job::BuiltLine Model::Parse(std::string* text, int64_t key) {
  const auto use = Use();
  const std::lock_guard lock(mutex_);
  return parser_->Parse(text, key);
}

job::BuiltLine Model::Build(job::Prompt prompt, const std::string& rest, int64_t key) {
  const auto use = Use();
  const std::lock_guard lock(mutex_);
  if (!asked_ || asked_->first != rest) {
    std::string text = R"({"prompt": "")" + rest + "}";
    job::ParsedLine parsed;
    if (auto error = parser_->Read(&text, &parsed)) return {.error = std::move(error)};
    asked_.emplace(rest, std::move(parsed));
  }
  job::ParsedLine line = asked_->second;
  line.prompts = {std::move(prompt)};
  return parser_->Build(std::move(line), key);
}

nb::dict Model::Facts() const {
  const ModelFacts& facts = opened_->facts();
  nb::dict dict;
  dict["model"] = facts.name;
  dict["vocab_size"] = facts.vocab_size;
  dict["max_model_len"] = facts.max_model_len;
  dict["numerics_class"] = facts.numerics_class;
  dict["system_fingerprint"] = opened_->style().system_fingerprint;
  dict["kv_capacity_tokens"] = facts.kv_capacity_tokens;
  dict["weight_bytes"] = facts.weight_bytes;
  dict["kv_bytes"] = facts.kv_bytes;
  dict["workspace_bytes"] = facts.workspace_bytes;
  dict["isa"] = isa_;
  return dict;
}

nb::dict Model::Stats() const {
  const EngineStats stats = ReadCounters().stats;
  nb::dict dict;
  for (const EngineCounter& counter : kEngineCounters) dict[counter.name] = stats.*counter.member;
  dict["step_seconds"] = stats.step_seconds;
  for (const auto& [name, count] : stats.mode_counters) dict[name.c_str()] = count;
  nb::list replicas;
  for (const ReplicaStats& replica : stats.replicas) {
    nb::dict one;
    one["steps"] = replica.steps;
    one["tokens"] = replica.tokens;
    replicas.append(one);
  }
  dict["replicas"] = replicas;
  return dict;
}

nb::dict Model::Meters() const {
  const engine::Meters meters = ReadCounters().meters;
  const job::RequestMetrics requests = session_->metrics();
  nb::dict dict, ends;
  ends["stop"] = requests.ends().stop;
  ends["length"] = requests.ends().length;
  ends["abort"] = requests.ends().abort;
  ends["error"] = requests.ends().error;
  dict["ends"] = ends;
  dict["prefix_queries"] = meters.prefix_queries;
  dict["choices_ahead"] = meters.choices_ahead + session_->num_waiting();
  dict["block_tokens"] = kv::kBlockTokens;
  nb::list histograms;
  for (const auto& [name, histogram] : requests.Histograms(meters)) {
    nb::list bounds, counts;
    for (const double bound : histogram.bounds()) bounds.append(bound);
    for (const int64_t count : histogram.counts()) counts.append(count);
    histograms.append(nb::make_tuple(name, bounds, counts, histogram.sum()));
  }
  dict["histograms"] = histograms;
  return dict;
}

nb::dict Model::Defaults() const {
  const SamplingParams params = opened_->rules().defaults;
  nb::dict dict;
  dict["temperature"] = params.temperature;
  dict["top_p"] = params.top_p;
  dict["top_k"] = params.top_k;
  dict["min_p"] = params.min_p;
  dict["repetition_penalty"] = params.repetition_penalty;
  if (params.default_max_tokens >= 0) dict["max_tokens"] = params.default_max_tokens;
  return dict;
}

const text::Tokenizer& Model::tokenizer() const {
  const text::Tokenizer* const tokenizer = opened_->text().tokenizer();
  if (!tokenizer) {
    throw Failure{base::kInvalidArgument.name, "there is no tokenizer (skip_tokenizer_init)", true};
  }
  return *tokenizer;
}

std::tuple<int32_t, std::optional<int32_t>, std::optional<int32_t>> Model::Vocabulary() const {
  return {tokenizer().vocab_size(), tokenizer().bos(), tokenizer().eos()};
}
std::vector<int32_t> Model::Encode(const std::string& text, bool add_special_tokens) const {
  return tokenizer().Encode(text, {.add_special_tokens = add_special_tokens});
}
std::string Model::Decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const {
  return tokenizer().Decode(ids, skip_special_tokens);
}
std::string Model::Render(const std::string& messages, const std::string& tools,
                          const std::string& kwargs, bool add_generation_prompt,
                          bool continue_final_message) {
  const job::ChatPrompt prompt{.messages = messages,
                               .tools = tools,
                               .chat_template_kwargs = kwargs,
                               .add_generation_prompt = add_generation_prompt,
                               .continue_final_message = continue_final_message};
  const std::lock_guard lock(mutex_);
  auto rendered = text().RenderPrompt(prompt);
  if (!rendered.ok())
    throw Failure{rendered.status().code().name, rendered.status().message(), true};
  return rendered->text;
}

void AddModel(nb::module_& module) {
  module.def("flag_names", &FlagNames);
  nb::class_<Model>(module, "Model")
      .def(nb::init<const std::string&, const Flags&, const std::string&>(), nb::arg("model"),
           nb::arg("flags"), nb::arg("trace") = "")
      .def("close", &Model::Close)
      .def("check", &Model::Check)
      .def("facts", &Model::Facts)
      .def("stats", &Model::Stats)
      .def("meters", &Model::Meters)
      .def("defaults", &Model::Defaults)
      .def("reset_prefix_cache", &Model::ForgetPrefixes)
      .def("vocabulary", &Model::Vocabulary)
      .def("encode", &Model::Encode)
      .def("decode", &Model::Decode)
      .def("render", &Model::Render);
}

}  // namespace forebay::python
