// The functions that templates can call by name.
#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

Value RangeFunction(Runtime& rt, const Value&, const Arguments& args) {
  const Parameters p("range", args, {nullptr, nullptr, nullptr});
  p.Required(0);
  const int64_t start = p[1] != nullptr ? p.Integer(0, 0) : 0;
  const int64_t stop = p[1] != nullptr ? p.Integer(1, 0) : p.Integer(0, 0);
  const int64_t step = p.Integer(2, 1);
  if (step == 0) Fail(kTemplateRuntime, "range() arg 3 must not be zero");
  // In 128 bits, where nothing overflows.
  const __int128 distance =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = distance > 0 ? (distance - 1) / stride + 1 : 0;
  if (count > kMaxRange) {
    Fail(kTemplateLimit,
         fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                     kMaxRange));
  }
  rt.Charge(static_cast<uint64_t>(count));
  const std::span<Value> items = rt.arena.NewArray<Value>(static_cast<size_t>(count));
  for (size_t i = 0; i < items.size(); ++i)
    items[i] = Value::Int(start + static_cast<int64_t>(i) * step);
  return Value::Array(Kind::kRange, items);
}

// The entries of dict(mapping, **named) and namespace(mapping, **named).
std::span<DictEntry> EntriesOf(Runtime& rt, const Arguments& args, std::string_view function) {
  std::vector<DictEntry> entries;
  if (args.positional.size() > 1)
    FailType(fmt::format("{} takes at most 1 positional argument", function));
  if (args.positional.size() == 1) {
    const Value& source = args.positional[0];
    if (source.Is(Kind::kDict)) {
      entries.assign(source.dict().entries.begin(), source.dict().entries.end());
    } else {
      for (const Value& pair : Iterate(rt, source)) {
        const std::span<const Value> items = Iterate(rt, pair);
        if (items.size() != 2)
          FailType(fmt::format("{}: expected pairs of key and value", function));
        entries.push_back({items[0], items[1]});
      }
    }
  }
  entries.insert(entries.end(), args.named.begin(), args.named.end());
  rt.Charge(entries.size());
  const std::span<DictEntry> kept = rt.arena.NewArray<DictEntry>(entries.size());
  std::copy(entries.begin(), entries.end(), kept.begin());
  return kept;
}

Value DictFunction(Runtime& rt, const Value&, const Arguments& args) {
  return MakeDict(rt.arena, EntriesOf(rt, args, "dict"));
}

Value NamespaceFunction(Runtime& rt, const Value&, const Arguments& args) {
  NamespaceObject* ns = rt.arena.New(NamespaceObject{});
  for (const DictEntry& entry : EntriesOf(rt, args, "namespace")) {
    if (!entry.key.IsString()) FailType("namespace: keys must be strings");
    rt.Charge(1 + ns->size / 8);
    Assign(rt.arena, *ns, entry.key, entry.value);
  }
  return Value::Namespace(ns);
}

Value JoinerFunction(Runtime& rt, const Value&, const Arguments& args) {
  const Parameters p("joiner", args, {"sep"});
  const Value separator = p[0] != nullptr ? *p[0] : Value::String(", ");
  return Value::Joiner(rt.arena.New(JoinerObject{separator}));
}

Value CyclerFunction(Runtime& rt, const Value&, const Arguments& args) {
  if (!args.named.empty()) FailType("cycler takes no keyword arguments");
  if (args.positional.empty()) Fail(kTemplateRuntime, "at least one item has to be provided");
  return Value::Cycler(rt.arena.New(CyclerObject{rt.arena.CopyArray(args.positional)}));
}

Value RaiseFunction(Runtime& rt, const Value&, const Arguments& args) {
  const Parameters p("raise_exception", args, {"message"});
  Fail(kTemplateRaised, std::string(ToString(rt, p.Required(0)).text()));
}

// The clock has no zone and no fraction: %z and %Z are empty, %f is zeros.
Value StrftimeFunction(Runtime& rt, const Value&, const Arguments& args) {
  const Parameters p("strftime_now", args, {"format"});
  const Value& format = p.Required(0);
  if (!format.IsString()) FailType("strftime_now: the format must be a string");
  std::string pattern;
  const std::string_view text = format.text();
  if (text.size() > 1000)
    Fail(kTemplateLimit, "strftime_now: the format is longer than 1000 bytes");
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\0') FailType("strftime_now: embedded null character");
    if (text[i] != '%' || i + 1 == text.size()) {
      pattern.push_back(text[i]);
      continue;
    }
    ++i;
    if (IsAsciiDigit(text[i])) Fail(kTemplateRuntime, "strftime_now: widths are not supported");
    if (text[i] == 'f')
      pattern += "000000";
    else if (text[i] != 'z' && text[i] != 'Z')
      pattern.append("%").append(1, text[i]);
  }
  if (pattern.empty()) return Value::String("");
  std::string out(64 * pattern.size() + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), pattern.c_str(), &rt.now));
  return rt.NewString(out, OriginOf(format));
}

constexpr Builtin kGlobals[] = {
    {"cycler", CyclerFunction},         {"dict", DictFunction},
    {"joiner", JoinerFunction},         {"namespace", NamespaceFunction},
    {"raise_exception", RaiseFunction}, {"range", RangeFunction},
    {"strftime_now", StrftimeFunction},
};

}  // namespace

const Builtin* FindGlobal(std::string_view name) { return FindIn(kGlobals, name); }

}  // namespace forebay::text::jinja
