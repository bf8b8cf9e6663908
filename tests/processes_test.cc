// Ranks that are processes: two of this program, each with one rank of a group, pull weights out of
// each other's memory and give the digests of one rank. Nothing but the group's memory files is
// common to them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <set>

#include "choose/create_engine.h"
#include "choose/decide.h"
#include "engine/replica.h"
#include "fabric/shared/shared_group.h"
#include "runtime/real/real_runtime.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"

namespace forebay {
namespace {

constexpr int kRanks = 2, kRequests = 12, kMeetChannel = 15;
constexpr runtime::TimeNs kTimeout = 60'000'000'000;
enum ExitCode { kDone = 0, kFailed = 3 };
// What becomes of a rank's process after its first step.
enum class Fate : uint8_t { kLives, kDies, kStops };

Request MakeRequest(int line) {
  Request request;
  request.id = request.line = line;
  request.prompts = {{}};
  for (int t = 0; t < 5 + line * 11 % 60; ++t)
    request.prompts[0].push_back((line * 31 + t * 7) % 250);
  request.sampling.max_tokens = 4 + line % 9;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = line % 2 == 0 ? 0.0f : 1.0f;
  return request;
}

// What the ranks share, by name.
struct Sharing {
  const char *name, *model, *layout;
  FfnMode mode = FfnMode::kPull;
};
constexpr Sharing kSharings[] = {
    {"by_layer", "llama3-gqa", "dp=2,weights=by_layer,pool=3"},
    {"striped", "llama3-gqa", "dp=2,weights=striped,pool=3"},
    {"experts", "qwen3-moe", "dp=2,experts=by_expert"},
    {"routed", "qwen3-moe", "dp=2,experts=by_expert", FfnMode::kRouted},
};
const Sharing& SharingOf(std::string_view name) {
  return *std::ranges::find(kSharings, name,
                            [](const Sharing& sharing) { return std::string_view(sharing.name); });
}

layout::EngineOptions Options(const std::string& devices, const std::string& layout,
                              FfnMode mode = FfnMode::kPull) {
  layout::EngineOptions options;
  options.machine.devices = *layout::ParseDevices(devices);
  options.layout = *layout::ParseLayout(layout);
  options.machine.memory_bytes = 192 << 20;
  options.limits.max_model_len = 128;
  options.limits.max_num_batched_tokens = 48;
  options.limits.max_num_seqs = 8;
  options.machine.threads = 1;
  options.digest = true;
  options.ship.mode = StepMode{.ffn = mode};
  return options;
}

std::string LineOf(const RequestResult& result) {
  return fmt::format("{} {} {:016x}", result.id, fmt::join(result.choices[0].tokens, ","),
                     result.choices[0].digest);
}

base::Result<engine::ModelFiles> Open(const Sharing& sharing) {
  return engine::OpenModel(golden::Path(fmt::format("models/{}", sharing.model)), false, 0);
}

// One rank's process.
class RankProcess {
 public:
  RankProcess(int rank, const fabric::SharedGroup& group) : rank_(rank), group_(group) {}

