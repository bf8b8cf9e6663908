#include "text/jinja/builtins.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

template <View view>
Value DictView(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("a dict method", args, {});
  const std::span<const DictEntry> entries = self.dict().entries;
  const std::span<Value> items = rt.arena.NewArray<Value>(entries.size());
  rt.Charge(entries.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& [key, value] = entries[i];
    if (view == View::kItems)
      items[i] = Value::Array(Kind::kTuple, rt.arena.CopyArray<Value>(std::array{key, value}));
    else
      items[i] = view == View::kKeys ? key : value;
  }
  return Value::Array(Kind::kDictView, items, view);
}

Value DictGet(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("get", args, {nullptr, nullptr});
  if (const Value* value = Find(self.dict(), p.Required(0))) return *value;
  return p[1] != nullptr ? *p[1] : Value::None();
}

Value CopyMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("copy", args, {});
  return self;  // values do not change
}

Value ListIndex(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("index", args, {nullptr});
  const std::span<const Value> items = self.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equals(items[i], p.Required(0), &rt)) return Value::Int(static_cast<int64_t>(i));
  }
  Fail(kTemplateRuntime, fmt::format("{} is not in list", ReprString(rt, p.Required(0)).text()));
}

Value ListCount(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("count", args, {nullptr});
  return Value::Int(std::count_if(self.items().begin(), self.items().end(),
                                  [&](const Value& v) { return Equals(v, p.Required(0), &rt); }));
}

Value LoopCycle(Runtime& rt, const Value& self, const Arguments& args) {
  if (args.positional.empty()) FailType("no items for cycling given");
  return args.positional[self.loop().index0 % args.positional.size()];
}

Value LoopChanged(Runtime& rt, const Value& self, const Arguments& args) {
  LoopObject& loop = self.loop();
  const Value now = rt.NewArray(Kind::kTuple, args.positional);
  const bool changed = !loop.asked_changed || !Equals(loop.last_changed, now, &rt);
  loop.asked_changed = true;
  loop.last_changed = now;
  return Value::Bool(changed);
}

Value CyclerNext(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("next", args, {});
  CyclerObject& cycler = self.cycler();
  const Value value = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return value;
}

Value CyclerReset(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("reset", args, {});
  self.cycler().at = 0;
  return Value::None();
}

constexpr Builtin kDictMethods[] = {{"copy", CopyMethod},
                                    {"get", DictGet},
                                    {"items", DictView<View::kItems>},
                                    {"keys", DictView<View::kKeys>},
                                    {"values", DictView<View::kValues>}};
constexpr Builtin kListMethods[] = {
    {"copy", CopyMethod}, {"count", ListCount}, {"index", ListIndex}};
constexpr Builtin kTupleMethods[] = {{"count", ListCount}, {"index", ListIndex}};
constexpr Builtin kCyclerMethods[] = {{"next", CyclerNext}, {"reset", CyclerReset}};
constexpr Builtin kLoopMethods[] = {{"changed", LoopChanged}, {"cycle", LoopCycle}};

}  // namespace

const Builtin* FindMethod(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString: return FindStringMethod(name);
    case Kind::kDict: return FindIn(kDictMethods, name);
    case Kind::kList: return FindIn(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange: return FindIn(kTupleMethods, name);
    case Kind::kLoop: return FindIn(kLoopMethods, name);
    case Kind::kCycler: return FindIn(kCyclerMethods, name);
    default: return nullptr;
  }
}

const Builtin* FindFilter(std::string_view name) {
  const Builtin* filter = FindIn(TextFilters(), name);
  return filter != nullptr ? filter : FindIn(ListFilters(), name);
}

Value FollowPath(Runtime& rt, const Value& item, const Value& path) {
  if (!path.IsString()) return GetItem(rt, item, path);
  Value value = item;
  const std::string_view text = path.text();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const bool is_index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    value = GetItem(rt, value,
                    is_index ? Value::Int(std::stoi(std::string(part)))
                             : Substring(rt.arena, path, begin, end));
    begin = end + 1;
  }
  return value;
}

bool IsCase(std::string_view text, bool upper) {
  bool any = false;
  for (const char32_t c : CodePoints(text)) {
    const Category category = CategoryOf(c);
    if (category == (upper ? Category::kLl : Category::kLu) || category == Category::kLt)
      return false;
    any |= category == (upper ? Category::kLu : Category::kLl);
  }
  return any;
}

Parameters::Parameters(std::string_view function, const Arguments& args,
                       std::initializer_list<const char*> names)
    : function_(function) {
  std::copy(names.begin(), names.end(), names_);
  if (args.positional.size() > names.size()) {
    FailType(fmt::format("{} takes at most {} argument(s), {} given", function, names.size(),
                         args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) found_[i] = &args.positional[i];
  for (const DictEntry& named : args.named) {
    size_t i = 0;
    while (i < names.size() && (names_[i] == nullptr || named.key.text() != names_[i])) ++i;
    if (i == names.size())
      FailType(
          fmt::format("{} got an unexpected keyword argument '{}'", function, named.key.text()));
    if (found_[i] != nullptr)
      FailType(fmt::format("{} got two values for the argument '{}'", function, names_[i]));
    found_[i] = &named.value;
  }
}

const Value& Parameters::Required(size_t i) const {
  if (found_[i] == nullptr) {
    FailType(fmt::format("{} lacks its argument {}", function_,
                         names_[i] != nullptr ? names_[i] : std::to_string(i + 1)));
  }
  return *found_[i];
}

int64_t Parameters::Integer(size_t i, int64_t fallback) const {
  if (found_[i] == nullptr) return fallback;
  if (found_[i]->IsUndefined()) FailUndefined(*found_[i]);
  if (!IsInteger(*found_[i])) {
    FailType(fmt::format("{}: '{}' object cannot be interpreted as an integer", function_,
                         TypeName(*found_[i])));
  }
  return found_[i]->integer();
}

bool Parameters::Truthy(size_t i, bool fallback) const {
  return found_[i] != nullptr ? Truth(*found_[i]) : fallback;
}

}  // namespace forebay::text::jinja
