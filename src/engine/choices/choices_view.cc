#include "engine/choices/choices_view.h"

#include <algorithm>

#include "schedule/step_share.h"

namespace forebay::engine {
namespace {

SharedPrefix& PrefixOf(const Sequence& sequence) {
  return sequence.request->prefixes[static_cast<size_t>(sequence.prefix_index)];
}

// Until what a sibling computes is committed, which it then shares.
bool WaitsForSibling(const Sequence& sequence) {
  const SharedPrefix& prefix = PrefixOf(sequence);
  return prefix.computes != nullptr && prefix.computes != &sequence && !sequence.parked &&
         prefix.tokens > 0;
}

// Whether no step may have more rows of the choice for now.
bool IsHeld(const Sequence* sequence) { return sequence->in_flight || sequence->going_over; }

}  // namespace

int64_t ChoicesView::MaxCached(const Sequence& sequence) const {
  const int64_t most = sequence.max_cached();
  // A choice of more than the device holds finds room to go on.
  return from_.streaming.on()
             ? std::min(most, int64_t{from_.book.num_blocks() / 2} * kv::kBlockTokens)
             : most;
}

kv::CachedPrefix ChoicesView::FindCached(Sequence* sequence) const {
  return from_.states.Within(
      *sequence, from_.book.FindCached(sequence->tokens, sequence->salt, MaxCached(*sequence),
                                       &sequence->prefix_keys));
}

const schedule::StepView& ChoicesView::Update(bool share, int64_t now_us, double price_factor) {
  view_.running.clear();
  view_.elsewhere.clear();
  view_.waiting.clear();
  running_.clear();
  const int64_t movable = from_.streaming.Movable(from_.lists.running());
  // What should not be streamed comes back first.
  view_.available_blocks =
      std::max<int64_t>(0, from_.book.available_blocks() + movable - from_.streaming.excess());
  view_.later_blocks = from_.streaming.room() - movable;
  view_.now_us = now_us;
  view_.overcommit = options_.overcommit;
  view_.prices = options_.prices.get();
  view_.price_factor = price_factor;
  view_.mean_tokens = from_.foresight.mean_tokens();
  const int64_t running = std::ssize(from_.lists.running());
  const schedule::StepShare part = schedule::ShareOf(
      options_.limits, {.running = running,
                        .waiting = std::ssize(from_.lists.waiting()),
                        .in_flight = std::ranges::count_if(from_.lists.running(), IsHeld),
                        .loans = from_.loans.count(),
                        .lent_blocks = from_.loans.blocks(),
                        .steps = share ? options_.steps_in_flight : 1});
  view_.limits = part.limits;
  view_.more_places = options_.limits.max_num_seqs - from_.loans.count() -
                      (running - part.running) - part.limits.max_num_seqs;
  view_.limits.total_blocks += from_.streaming.limit();
  view_.limits.streamed_blocks = from_.streaming.limit();
  // No policy preempts where one more block for each is there, and blocks for people who wait, but
  // for those that are late.
  const ChoiceLists::Count& people = from_.lists.interactive();
  const int64_t for_people =
      options_.by_service ? people.waiting_rows / kv::kBlockTokens + people.waiting : 0;
  const bool hurries = view_.hurried_until > -schedule::kNoDeadline,
             short_of_blocks = hurries || view_.available_blocks < running + for_people;
  for (Sequence* sequence : from_.lists.running()) {
    // Who is in a step under way, or is left to the share of a later one, is seen and cannot be
    // planned.
    if (IsHeld(sequence) || static_cast<int64_t>(view_.running.size()) == part.running) {
      view_.elsewhere.push_back(ViewOf(*sequence, false));
      continue;
    }
    view_.running.push_back(ViewOf(*sequence, short_of_blocks));
    running_.push_back(sequence);
  }
  if (options_.by_service) ViewServices();
  ViewWaiting();
  return view_;
}

void ChoicesView::ViewServices() {
  schedule::Held interactive;
  batch_held_ = later_held_ = {};
  for (const std::vector<schedule::RunningView>* choices : {&view_.running, &view_.elsewhere}) {
    for (const schedule::RunningView& choice : *choices) {
      const bool batch = choice.service == Service::kBatch;
      // Those of other steps cannot give way.
      if (batch && choices == &view_.elsewhere) continue;
      (batch ? batch_held_ : interactive).Add(choice.reserved_blocks);
      if (batch && choice.deadline > view_.hurried_until) later_held_.Add(choice.reserved_blocks);
    }
  }
  interactive_peak_.Add(view_.now_us, interactive);
  view_.interactive_peak = interactive_peak_.most();
}

schedule::RunningView ChoicesView::ViewOf(const Sequence& sequence, bool short_of_blocks) const {
  const int64_t reserved = std::ssize(from_.book.table(0, sequence.id));
  int64_t exclusive = 0;
  if (short_of_blocks) {
    exclusive = from_.book.exclusive_blocks(sequence.id);
    // What could be streamed counts as available already.
    const int64_t full =
        std::max<int64_t>(0, exclusive - (reserved - sequence.computed / kv::kBlockTokens));
    exclusive -=
        std::clamp<int64_t>(view_.available_blocks - from_.book.available_blocks(), 0, full);
  }
  return {.order = sequence.facts.job_order,
          .known_tokens = sequence.known(),
          .generated = sequence.generated(),
          .computed_tokens = sequence.computed,
          .reserved_blocks = reserved,
          .streamed_blocks = from_.streaming.on() ? std::ssize(sequence.streamed) : 0,
          .exclusive_blocks = exclusive,
          .remaining_output = OutputHere(sequence),
          .expected_left = from_.foresight.ExpectedLeft(sequence),
          .decoding = sequence.known() - sequence.computed == 1,
          .service = sequence.service(),
          .deadline = sequence.facts.deadline};
}

int64_t ChoicesView::OutputHere(const Sequence& sequence) const {
  return options_.role == GroupRole::kContext ? std::min<int64_t>(sequence.room(), 1)
                                              : sequence.room();
}

void ChoicesView::ViewWaiting() {
  // In order, as far as this step can admit them: looking up what the cache holds of a choice is
  // not free.
  waiting_.clear();
  const size_t most = static_cast<size_t>(view_.limits.max_num_seqs) - view_.running.size();
  int64_t rows = options_.limits.max_num_batched_tokens,
          blocks = view_.available_blocks + view_.later_blocks;
  const std::deque<Sequence*>& waiting = from_.lists.waiting();
  size_t next = 0;
  for (; next < waiting.size(); ++next) {
    Sequence* const sequence = waiting[next];
    // Batch choices give way to interactive ones, and to those that are late.
    const bool person = sequence->service() == Service::kInteractive,
               late = sequence->facts.deadline <= view_.hurried_until;
    const schedule::Held given = !options_.by_service ? schedule::Held()
                                 : person             ? batch_held_
                                 : late               ? later_held_
                                                      : schedule::Held();
    if (rows <= 0 || blocks + given.blocks < 0 ||
        view_.waiting.size() >= most + static_cast<size_t>(given.choices))
      break;
    // It is passed over and keeps its place; those behind it may go ahead.
    if (options_.prefix_caching && WaitsForSibling(*sequence)) continue;
    const schedule::WaitingView& added = AddWaiting(sequence);
    rows -= added.known_tokens - added.cached_tokens;
    // Cached blocks that somebody holds are shared; those that nobody holds count as available, and
    // are taken.
    blocks -= (added.known_tokens - added.held_tokens) / kv::kBlockTokens;
  }
  // However many people wait, the first batch choice is seen.
  const auto people = static_cast<size_t>(from_.lists.interactive().waiting);
  if (options_.by_service && people > 0 && next <= people && people < waiting.size() &&
      !WaitsForSibling(*waiting[people]))
    AddWaiting(waiting[people]);
}

const schedule::WaitingView& ChoicesView::AddWaiting(Sequence* sequence) {
  kv::CachedPrefix cached = FindCached(sequence);
  if (sequence->parked) {
    // It comes back whole; what the cache has of it need not be filled.
    cached.tokens = sequence->parked->computed;
    cached.held_tokens =
        from_.parking.shared_keys() ? std::min(cached.held_tokens, cached.tokens) : 0;
  } else {
    cached.tokens += from_.parking.FindPrefix(sequence, cached.tokens, MaxCached(*sequence));
    // Who computed the prefix may be gone, and its blocks with it: one computes it again.
    SharedPrefix& prefix = PrefixOf(*sequence);
    if (cached.tokens < std::min(prefix.tokens, MaxCached(*sequence))) {
      prefix.computes = sequence;
      sequence->may_compute_prefix = true;
    }
  }
  waiting_.push_back(sequence);
  return view_.waiting.emplace_back(
      schedule::WaitingView{.order = sequence->facts.job_order,
                            .known_tokens = sequence->known(),
                            .cached_tokens = cached.tokens,
                            .held_tokens = cached.held_tokens,
                            .remaining_output = OutputHere(*sequence),
                            .expected_left = from_.foresight.ExpectedLeft(*sequence),
                            .service = sequence->service(),
                            .deadline = sequence->facts.deadline});
}

}  // namespace forebay::engine
