#include "text/jinja/value.h"

#include <algorithm>

#include "text/jinja/operators.h"

namespace forebay::text::jinja {
namespace {

constexpr size_t kSmallDict = 8;

// A total order over hashable keys: numbers by value, then strings, then the rest as all equal.
int CompareKeys(const Value& a, const Value& b) {
  const auto rank = [](const Value& v) {
    return IsNumber(v) ? 0 : v.IsString() ? 1 : v.Is(Kind::kNone) ? 2 : 3;
  };
  if (rank(a) != rank(b)) return rank(a) - rank(b);
  if (rank(a) == 0) return CompareNumbers(a, b);
  if (rank(a) == 1) return a.text().compare(b.text());
  return 0;
}

bool SameKey(const Value& a, const Value& b) {
  if (a.IsString()) return b.IsString() && a.text() == b.text();
  return Equals(a, b);
}

}  // namespace

Value MakeDict(Arena& arena, std::span<DictEntry> entries) {
  DictObject dict;
  if (entries.size() <= kSmallDict) {
    size_t size = 0;
    for (const DictEntry& entry : entries) {
      size_t i = 0;
      while (i < size && !SameKey(entries[i].key, entry.key)) ++i;
      if (i < size) {
        entries[i].value = entry.value;
      } else {
        entries[size++] = entry;
      }
    }
    dict.entries = entries.first(size);
    return Value::Dict(arena.New(dict));
  }
  std::span<uint32_t> order = arena.NewArray<uint32_t>(entries.size());
  const auto sort = [&] {
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const int c = CompareKeys(entries[a].key, entries[b].key);
      return c != 0 ? c < 0 : a < b;
    });
  };
  sort();
  // Where keys are equal, the first keeps its place and takes the last one's value.
  bool duplicates = false;
  for (size_t i = 0, j; i < order.size(); i = j) {
    for (j = i + 1; j < order.size() && SameKey(entries[order[i]].key, entries[order[j]].key);
         ++j) {
      entries[order[i]].value = entries[order[j]].value;
      entries[order[j]].key = Value();
      duplicates = true;
    }
  }
  if (duplicates) {
    const auto end = std::remove_if(entries.begin(), entries.end(),
                                    [](const DictEntry& e) { return e.key.IsUndefined(); });
    entries = entries.first(static_cast<size_t>(end - entries.begin()));
    order = order.first(entries.size());
    sort();
  }
  dict.entries = entries;
  dict.by_key = order;
  return Value::Dict(arena.New(dict));
}

const Value* Find(const DictObject& dict, const Value& key) {
  if (dict.by_key.empty()) {
    for (const DictEntry& entry : dict.entries) {
      if (SameKey(entry.key, key)) return &entry.value;
    }
    return nullptr;
  }
  const auto at = std::lower_bound(
      dict.by_key.begin(), dict.by_key.end(), key,
      [&](uint32_t i, const Value& k) { return CompareKeys(dict.entries[i].key, k) < 0; });
  // Tuples all compare equal above, so the run of equals is searched.
  for (auto it = at; it != dict.by_key.end() && CompareKeys(dict.entries[*it].key, key) == 0;
       ++it) {
    if (SameKey(dict.entries[*it].key, key)) return &dict.entries[*it].value;
  }
  return nullptr;
}

const Value* Find(const DictObject& dict, std::string_view key) {
  return Find(dict, Value::String(key));
}

const Value* Find(const NamespaceObject& ns, std::string_view name) {
  for (const DictEntry& entry : ns.entries.first(ns.size)) {
    if (entry.key.text() == name) return &entry.value;
  }
  return nullptr;
}

void Assign(Arena& arena, NamespaceObject& ns, const Value& name, const Value& value) {
  for (DictEntry& entry : ns.entries.first(ns.size)) {
    if (entry.key.text() == name.text()) {
      entry.value = value;
      return;
    }
  }
  if (ns.size == ns.entries.size()) {
    const std::span<DictEntry> grown = arena.NewArray<DictEntry>(std::max<size_t>(4, 2 * ns.size));
    std::copy(ns.entries.begin(), ns.entries.end(), grown.begin());
    ns.entries = grown;
  }
  ns.entries[ns.size++] = {name, value};
}

std::string_view TypeName(Kind kind) {
  switch (kind) {
    case Kind::kUndefined: return "jinja2.runtime.Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt:
    case Kind::kBigInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kRange: return "range";
    case Kind::kDictView: return "dict view";
    case Kind::kDict: return "dict";
    case Kind::kIterator: return "generator";
    case Kind::kNamespace: return "jinja2.utils.Namespace";
    case Kind::kFunction: return "function";
    case Kind::kMethod: return "method";
    case Kind::kMacro: return "jinja2.runtime.Macro";
    case Kind::kLoop: return "jinja2.runtime.LoopContext";
    case Kind::kJoiner: return "jinja2.utils.Joiner";
    case Kind::kCycler: return "jinja2.utils.Cycler";
  }
  return "object";
}

std::string_view TypeName(const Value& value) { return TypeName(value.kind()); }

}  // namespace forebay::text::jinja