  // Prints a line for each of its results, "pulled <bytes>", of these "routed <bytes>", and "took
  // <ns>", the time of its steps after the first.
  base::Status Run(const Sharing& sharing, Fate fate) {
    FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, Open(sharing));
    const layout::EngineOptions options = Options("2xcpu", sharing.layout, sharing.mode);
    FB_ASSIGN_OR_RETURN(const layout::LayoutPlan plan, choose::Decide(options, files.config));
    FB_ASSIGN_OR_RETURN(fabric_, fabric::JoinSharedGroup(*runtime_, group_, rank_, kTimeout));
    FB_RETURN_IF_ERROR(MakeReplica(plan, files));
    engine::Rank& rank = *replica_->ranks()[0];
    FB_RETURN_IF_ERROR(Meet(rank.device()));  // all have loaded and published
    FB_RETURN_IF_ERROR(rank.Connect());
    const engine::SequenceContext context{.max_model_len = options.limits.max_model_len};
    for (int line = rank_; line < kRequests; line += kRanks)
      replica_->choices().Take(engine::MakeRequestState(MakeRequest(line), context));
    std::vector<RequestResult> results;
    runtime::TimeNs first = 0;
    while (!replica_->choices().idle()) {
      if (replica_->Step(&results, nullptr) == engine::StepEnd::kStalled)
        return {engine::kGroupFailed, replica_->what_stalled()};
      if (first != 0) continue;
      if (fate != Fate::kLives) raise(fate == Fate::kDies ? SIGKILL : SIGSTOP);
      first = runtime_->Now();
    }
    for (const RequestResult& result : results) std::printf("%s\n", LineOf(result).c_str());
    std::printf("pulled %llu\n", static_cast<unsigned long long>(rank.bytes_pulled()));
    std::printf("routed %lld\n", static_cast<long long>(rank.pool()->bytes_wanted()));
    std::printf("took %lld\n", static_cast<long long>(runtime_->Now() - first));
    std::fflush(stdout);
    return Meet(rank.device());  // nobody's memory goes before
  }

 private:
  base::Status MakeReplica(const layout::LayoutPlan& plan, const engine::ModelFiles& files) {
    const layout::MemoryPlan& memory = plan.ranks[0].memory;
    FB_ASSIGN_OR_RETURN(auto device,
                        device::CreateCpuDevice(
                            *runtime_, {.rank = rank_,
                                        .memory_bytes = plan.machine.budget_bytes,
                                        .shared_memory = group_.memory[static_cast<size_t>(rank_)],
                                        .scratch_bytes = plan.machine.scratch_bytes}));
    const engine::Membership membership{.fabric = fabric_.get(),
                                        .peers = {.ranks = {0, 1}, .my_index = rank_}};
    const engine::RankParts parts{.memory = memory,
                                  .kernels = *plan.kernels,
                                  .reader = files.reader.get(),
                                  .digest = true,
                                  .pool = &plan.ranks[0].request.pool[static_cast<size_t>(rank_)]};
    std::vector<std::unique_ptr<engine::Rank>> ranks(1);
    FB_ASSIGN_OR_RETURN(ranks[0], engine::Rank::Create(std::move(device), parts, membership));
    FB_ASSIGN_OR_RETURN(auto policy, schedule::CreatePolicy("continuous"));
    const engine::ReplicaOptions options{
        .choices = {.limits = {.max_num_seqs = plan.machine.max_num_seqs,
                               .max_num_batched_tokens = plan.machine.max_num_batched_tokens,
                               .total_blocks = memory.num_blocks},
                    .max_blocks_per_sequence = memory.max_blocks_per_sequence},
        // Two steps for which those experts come that have rows, two for which all do.
        .mode = {.wanted = {.ffn = FfnMode::kPull},
                 .routed_rows = plan.routed_rows,
                 .flip_every = plan.routed_rows > 0 ? 2 : 0}};
    replica_ =
        std::make_unique<engine::Replica>(*runtime_, std::move(ranks), std::move(policy), options);
    return base::Status::Ok();
  }

  base::Status Meet(device::Device& device) {
    ++meetings_;
    fabric_->Post(device.compute(), 1 - rank_, kMeetChannel, meetings_);
    fabric_->Await(device.compute(), 1 - rank_, kMeetChannel, meetings_);
    return device.Synchronize(device.compute());
  }

