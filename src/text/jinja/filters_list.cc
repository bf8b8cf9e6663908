// Filters over lists and dicts, and those that call other filters and tests.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_ops.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

Value IgnoreCase(Runtime& rt, const Value& v) {
  return v.IsString() ? Mapped(rt, v, ToLower(v.text())) : v;
}

// What an item is sorted or compared by: an attribute of it, if asked for, and without case if
// asked for.
Value KeyOf(Runtime& rt, const Value& item, const Value* attribute, bool case_sensitive) {
  const Value key =
      attribute != nullptr && !attribute->Is(Kind::kNone) ? FollowPath(rt, item, *attribute) : item;
  return case_sensitive ? key : IgnoreCase(rt, key);
}

Value LengthFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("length", args, {});
  if (self.IsString()) rt.ChargeBytes(self.text().size());
  return Value::Int(Length(self));
}

Value DefaultFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("default", args, {"default_value", "boolean"});
  if (!self.IsUndefined() && (!p.Truthy(1, false) || Truth(self))) return self;
  return p[0] != nullptr ? *p[0] : Value::String("");
}

Value FirstFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("first", args, {});
  if (self.IsString() && !self.text().empty())
    return Substring(rt.arena, self, 0, CharLength(self.text()[0]));
  const std::span<const Value> items = Iterate(rt, self);
  return items.empty() ? Value::Undefined(Missing::kOther, "No first item, sequence was empty.")
                       : items.front();
}

Value LastFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("last", args, {});
  if (self.Is(Kind::kIterator)) FailType("'generator' object is not reversible");
  const std::span<const Value> items = Iterate(rt, self);
  return items.empty() ? Value::Undefined(Missing::kOther, "No last item, sequence was empty.")
                       : items.back();
}

Value ListFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("list", args, {});
  return Value::Array(Kind::kList, Iterate(rt, self));
}

Value JoinFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("join", args, {"d", "attribute"});
  const Value separator = p[0] != nullptr ? ToString(rt, *p[0]) : Value::String("");
  std::span<const Value> items = Iterate(rt, self);
  if (p[1] != nullptr && !p[1]->Is(Kind::kNone)) {
    const std::span<Value> attributes = rt.arena.NewArray<Value>(items.size());
    for (size_t i = 0; i < items.size(); ++i) attributes[i] = FollowPath(rt, items[i], *p[1]);
    items = attributes;
  }
  return Join(rt, separator, items, true);
}

Value ReverseFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("reverse", args, {});
  if (self.IsString()) return Slice(rt, self, Value::None(), Value::None(), Value::Int(-1));
  const std::span<const Value> items = Iterate(rt, self);
  std::vector<Value> reversed(items.rbegin(), items.rend());
  return self.Is(Kind::kIterator) ? rt.NewArray(Kind::kList, reversed) : rt.NewIterator(reversed);
}

Value SumFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("sum", args, {"attribute", "start"});
  Value sum = p[1] != nullptr ? *p[1] : Value::Int(0);
  for (const Value& item : Iterate(rt, self))
    sum = Binary(rt, BinaryOp::kAdd, sum, KeyOf(rt, item, p[0], true));
  return sum;
}

template <bool want_max>
Value ExtremeFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p(want_max ? "max" : "min", args, {"case_sensitive", "attribute"});
  const std::span<const Value> items = Iterate(rt, self);
  if (items.empty())
    return Value::Undefined(Missing::kOther, "No aggregated item, sequence was empty.");
  const bool case_sensitive = p.Truthy(0, false);
  size_t best = 0;
  Value best_key = KeyOf(rt, items[0], p[1], case_sensitive);
  for (size_t i = 1; i < items.size(); ++i) {
    const Value key = KeyOf(rt, items[i], p[1], case_sensitive);
    if (want_max ? Less(best_key, key, &rt) : Less(key, best_key, &rt)) {
      best = i;
      best_key = key;
    }
  }
  return items[best];
}

struct Keyed {
  Value key, item;
};

Value Sorted(Runtime& rt, std::vector<Keyed> items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? Less(b.key, a.key, &rt) : Less(a.key, b.key, &rt);
  });
  const std::span<Value> sorted = rt.arena.NewArray<Value>(items.size());
  for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = items[i].item;
  return Value::Array(Kind::kList, sorted);
}

Value SortFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> items;
  for (const Value& item : Iterate(rt, self)) {
    Value key = KeyOf(rt, item, p[2], p.Truthy(1, false));
    if (p[2] != nullptr && p[2]->IsString() && p[2]->text().find(',') != std::string_view::npos) {
      const Value comma = Value::String(",");
      std::vector<Value> keys;
      for (const Value& path : Split(rt, *p[2], &comma, -1))
        keys.push_back(KeyOf(rt, item, &path, p.Truthy(1, false)));
      key = rt.NewArray(Kind::kList, keys);
    }
    items.push_back({key, item});
  }
  return Sorted(rt, std::move(items), p.Truthy(0, false));
}

