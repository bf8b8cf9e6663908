#include "engine/engine_run.h"

#include "engine/refusal.h"

namespace forebay::engine {

EngineRun::EngineRun(runtime::Runtime& runtime, const Parts& parts)
    : runtime_(runtime),
      parts_(parts),
      queue_(runtime, parts.replicas, parts.most_ahead, parts.source, parts.sink, parts.replay,
             &parts.choices_ahead) {}

void EngineRun::TakeRequests(Replica& replica, bool wait) {
  Choices& choices = replica.choices();
  const auto tell = [&] {
    ReplicaLoad load = choices.load();
    load.full = !choices.WantsRequests();
    load.full_of_people = !choices.WantsInteractive();
    queue_.SetLoad(replica.index(), load);
  };
  const auto accept = [&](TakenRequest taken) {
    if (taken.returned) {
      choices.TakeReturned(std::move(taken.returned));
      return;
    }
    const int64_t id = taken.request.id;
    std::optional<RequestResult> refusal = RefusalOf(taken.request, parts_.facts);
    // It may have been given up since it was read.
    if (parts_.cancellations.Contains(id)) refusal = CancelledResult(id);
    if (refusal) {
      queue_.Finish(replica.index(), std::move(*refusal));
      parts_.cancellations.Forget(id);
      return;
    }
    auto state = MakeRequestState(std::move(taken.request), parts_.context, taken.expected_output);
    for (const auto& sequence : state->sequences) sequence->salt.salt = parts_.prefix_salt;
    choices.Take(std::move(state));
  };
  if (replica.WantsForecast())
    replica.Forecast(queue_.Due(), runtime::SecondsOf(runtime_.Now() - parts_.start));
  if (choices.WantsBatch() && !stop_) {
    if (std::optional<TakenRequest> taken = queue_.NextBatch(replica.index()))
      accept(std::move(*taken));
  }
  while (!queue_.ended(replica.index()) && !stop_) {
    // Where there is no room but what batches can give up, those come that these give way to.
    double due_by = schedule::kNoDeadline;
    if (!choices.WantsRequests()) {
      const bool hurried = choices.WantsHurried();
      if (!hurried && !choices.WantsInteractive()) break;
      due_by = hurried ? choices.hurried_until() : -schedule::kNoDeadline;
    }
    // While choices run the device must not wait for a slow line, nor others for this replica.
    tell();
    std::optional<TakenRequest> taken = queue_.Next(
        replica.index(), replica.steps(), replica.policy(), choices.idle() && wait, due_by);
    if (!taken) return;
    accept(std::move(*taken));
  }
  if (!queue_.ended(replica.index())) tell();
}

void EngineRun::GiveBack(int replica, std::vector<Gift> gifts) {
  std::vector<std::unique_ptr<RequestState>> requests;
  for (Gift& gift : gifts) {
    // Nobody will pull them: the giver closes their sequences.
    for (const auto& loan : gift.loans) loan->over = true;
    requests.push_back(std::move(gift.state));
  }
  queue_.Return(replica, std::move(requests));
}

void EngineRun::GiveBack(Replica& replica, std::vector<Gift> gifts) {
  std::vector<RequestResult> finished;
  queue_.Return(replica.index(), replica.GiveBack(parts_.context, &finished));
  GiveBack(replica.index(), std::move(gifts));
  Deliver(replica, &finished);
}

std::vector<std::unique_ptr<RequestState>> EngineRun::TakeReturned() {
  if (parts_.hand_over) GiveBack(-1, parts_.hand_over->TakeRest());
  return queue_.TakeReturned();
}

bool EngineRun::ended(const Replica& replica) const {
  return replica.role() == GroupRole::kGeneration ? parts_.hand_over->done()
                                                  : queue_.ended(replica.index());
}

bool EngineRun::Cancel(Replica& replica) {
  if (!parts_.cancellations.any()) return true;
  const auto cancelled = [this](int64_t id) { return parts_.cancellations.Contains(id); };
  std::vector<RequestResult> finished;
  replica.choices().Cancel(cancelled, &finished);
  for (const int64_t id : queue_.Withdraw(replica.index(), cancelled))
    finished.push_back(CancelledResult(id));
  if (parts_.hand_over) {
    for (const Gift& gift : parts_.hand_over->Withdraw(cancelled)) {
      queue_.Move(gift.from, replica.index());
      finished.push_back(CancelledResult(gift.state->request.id));
      // Nobody will pull them: the giver closes their sequences.
      for (const auto& loan : gift.loans) loan->over = true;
    }
  }
  return Deliver(replica, &finished);
}

bool EngineRun::Deliver(Replica& replica, std::vector<RequestResult>* finished) {
  if (!finished->empty() && parts_.first_result_seconds < 0)
    parts_.first_result_seconds = runtime::SecondsOf(runtime_.Now() - parts_.start);
  for (ChoicePiece& piece : replica.choices().TakePieces()) queue_.Progress(std::move(piece));
  for (RequestResult& result : *finished) {
    const int64_t id = result.id;
    queue_.Finish(replica.index(), std::move(result));
    parts_.cancellations.Forget(id);
  }
  finished->clear();
  return !queue_.sink_failed();
}

void EngineRun::Observe(StepRecord record) {
  const double start = runtime::SecondsOf(parts_.start);
  record.begin_seconds -= start;
  record.end_seconds -= start;
  const std::lock_guard lock(observer_mutex_);
  parts_.observer->OnStep(record);
}

}  // namespace forebay::engine
