#include "engine/choices/parking.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/rng.h"

namespace forebay::engine {

std::span<const kv::PrefixKey> Parking::Keys(Sequence* sequence, int64_t first, int64_t count) {
  std::vector<kv::PrefixKey>* keys = &sequence->prefix_keys;
  kv::KeySalt salt = sequence->salt;
  if (!options_.shared_keys) {
    if (sequence->park_id == 0) sequence->park_id = next_id_++;
    salt.salt = base::Combine64(salt.salt, static_cast<uint64_t>(sequence->park_id));
    keys = &own_keys_;
    keys->clear();
  }
  kv::ExtendKeys(sequence->tokens, salt, first + count, keys);
  return std::span<const kv::PrefixKey>(*keys).subspan(static_cast<size_t>(first),
                                                       static_cast<size_t>(count));
}

bool Parking::Park(Sequence* sequence, const kv::GroupBooks& book) {
  if (!on() || sequence->computed == 0) return false;
  if (closed_) {
    ++counters_.refused;
    Forget(sequence);
    return false;
  }
  ParkedKv parked{.computed = sequence->computed};
  int64_t first = parked.computed;
  for (int group = 0; group < book.num_groups(); ++group) {
    parked.first_held.push_back(options_.streams ? 0 : book.first_held(group, sequence->id));
    first = std::min(first, parked.first_held.back());
  }
  parked.first_block = first / kv::kBlockTokens;
  const int64_t full = parked.computed / kv::kBlockTokens - parked.first_block;
  const bool open = parked.computed % kv::kBlockTokens != 0;
  const std::span<const kv::PrefixKey> keys = Keys(sequence, parked.first_block, full);
  const int64_t kv_blocks = full + (open ? 1 : 0), blocks = kv_blocks + options_.state_blocks,
                fresh = blocks - tier_.Find(keys), near = tier_.near_room() - spared_,
                far_fresh = options_.blocks.far() > 0 ? std::max<int64_t>(0, fresh - near) : 0;
  const schedule::ParkView view{.rows = parked.computed,
                                .fresh_blocks = fresh,
                                .blocks = blocks,
                                .far_fresh_blocks = far_fresh,
                                .far_blocks = far_fresh + tier_.CountFar(keys)};
  // Where a part of it was streamed it may be more than the device holds.
  const bool returns = kv_blocks < book.num_blocks();
  if (!options_.prices.preempted || !returns || !schedule::ParkPays(view, options_.prices)) {
    ++counters_.recomputed;
    Forget(sequence);
    return false;
  }
  fresh_.clear();
  std::optional<kv::TierStay> stay = tier_.Hold(keys, blocks - full, &fresh_, spared_);
  if (!stay) {
    if (++counters_.refused == 1) {
      base::Log(base::LogLevel::kWarning,
                fmt::format("the {} blocks of {} are full: preempted choices for which there is no "
                            "room are computed again",
                            options_.blocks.all(), options_.size_flag));
    }
    Forget(sequence);
    return false;
  }
  Demote(book.num_groups());
  parked.stay = *std::move(stay);
  for (const int32_t index : fresh_) {
    if (index >= kv_blocks) break;
    const auto block = static_cast<size_t>(parked.first_block + index);
    for (int group = 0; group < book.num_groups(); ++group) {
      if (static_cast<int64_t>(block) < parked.first_held[group] / kv::kBlockTokens) continue;
      moves_.down.push_back(
          {.group = group,
           .device = book.table(group, sequence->id)[block],
           .below = parked.stay.blocks[static_cast<size_t>(index)],
           .key = index < full ? SharedKey(keys[static_cast<size_t>(index)]) : kv::PrefixKey{}});
    }
  }
  parked.kv_blocks = kv_blocks;
  kv::AddStateMoves(book.num_groups(), sequence->state_place, parked.states(), &moves_.down);
  sequence->parked = std::make_unique<ParkedKv>(std::move(parked));
  ++counters_.parks;
  return true;
}

kv::BlockId Parking::Stream(Sequence* sequence, int64_t block, kv::BlockId device) {
  bool fresh = false;
  const kv::BlockId below = tier_.HoldNear(Keys(sequence, block, 1).front(), &fresh);
  Demote(/*num_groups=*/1);
  if (fresh) moves_.down.push_back({.group = 0, .device = device, .below = below});
  return below;
}

void Parking::BringBack(Sequence* sequence, kv::BlockId below, kv::GroupBooks& book) {
  const int64_t index = book.first_held(0, sequence->id) / kv::kBlockTokens - 1;
  // Nobody else writes below as long as it is read.
  const bool fresh = book.TakeBack(sequence->id, Keys(sequence, index, 1).front());
  const kv::BlockId device = book.table(0, sequence->id)[static_cast<size_t>(index)];
  tier_.NeedOnly(below);
  moving_.push_back({.stay = {.blocks = {below}}, .sequence = sequence, .brought_back = device});
  if (!fresh) return;
  moves_.up.push_back({.group = 0, .device = device, .below = below});
  moves_.up_at_once = true;
  ++counters_.blocks_up;
  ++counters_.brought_back;
}

int64_t Parking::FindPrefix(Sequence* sequence, int64_t cached, int64_t most) {
  if (!on() || !options_.shared_keys) return 0;
  int64_t found = 0;
  // Keys are hashed only as far as there is something to find.
  while (cached + (found + 1) * kv::kBlockTokens <= most &&
         tier_.Find(Keys(sequence, cached / kv::kBlockTokens + found, 1)) == 1)
    ++found;
  const int64_t rows = found * kv::kBlockTokens;
  const schedule::ParkView view{
      .rows = rows,
      .blocks = found,
      .before = cached,
      .far_blocks = tier_.CountFar(Keys(sequence, cached / kv::kBlockTokens, found))};
  // To bring a little up may take longer than to compute it.
  return schedule::ParkPays(view, options_.prices) ? rows : 0;
}

bool Parking::TakePrefix(Sequence* sequence, const kv::GroupBooks& book, int64_t cached,
                         int64_t most) {
  const int64_t rows = FindPrefix(sequence, cached, most);
  if (rows == 0) return false;
  ParkedKv found{.prefix = true,
                 .computed = cached + rows,
                 .first_block = cached / kv::kBlockTokens,
                 .first_held = std::vector<int64_t>(static_cast<size_t>(book.num_groups()))};
  fresh_.clear();
  std::optional<kv::TierStay> stay = tier_.Hold(
      Keys(sequence, found.first_block, rows / kv::kBlockTokens), false, &fresh_, spared_);
  if (!stay) return false;  // Its room is for what is streamed.
  FB_CHECK(fresh_.empty(), "{} positions were found below, and are not there", rows);
  found.stay = *std::move(stay);
  found.kv_blocks = rows / kv::kBlockTokens;
  sequence->parked = std::make_unique<ParkedKv>(std::move(found));
  return true;
}

bool Parking::stores_evicted() const {
  const schedule::ParkView block{.rows = kv::kBlockTokens, .fresh_blocks = 1, .blocks = 1};
  return on() && !closed_ && options_.shared_keys && schedule::ParkPays(block, options_.prices);
}

void Parking::BeginPlan(kv::GroupBooks& book) {
  // The copies of the last plan are enqueued: what is released here can be written by later ones
  // alone, which come behind them.
  for (const Moving& moving : moving_) tier_.Release(moving.stay);
  moving_.clear();
  std::erase_if(lent_, [&](const Lent& lent) {
    const bool over = lent.loan->over.load(std::memory_order_acquire);
    if (over) tier_.Release(lent.stay);
    return over;
  });
  // What was evicted since for other ends than a step is written over already.
  book.ForgetEvicted();
}

void Parking::StoreEvicted(kv::GroupBooks& book) {
  // They may be noted for states that are kept behind them.
  if (!options_.shared_keys) return;
  for (size_t i = 0; i < book.evicted(0).size() && !closed_; ++i) {
    const kv::PrefixKey key = book.evicted(0)[i].key;
    device_.clear();
    for (int group = 0; group < book.num_groups(); ++group) {
      const kv::EvictedBlock& evicted = book.evicted(group)[i];
      FB_CHECK(evicted.key == key, "groups that see all have evicted different blocks");
      device_.push_back(evicted.block);
    }
    fresh_.clear();
    if (!MoveDown(tier_.Hold(std::span(&key, 1), false, &fresh_, spared_), key, device_)) return;
    counters_.evicted += std::ssize(fresh_);
  }
}

void Parking::Return(Sequence* sequence, const kv::GroupBooks& book) {
  const ParkedKv& parked = *sequence->parked;
  const size_t came = moves_.up.size();
  for (int group = 0; group < book.num_groups(); ++group) {
    const std::span<const kv::BlockId> table = book.table(group, sequence->id);
    const int64_t end = parked.first_block + parked.kv_blocks;
    // Blocks before these were found in the prefix index: they are on the device already.
    for (int64_t block = book.committed(group, sequence->id) / kv::kBlockTokens; block < end;
         ++block) {
      const kv::BlockId below = parked.stay.blocks[static_cast<size_t>(block - parked.first_block)];
      moves_.up.push_back(
          {.group = group, .device = table[static_cast<size_t>(block)], .below = below});
    }
  }
  kv::AddStateMoves(book.num_groups(), sequence->state_place, parked.states(), &moves_.up);
  for (const kv::TierMove& move : std::span(moves_.up).subspan(came)) {
    ++counters_.blocks_up;
    counters_.blocks_up_far += move.below >= options_.blocks.near();
  }
  if (parked.prefix) {
    counters_.prefix_blocks_hit += std::ssize(parked.stay.blocks);
  } else {
    ++counters_.returns;
  }
  moving_.push_back({.stay = std::move(sequence->parked->stay), .sequence = sequence});
  sequence->parked.reset();
  // Its blocks count as committed with the next view, when the copies are enqueued: until then
  // nobody may share them.
  returning_.push_back(sequence);
}

void Parking::CommitReturned(kv::GroupBooks& book) {
  for (const Sequence* sequence : returning_) {
    book.CommitAdopted(sequence->id,
                       std::span(sequence->tokens).first(static_cast<size_t>(sequence->computed)));
  }
  returning_.clear();
}

void Parking::Seal(Sequence* sequence, const kv::GroupBooks& book) {
  if (!seals()) return;
  const int64_t end =
      std::min(book.committed(0, sequence->id), sequence->prompt_tokens) / kv::kBlockTokens;
  for (; sequence->sealed_blocks < end; ++sequence->sealed_blocks) {
    const kv::PrefixKey key = Keys(sequence, sequence->sealed_blocks, 1).front();
    device_.clear();
    for (int group = 0; group < book.num_groups(); ++group) {
      device_.push_back(
          book.table(group, sequence->id)[static_cast<size_t>(sequence->sealed_blocks)]);
    }
    fresh_.clear();
    // Without room now, it is tried again with the next plan: sealed_blocks has not moved.
    if (!MoveDown(tier_.HoldFar(key, &fresh_, spared_), key, device_)) return;
  }
}

bool Parking::MoveDown(std::optional<kv::TierStay> held, const kv::PrefixKey& key,
                       std::span<const kv::BlockId> device) {
  if (!held) return false;
  Demote(static_cast<int>(device.size()));
  for (int group = 0; group < std::ssize(device) && !fresh_.empty(); ++group) {
    moves_.down.push_back({.group = group,
                           .device = device[static_cast<size_t>(group)],
                           .below = held->blocks.front(),
                           .key = key});
  }
  moving_.push_back({.stay = *std::move(held)});
  return true;
}

void Parking::Demote(int num_groups) {
  for (const kv::DemotedBlock& block : tier_.TakeDemoted()) {
    for (int group = 0; group < num_groups; ++group) {
      moves_.down.push_back(
          {.group = group, .below = block.far, .key = SharedKey(block.key), .from = block.near});
    }
    moving_.push_back({.stay = {.blocks = {block.far}}});
  }
}

std::shared_ptr<kv::KvLoan> Parking::Lend(Sequence* sequence, int replica) {
  if (!options_.lends || !sequence->parked) return nullptr;
  ParkedKv& parked = *sequence->parked;
  const auto is_far = [&](kv::BlockId block) { return block >= options_.blocks.near(); };
  if (std::ranges::any_of(parked.stay.blocks, is_far)) return nullptr;
  auto loan = std::make_shared<kv::KvLoan>();
  loan->replica = replica;
  loan->choice = sequence->choice_index;
  loan->computed = parked.computed;
  loan->first_held = parked.first_held;
  loan->first_block = parked.first_block;
  const auto kv = parked.stay.blocks.begin() + parked.kv_blocks;
  loan->below.assign(parked.stay.blocks.begin(), kv);
  loan->state_below.assign(kv, parked.stay.blocks.end());
  lent_.push_back({loan, std::move(parked.stay)});
  sequence->parked.reset();
  sequence->park_id = 0;
  return loan;
}

void Parking::Forget(Sequence* sequence) {
  if (sequence->parked) tier_.Release(sequence->parked->stay);
  sequence->parked.reset();
  // Computed again it may hold blocks that it had let go when these were written.
  sequence->park_id = 0;
}

void Parking::Keep(std::span<const kv::KeptBlock> blocks) {
  std::vector<std::pair<kv::BlockId, kv::PrefixKey>> there;
  for (const kv::KeptBlock& block : blocks) there.emplace_back(block.below, block.key);
  tier_.Keep(there);
  counters_.kept += std::ssize(blocks);
}

void Parking::Lose(const kv::LostBlocks& lost, kv::GroupBooks& book,
                   std::vector<Sequence*>* broken) {
  if (!lost.closed.ok() && !std::exchange(lossy_closed_, true)) {
    const bool leaves_near = options_.blocks.far() > 0;
    if (leaves_near) tier_.CloseFar();
    closed_ = !leaves_near;
    base::Log(base::LogLevel::kWarning,
              fmt::format("{}: nothing goes {} any more, and what is lost is computed again",
                          lost.closed.ToString(), leaves_near ? "into the file" : "below"));
  }
  counters_.failed += std::ssize(lost.blocks);
  for (const kv::BlockId block : lost.blocks) {
    tier_.Lose(block);
    for (const Moving& moving : moving_) {
      if (moving.sequence == nullptr || std::ranges::count(moving.stay.blocks, block) == 0)
        continue;
      if (moving.brought_back >= 0) book.Unseal(moving.brought_back);
      if (std::ranges::count(*broken, moving.sequence) == 0) broken->push_back(moving.sequence);
    }
  }
}

ParkCounters Parking::counters() const {
  ParkCounters counters = counters_;
  counters.tier = tier_.stats();
  return counters;
}

}  // namespace forebay::engine
