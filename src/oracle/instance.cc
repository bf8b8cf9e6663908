#include "oracle/instance.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace forebay::oracle {
namespace {

Profile MakeProfile(const Lengths& lengths, Form form, int64_t chunk) {
  Profile profile;
  if (form == Form::kPrinted) {
    profile.assign(static_cast<size_t>(lengths.output), lengths.prompt + lengths.output);
    return profile;
  }
  if (form == Form::kChunked) {
    // The step that computes the prompt's last chunk also gives the first token.
    for (int64_t done = chunk; done < lengths.prompt; done += chunk) profile.push_back(done);
  }
  for (int64_t age = 1; age <= lengths.output; ++age) profile.push_back(lengths.prompt + age);
  return profile;
}

}  // namespace

base::Result<Form> ParseForm(std::string_view name) {
  for (const Form form : {Form::kPrinted, Form::kGrown, Form::kChunked}) {
    if (name == Name(form)) return form;
  }
  return base::Status(kPackInvalid,
                      fmt::format("form \"{}\"; expected printed, grown or chunked", name));
}

std::string_view Name(Form form) {
  switch (form) {
    case Form::kPrinted: return "printed";
    case Form::kGrown: return "grown";
    case Form::kChunked: return "chunked";
  }
  FB_CHECK(false, "form {}", static_cast<int>(form));
}

base::Result<Instance> MakeInstance(std::span<const Lengths> requests, int64_t capacity, Form form,
                                    int64_t chunk) {
  if (capacity < 1) {
    return base::Status(kPackInvalid,
                        fmt::format("a capacity of {} tokens; expected at least 1", capacity));
  }
  if (form == Form::kChunked && chunk < 1) {
    return base::Status(kPackInvalid,
                        fmt::format("a chunk of {} tokens; expected at least 1", chunk));
  }
  Instance instance{.requests = {}, .capacity = capacity};
  for (size_t i = 0; i < requests.size(); ++i) {
    const Lengths& lengths = requests[i];
    if (lengths.prompt < 1 || lengths.output < 1) {
      return base::Status(kPackInvalid,
                          fmt::format("request {} has a prompt of {} and an output of {} tokens; "
                                      "expected at least 1 of each",
                                      i + 1, lengths.prompt, lengths.output));
    }
    if (lengths.prompt + lengths.output > capacity) {
      return base::Status(kPackInvalid,
                          fmt::format("request {} holds {} tokens, more than the capacity of {}",
                                      i + 1, lengths.prompt + lengths.output, capacity));
    }
    instance.requests.push_back(MakeProfile(lengths, form, chunk));
  }
  return instance;
}

void CheckPacking(const Instance& instance, const Packing& packing) {
  FB_CHECK(packing.begin.size() == instance.requests.size(), "{} beginnings of {} requests",
           packing.begin.size(), instance.requests.size());
  std::vector<int64_t> held(static_cast<size_t>(packing.makespan), 0);
  int64_t end = 0;
  for (size_t i = 0; i < packing.begin.size(); ++i) {
    const Profile& profile = instance.requests[i];
    const int64_t last = packing.begin[i] + static_cast<int64_t>(profile.size());
    FB_CHECK(packing.begin[i] >= 0 && last <= packing.makespan, "request {} stays from {} to {}", i,
             packing.begin[i], last);
    for (size_t age = 0; age < profile.size(); ++age) {
      held[static_cast<size_t>(packing.begin[i]) + age] += profile[age];
    }
    end = std::max(end, last);
  }
  FB_CHECK(end == packing.makespan, "the last one ends at {}, not at {}", end, packing.makespan);
  for (size_t step = 0; step < held.size(); ++step) {
    FB_CHECK(held[step] <= instance.capacity, "{} tokens at step {}, {} fit", held[step], step,
             instance.capacity);
  }
}

int64_t LowerBound(const Instance& instance) {
  int64_t longest = 0, area = 0, alone = 0;
  for (const Profile& profile : instance.requests) {
    const auto stay = static_cast<int64_t>(profile.size());
    longest = std::max(longest, stay);
    area += std::accumulate(profile.begin(), profile.end(), int64_t{0});
    // The steps at which it holds more than half: no two such steps fall together.
    alone += std::ranges::count_if(profile,
                                   [&](int64_t tokens) { return 2 * tokens > instance.capacity; });
  }
  return std::max({longest, (area + instance.capacity - 1) / instance.capacity, alone});
}

}  // namespace forebay::oracle