Value PairOf(Runtime& rt, const DictEntry& entry) {
  return Value::Array(Kind::kTuple, rt.arena.CopyArray<Value>(std::array{entry.key, entry.value}));
}

Value DictSortFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("dictsort", args, {"case_sensitive", "by", "reverse"});
  if (self.IsUndefined()) FailUndefined(self);
  if (!self.Is(Kind::kDict))
    FailType(fmt::format("dictsort: expected a dict, not {}", TypeName(self)));
  const std::string_view by = p[1] != nullptr ? ToString(rt, *p[1]).text() : "key";
  if (by != "key" && by != "value")
    Fail(kTemplateRuntime, "You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> items;
  for (const DictEntry& entry : self.dict().entries) {
    rt.Charge(1);
    items.push_back({KeyOf(rt, by == "key" ? entry.key : entry.value, nullptr, p.Truthy(0, false)),
                     PairOf(rt, entry)});
  }
  return Sorted(rt, std::move(items), p.Truthy(2, false));
}

Value ItemsFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("items", args, {});
  std::vector<Value> pairs;
  if (self.Is(Kind::kDict)) {
    for (const DictEntry& entry : self.dict().entries) pairs.push_back(PairOf(rt, entry));
  } else if (!self.IsUndefined()) {
    FailType("Can only get item pairs from a mapping.");
  }
  return rt.NewIterator(pairs);
}

Value UniqueFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("unique", args, {"case_sensitive", "attribute"});
  std::vector<Value> keys, kept;
  for (const Value& item : Iterate(rt, self)) {
    const Value key = KeyOf(rt, item, p[1], p.Truthy(0, false));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return Equals(k, key, &rt); }))
      continue;
    rt.Charge(keys.size());
    keys.push_back(key);
    kept.push_back(item);
  }
  return rt.NewIterator(kept);
}

Value GroupByFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("groupby", args, {"attribute", "default", "case_sensitive"});
  const bool case_sensitive = p.Truthy(2, false);
  const auto key_of = [&](const Value& item) {
    Value key = FollowPath(rt, item, p.Required(0));
    if (key.IsUndefined() && p[1] != nullptr) key = *p[1];
    return key;
  };
  std::vector<Keyed> items;
  for (const Value& item : Iterate(rt, self)) {
    items.push_back({case_sensitive ? key_of(item) : IgnoreCase(rt, key_of(item)), item});
  }
  std::stable_sort(items.begin(), items.end(),
                   [&](const Keyed& a, const Keyed& b) { return Less(a.key, b.key, &rt); });
  std::vector<Value> groups;
  for (size_t i = 0, j; i < items.size(); i = j) {
    std::vector<Value> group;
    for (j = i; j < items.size() && Equals(items[i].key, items[j].key, &rt); ++j)
      group.push_back(items[j].item);
    if (group.empty()) group.push_back(items[j++].item);  // NaN equals nothing, itself included
    const std::array pair{key_of(group[0]), rt.NewArray(Kind::kList, group)};
    groups.push_back(Value::Array(Kind::kTuple, rt.arena.CopyArray<Value>(pair), View::kGroup));
  }
  return rt.NewArray(Kind::kList, groups);
}

Value BatchFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("batch", args, {"linecount", "fill_with"});
  p.Required(0);
  const auto width = static_cast<size_t>(std::clamp<int64_t>(p.Integer(0, 1), 1, kMaxRange));
  const std::span<const Value> items = Iterate(rt, self);
  std::vector<Value> rows;
  for (size_t i = 0; i < items.size(); i += width) {
    const std::span<const Value> part = items.subspan(i, std::min(width, items.size() - i));
    std::vector<Value> row(part.begin(), part.end());
    if (p[1] != nullptr && !p[1]->Is(Kind::kNone)) row.resize(width, *p[1]);
    rows.push_back(rt.NewArray(Kind::kList, row));
  }
  return rt.NewIterator(rows);
}

