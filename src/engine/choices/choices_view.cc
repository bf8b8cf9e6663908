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
bool IsHeld(const Sequence* sequence) {
  return sequence->in_flight || sequence->request->going_over;
}

}  // namespace

int64_t ChoicesView::MaxCached(const Sequence& sequence) const {
  const int64_t most = sequence.max_cached();
  // A choice of more than the device holds finds room to go on.
  return from_.streaming.on()
             ? std::min(most, int64_t{from_.book.num_blocks() / 2} * kv::kBlockTokens)
             : most;
}

kv::CachedPrefix ChoicesView::FindCached(Sequence* sequence) const {
  return from_.book.FindCached(sequence->tokens, sequence->salt, MaxCached(*sequence),
                               &sequence->prefix_keys);
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
  // No policy preempts where one more block for each is there, and blocks for people who wait.
  const ChoiceLists::Count& people = from_.lists.interactive();
  const int64_t for_people =
      options_.by_service ? people.waiting_rows / kv::kBlockTokens + people.waiting : 0;
  const bool short_of_blocks = view_.available_blocks < running + for_people;
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
  batch_held_ = {};
  for (const std::vector<schedule::RunningView>* choices : {&view_.running, &view_.elsewhere}) {
    for (const schedule::RunningView& choice : *choices) {
      const bool batch = choice.service == Service::kBatch;
      // Those of other steps cannot give way.
      if (batch && choices == &view_.elsewhere) continue;
      schedule::Held& held = batch ? batch_held_ : interactive;
      ++held.choices;
      held.blocks += choice.reserved_blocks;
    }
  }
  interactive_peak_.Add(view_.now_us, interactive);
  view_.interactive_peak = interactive_peak_.most();
}

schedule::RunningView ChoicesView::ViewOf(const Sequence& sequence, bool short_of_blocks) const {
  const int64_t exclusive = short_of_blocks ? from_.book.exclusive_blocks(sequence.id) : 0;
  // What could be streamed counts as available already.
  const int64_t reserved = std::ssize(from_.book.table(0, sequence.id)),
                full = std::max<int64_t>(
                    0, exclusive - (reserved - sequence.computed / kv::kBlockTokens)),
                counted = std::clamp<int64_t>(
                    view_.available_blocks - from_.book.available_blocks(), 0, full);
  return {.order = sequence.job_order(),
          .known_tokens = sequence.known(),
          .generated = sequence.generated(),
          .computed_tokens = sequence.computed,
          .reserved_blocks = reserved,
          .streamed_blocks = std::ssize(sequence.streamed),
          .exclusive_blocks = exclusive - counted,
          .remaining_output = OutputHere(sequence),
          .expected_left = from_.foresight.ExpectedLeft(sequence),
          .decoding = sequence.known() - sequence.computed == 1,
          .service = sequence.service(),
          .deadline = sequence.deadline()};
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
  for (Sequence* sequence : from_.lists.waiting()) {
    // Batch choices give way to interactive ones.
    const bool first = options_.by_service && sequence->service() == Service::kInteractive;
    const schedule::Held given = first ? batch_held_ : schedule::Held();
    if (rows <= 0 || blocks + given.blocks < 0 ||
        view_.waiting.size() >= most + static_cast<size_t>(given.choices))
      return;
    // It is passed over and keeps its place; those behind it may go ahead.
    if (options_.prefix_caching && WaitsForSibling(*sequence)) continue;
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
      if (cached.tokens < std::min(prefix.tokens, MaxCached(*sequence))) prefix.computes = sequence;
    }
    view_.waiting.push_back({.order = sequence->job_order(),
                             .known_tokens = sequence->known(),
                             .cached_tokens = cached.tokens,
                             .held_tokens = cached.held_tokens,
                             .remaining_output = OutputHere(*sequence),
                             .expected_left = from_.foresight.ExpectedLeft(*sequence),
                             .service = sequence->service()});
    waiting_.push_back(sequence);
    rows -= sequence->known() - cached.tokens;
    // Cached blocks that somebody holds are shared; those that nobody holds count as available, and
    // are taken.
    blocks -= (sequence->known() - cached.held_tokens) / kv::kBlockTokens;
  }
}

}  // namespace forebay::engine