  const int rank_;
  const fabric::SharedGroup group_;
  const std::unique_ptr<runtime::Runtime> runtime_ = runtime::CreateRealRuntime();
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<engine::Replica> replica_;
  uint64_t meetings_ = 0;
};

// The program as a rank: rank <index> <sharing> <fate> <file> <file> <file>.
int RunRank(char** argv) {
  const fabric::SharedGroup group{.directory = atoi(argv[5]),
                                  .memory = {atoi(argv[6]), atoi(argv[7])}};
  RankProcess process(atoi(argv[2]), group);
  const base::Status status = process.Run(SharingOf(argv[3]), static_cast<Fate>(atoi(argv[4])));
  if (!status.ok()) std::printf("failed: %s\n", status.ToString().c_str());
  std::fflush(stdout);
  return status.ok() ? kDone : kFailed;
}

struct Ended {
  std::set<std::string> lines;
  int64_t took = 0;
  int status = 0;  // waitpid's
};

class TwoProcesses : public testing::Test {
 protected:
  // `fate`: of rank 1. Where it stops it goes on when the other one has done its steps.
  std::array<Ended, kRanks> RunBoth(const std::string& sharing, Fate fate = Fate::kLives) {
    const fabric::SharedGroup group = fabric::CreateSharedGroup(kRanks).value();
    std::array<pid_t, kRanks> pids;
    std::array<int, kRanks> outputs;
    for (int rank = 0; rank < kRanks; ++rank)
      pids[rank] = Start(rank, sharing, rank == 1 ? fate : Fate::kLives, group, &outputs[rank]);
    std::array<Ended, kRanks> ended;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::FILE* const output = fdopen(outputs[rank], "r");
      std::array<char, 4096> line;
      while (std::fgets(line.data(), line.size(), output)) {
        const std::string text(line.data());
        if (!text.starts_with("took ")) {
          ended[rank].lines.insert(text);
          continue;
        }
        ended[rank].took = std::stoll(text.substr(5));
        if (rank == 0 && fate == Fate::kStops) GoOn(pids[1]);
      }
      std::fclose(output);
      EXPECT_EQ(waitpid(pids[rank], &ended[rank].status, 0), pids[rank]);
    }
    for (const int file : group.memory) close(file);
    close(group.directory);
    return ended;
  }

  // REQUIRES: the process stops, or has stopped.
  static void GoOn(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    EXPECT_TRUE(WIFSTOPPED(status)) << status;
    kill(pid, SIGCONT);
  }

  static pid_t Start(int rank, const std::string& sharing, Fate fate,
                     const fabric::SharedGroup& group, int* output) {
    int ends[2];
    FB_CHECK(pipe2(ends, O_CLOEXEC) == 0, "no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::vector<std::string> words = {"processes_test",
                                      "rank",
                                      std::to_string(rank),
                                      sharing,
                                      std::to_string(static_cast<int>(fate)),
                                      std::to_string(group.directory),
                                      std::to_string(group.memory[0]),
                                      std::to_string(group.memory[1])};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = -1;
    FB_CHECK(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ) == 0,
             "no process");
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *output = ends[0];
    return pid;
  }
};

TEST_F(TwoProcesses, PullFromEachOtherAndGiveTheDigestsOfOneRank) {
  const auto alone = [](const Sharing& sharing) {
    std::set<std::string> expected;
    const engine::ModelFiles files = std::move(*Open(sharing));
    const auto runtime = runtime::CreateRealRuntime();
    const auto engine = choose::CreateEngine(*runtime, Options("cpu", ""), files, nullptr);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    std::vector<Request> requests;
    for (int line = 0; line < kRequests; ++line) requests.push_back(MakeRequest(line));
    for (const RequestResult& result : testing_support::RunAll(**engine, std::move(requests)))
      expected.insert(LineOf(result) + "\n");
    EXPECT_EQ(expected.size(), static_cast<size_t>(kRequests));
    return expected;
  };
  for (const Sharing& sharing : kSharings) {
    std::set<std::string> lines;
    for (const Ended& ended : RunBoth(sharing.name)) {
      EXPECT_TRUE(WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == kDone) << ended.status;
      for (const std::string& line : ended.lines) {
        const bool pulled = line.starts_with("pulled"), routed = line.starts_with("routed");
        if (!pulled && !routed) {
          lines.insert(line);
        } else {
          const bool some = pulled || sharing.mode == FfnMode::kRouted;
          EXPECT_EQ(std::stoull(line.substr(7)) > 0, some) << sharing.name << " " << line;
        }
      }
    }
    EXPECT_EQ(lines, alone(sharing)) << sharing.name;
  }
}