Value SliceFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("slice", args, {"slices", "fill_with"});
  p.Required(0);
  const int64_t count = p.Integer(0, 1);
  if (count == 0) Fail(kTemplateRuntime, "integer division or modulo by zero");
  if (count > kMaxRange) Fail(kTemplateLimit, "slice: too many slices");
  const std::span<const Value> items = Iterate(rt, self);
  std::vector<Value> slices;
  size_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const size_t extra = items.size() % static_cast<size_t>(count);
    const size_t size =
        items.size() / static_cast<size_t>(count) + (static_cast<size_t>(i) < extra);
    std::vector<Value> slice(items.begin() + static_cast<ptrdiff_t>(begin),
                             items.begin() + static_cast<ptrdiff_t>(begin + size));
    if (p[1] != nullptr && !p[1]->Is(Kind::kNone) && static_cast<size_t>(i) >= extra)
      slice.push_back(*p[1]);
    slices.push_back(rt.NewArray(Kind::kList, slice));
    begin += size;
  }
  return rt.NewIterator(slices);
}

Value AttrFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("attr", args, {"name"});
  const Value name = ToString(rt, p.Required(0));
  const bool item_only = self.Is(Kind::kDict) && FindMethod(Kind::kDict, name.text()) == nullptr;
  if (item_only) return Value::Undefined(Missing::kAttribute, name.text(), self.kind());
  return GetAttribute(rt, self, name);
}

// `name` looked up by `find`, and the arguments after it, from position `first` on.
struct Nested {
  const Builtin* builtin;
  Arguments args;
};
Nested NestedCall(Runtime& rt, const Arguments& args, size_t first,
                  const Builtin* (*find)(std::string_view), std::string_view what) {
  const Value name = ToString(rt, args.positional[first]);
  const Builtin* builtin = find(name.text());
  if (builtin == nullptr)
    Fail(kTemplateRuntime, fmt::format("no {} named '{}'", what, name.text()));
  return {builtin, {args.positional.subspan(first + 1), args.named, Value()}};
}

Value MapFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const std::span<const Value> items = Iterate(rt, self);
  const std::span<Value> mapped = rt.arena.NewArray<Value>(items.size());
  if (args.positional.empty()) {
    const Parameters p("map", args, {"attribute", "default"});
    if (p[0] == nullptr) Fail(kTemplateRuntime, "map requires a filter argument");
    for (size_t i = 0; i < items.size(); ++i) {
      mapped[i] = FollowPath(rt, items[i], *p[0]);
      if (mapped[i].IsUndefined() && p[1] != nullptr && !p[1]->Is(Kind::kNone)) mapped[i] = *p[1];
    }
  } else {
    const Nested nested = NestedCall(rt, args, 0, FindFilter, "filter");
    for (size_t i = 0; i < items.size(); ++i) {
      rt.Charge(1);
      mapped[i] = nested.builtin->call(rt, items[i], nested.args);
    }
  }
  return Value::Iterator(rt.arena.New(IteratorObject{mapped}));
}

template <bool by_attribute, bool wanted>
Value SelectFilter(Runtime& rt, const Value& self, const Arguments& args) {
  if (!Truth(self)) return rt.NewIterator({});
  constexpr size_t kFirst = by_attribute ? 1 : 0;
  if (args.positional.size() < kFirst)
    Fail(kTemplateRuntime, "Missing parameter for attribute name");
  Nested nested{nullptr, {}};
  if (args.positional.size() > kFirst) nested = NestedCall(rt, args, kFirst, FindTest, "test");
  std::vector<Value> kept;
  for (const Value& item : Iterate(rt, self)) {
    rt.Charge(1);
    const Value subject = by_attribute ? FollowPath(rt, item, args.positional[0]) : item;
    const bool holds =
        Truth(nested.builtin != nullptr ? nested.builtin->call(rt, subject, nested.args) : subject);
    if (holds == wanted) kept.push_back(item);
  }
  return rt.NewIterator(kept);
}

constexpr Builtin kListFilters[] = {
    {"attr", AttrFilter},
    {"batch", BatchFilter},
    {"count", LengthFilter},
    {"d", DefaultFilter},
    {"default", DefaultFilter},
    {"dictsort", DictSortFilter},
    {"first", FirstFilter},
    {"groupby", GroupByFilter},
    {"items", ItemsFilter},
    {"join", JoinFilter},
    {"last", LastFilter},
    {"length", LengthFilter},
    {"list", ListFilter},
    {"map", MapFilter},
    {"max", ExtremeFilter<true>},
    {"min", ExtremeFilter<false>},
    {"reject", SelectFilter<false, false>},
    {"rejectattr", SelectFilter<true, false>},
    {"reverse", ReverseFilter},
    {"select", SelectFilter<false, true>},
    {"selectattr", SelectFilter<true, true>},
    {"slice", SliceFilter},
    {"sort", SortFilter},
    {"sum", SumFilter},
    {"unique", UniqueFilter},
};

}  // namespace

std::span<const Builtin> ListFilters() { return kListFilters; }

}  // namespace forebay::text::jinja