// A rank that stops for as long as the other one works costs that nothing: it is read, and not
// asked. It stops before the other's second step and goes on after its last, so that every pull
// between meets a stopped owner; a stop of seconds would only take as many more steps of that kind.
// A slice of the scheduler's is no loss: what is run takes milliseconds.
TEST_F(TwoProcesses, WhoPullsDoesNotWaitForARankThatStops) {
  constexpr int64_t kSlice = 4'000'000;
  for (const char* sharing : {"experts", "routed"}) {
    std::set<std::string> lines;
    std::array<int64_t, 2> least = {INT64_MAX, INT64_MAX};
    // Whatever else the machine does in these milliseconds: the best of as many as it takes.
    for (int round = 0; round < 20; ++round) {
      for (const Fate fate : {Fate::kLives, Fate::kStops}) {
        const auto ended = RunBoth(sharing, fate);
        for (const Ended& rank : ended)
          EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == kDone) << rank.status;
        int64_t& took = least[fate == Fate::kStops ? 1 : 0];
        took = std::min(took, ended[0].took);
        if (lines.empty()) lines = ended[0].lines;
        EXPECT_EQ(ended[0].lines, lines) << sharing;
      }
      if (least[1] <= least[0] + least[0] / 10) break;
    }
    EXPECT_LE(least[1], least[0] + least[0] / 10 + kSlice) << sharing;
  }
}

// The dead rank's memory stays, and so do its weights; who awaits it learns that it is gone.
TEST_F(TwoProcesses, TheDeathOfOneIsAnErrorOfTheOther) {
  const auto ended = RunBoth("by_layer", Fate::kDies);
  EXPECT_TRUE(WIFSIGNALED(ended[1].status)) << ended[1].status;
  EXPECT_TRUE(WIFEXITED(ended[0].status) && WEXITSTATUS(ended[0].status) == kFailed)
      << ended[0].status;
  EXPECT_TRUE(ended[0].lines.contains(
      "failed: rank 1 of 2 is gone: its process has ended [fabric_failed]\n"))
      << testing::PrintToString(ended[0].lines);
}

TEST_F(TwoProcesses, ARankThatNeverComesIsAnError) {
  const fabric::SharedGroup group = fabric::CreateSharedGroup(2).value();
  const auto runtime = runtime::CreateRealRuntime();
  const auto fabric = fabric::JoinSharedGroup(*runtime, group, 0, 100'000'000);
  EXPECT_EQ(fabric.status().code(), fabric::kFabricFailed);
  EXPECT_EQ(fabric.status().message(), "rank 1 of 2 did not join the group within 0.1s");
}

TEST_F(TwoProcesses, OnlySharedMemoryIsPublished) {
  const fabric::SharedGroup group = fabric::CreateSharedGroup(1).value();
  const auto runtime = runtime::CreateRealRuntime();
  const auto fabric = fabric::JoinSharedGroup(*runtime, group, 0, 0);
  ASSERT_TRUE(fabric.ok()) << fabric.status().ToString();
  std::byte data[64];
  EXPECT_EQ(
      (*fabric)->Publish({.rank = 0, .id = 0, .name = "own", .data = data, .bytes = 64}).code(),
      base::kInvalidArgument);
  EXPECT_EQ(fabric::CreateSharedGroup(fabric::kMaxSharedRanks + 1).status().code(),
            base::kInvalidArgument);
}

}  // namespace
}  // namespace forebay

int main(int argc, char** argv) {
  if (argc == 8 && std::string_view(argv[1]) == "rank") return forebay::RunRank(argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
