#include "text/jinja/operators.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/format.h"
#include "text/jinja/loop.h"

namespace forebay::text::jinja {
namespace {

[[noreturn]] void FailOperands(std::string_view op, const Value& a, const Value& b) {
  if (a.IsUndefined()) FailUndefined(a);
  if (b.IsUndefined()) FailUndefined(b);
  FailType("unsupported operand type(s) for " + std::string(op) + ": '" + std::string(TypeName(a)) +
           "' and '" + std::string(TypeName(b)) + "'");
}

[[noreturn]] void FailDivision(const char* message) { Fail(kTemplateRuntime, message); }

[[noreturn]] void FailOverflow() {
  Fail(kTemplateLimit, "arithmetic beyond 64-bit integers is not supported");
}

int64_t CheckedAdd(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) FailOverflow();
  return result;
}
int64_t CheckedSub(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_sub_overflow(a, b, &result)) FailOverflow();
  return result;
}
int64_t CheckedMul(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) FailOverflow();
  return result;
}

std::string_view OpName(BinaryOp op) {
  static constexpr std::string_view kNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kNames[static_cast<size_t>(op)];
}

int64_t FloorDiv(int64_t a, int64_t b) {
  if (b == -1) return CheckedSub(0, a);
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

double FloatMod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r == 0 ? std::copysign(0.0, b) : r;
}

int64_t IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (true) {
    if (exponent & 1) result = CheckedMul(result, base);
    exponent >>= 1;
    if (exponent == 0) return result;
    base = CheckedMul(base, base);
  }
}

Value IntegerOp(BinaryOp op, int64_t a, int64_t b) {
  switch (op) {
    case BinaryOp::kAdd: return Value::Int(CheckedAdd(a, b));
    case BinaryOp::kSub: return Value::Int(CheckedSub(a, b));
    case BinaryOp::kMul: return Value::Int(CheckedMul(a, b));
    case BinaryOp::kDiv:
      if (b == 0) FailDivision("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDiv:
      if (b == 0) FailDivision("integer division or modulo by zero");
      return Value::Int(FloorDiv(a, b));
    case BinaryOp::kMod:
      if (b == 0) FailDivision("integer division or modulo by zero");
      return Value::Int(b == -1 ? 0 : a - FloorDiv(a, b) * b);
    case BinaryOp::kPow:
      if (b >= 0) return Value::Int(IntegerPower(a, b));
      if (a == 0) FailDivision("0.0 cannot be raised to a negative power");
      return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  return Value();
}

Value FloatOp(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd: return Value::Float(a + b);
    case BinaryOp::kSub: return Value::Float(a - b);
    case BinaryOp::kMul: return Value::Float(a * b);
    case BinaryOp::kDiv:
      if (b == 0) FailDivision("float division by zero");
      return Value::Float(a / b);
    case BinaryOp::kFloorDiv:
      if (b == 0) FailDivision("float floor division by zero");
      return Value::Float(std::floor((a - FloatMod(a, b)) / b + 0.5));
    case BinaryOp::kMod:
      if (b == 0) FailDivision("float modulo");
      return Value::Float(FloatMod(a, b));
    case BinaryOp::kPow:
      if (a == 0 && b < 0) FailDivision("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b))
        FailType("a negative number to a broken power is not supported");
      return Value::Float(std::pow(a, b));
  }
  return Value();
}

// text * count, list * count.
Value Repeat(Runtime& rt, const Value& v, int64_t count) {
  const size_t size = v.IsString() ? v.text().size() : v.items().size();
  const size_t times = count > 0 ? static_cast<size_t>(count) : 0;
  if (size != 0 && times > rt.limits.output_bytes / size)
    Fail(kTemplateLimit, "a repetition is too long");
  if (v.IsString()) {
    TextBuilder out(rt);
    for (size_t i = 0; i < times && size != 0; ++i) {
      rt.Charge(1);
      out.Append(v);
    }
    return out.Finish(rt);
  }
  rt.Charge(size * times);
  const std::span<Value> items = rt.arena.NewArray<Value>(size * times);
  for (size_t i = 0; i < items.size(); ++i) items[i] = v.items()[i % size];
  return Value::Array(v.kind(), items);
}

Value Join(Runtime& rt, const Value& a, const Value& b) {
  const std::span<Value> items = rt.arena.NewArray<Value>(a.items().size() + b.items().size());
  rt.Charge(items.size());
  std::copy(a.items().begin(), a.items().end(), items.begin());
  std::copy(b.items().begin(), b.items().end(),
            items.begin() + static_cast<ptrdiff_t>(a.items().size()));
  return Value::Array(a.kind(), items);
}

bool IsRepeatable(const Value& v) {
  return v.IsString() || v.Is(Kind::kList) || v.Is(Kind::kTuple);
}

}  // namespace

void FailType(const std::string& message) { Fail(kTemplateRuntime, message); }

void FailUndefined(const Value& v) {
  const std::string name(v.text());
  switch (v.missing()) {
    case Missing::kName: Fail(kTemplateRuntime, "'" + name + "' is undefined");
    case Missing::kAttribute: {
      Fail(kTemplateRuntime,
           "'" + std::string(TypeName(v.owner())) + " object' has no attribute '" + name + "'");
    }
    case Missing::kElement:
      Fail(kTemplateRuntime, std::string(TypeName(v.owner())) + " object has no element " + name);
    case Missing::kParameter: Fail(kTemplateRuntime, "parameter '" + name + "' was not provided");
    case Missing::kUnsafe:
      Fail(kTemplateSecurity, "access to attribute '" + name + "' of '" +
                                  std::string(TypeName(v.owner())) + "' object is unsafe.");
    case Missing::kOther: break;
  }
  Fail(kTemplateRuntime, name.empty() ? "an undefined value is used" : name);
}

bool IsNumber(const Value& v) { return v.kind() >= Kind::kBool && v.kind() <= Kind::kFloat; }
bool IsInteger(const Value& v) { return v.Is(Kind::kInt) || v.Is(Kind::kBool); }

double ToDouble(const Value& v) {
  if (v.Is(Kind::kFloat)) return v.number();
  if (!v.Is(Kind::kBigInt)) return static_cast<double>(v.integer());
  double value = 0;
  const std::string_view digits = v.text();
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec ==
      std::errc::result_out_of_range) {
    value = digits[0] == '-' ? -std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::infinity();
  }
  return value;
}

int CompareNumbers(const Value& a, const Value& b) {
  if (IsInteger(a) && IsInteger(b))
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  if (a.Is(Kind::kFloat) || b.Is(Kind::kFloat)) {
    // long double holds every 64-bit integer.
    const auto wide = [](const Value& v) {
      return IsInteger(v) ? static_cast<long double>(v.integer())
                          : static_cast<long double>(ToDouble(v));
    };
    const long double x = wide(a), y = wide(b);
    if (std::isnan(x) || std::isnan(y))
      return static_cast<int>(std::isnan(x)) - static_cast<int>(std::isnan(y));
    return x < y ? -1 : x > y;
  }
  // At least one is beyond 64 bits: its sign, or else its size, decides against any other.
  const auto negative = [](const Value& v) {
    return v.Is(Kind::kBigInt) ? v.text()[0] == '-' : v.integer() < 0;
  };
  if (negative(a) != negative(b)) return negative(a) ? -1 : 1;
  const int sign = negative(a) ? -1 : 1;
  if (!a.Is(Kind::kBigInt)) return -sign;
  if (!b.Is(Kind::kBigInt)) return sign;
  if (a.text().size() != b.text().size()) return a.text().size() < b.text().size() ? -sign : sign;
  return sign * a.text().compare(b.text());
}

bool Truth(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return v.integer() != 0;
    case Kind::kFloat: return v.number() != 0;
    case Kind::kString: return !v.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kDictView: return !v.items().empty();
    case Kind::kDict: return !v.dict().entries.empty();
    default: return true;
  }
}

bool Equals(const Value& a, const Value& b, Runtime* rt, int depth) {
  if (depth > kMaxValueDepth) Fail(kTemplateLimit, "values are nested too deeply to compare");
  if (IsNumber(a) && IsNumber(b)) {
    const auto is_nan = [](const Value& v) { return v.Is(Kind::kFloat) && std::isnan(v.number()); };
    return !is_nan(a) && !is_nan(b) && CompareNumbers(a, b) == 0;
  }
  if (a.kind() != b.kind()) return false;
  if (rt != nullptr) rt->Charge(1);
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: {
      const std::string_view x = a.text(), y = b.text();
      if (x.size() != y.size()) return false;
      if (x.data() == y.data()) return true;
      if (rt != nullptr) rt->ChargeBytes(x.size());
      return x == y;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kDictView: {
      const std::span<const Value> x = a.items(), y = b.items();
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size() && x.data() != y.data(); ++i) {
        if (!Equals(x[i], y[i], rt, depth + 1)) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (a.identity() == b.identity()) return true;
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const DictEntry& entry : a.dict().entries) {
        const Value* other = Find(b.dict(), entry.key);
        if (other == nullptr || !Equals(entry.value, *other, rt, depth + 1)) return false;
      }
      return true;
    }
    default: return a.identity() == b.identity();
  }
}

bool Less(const Value& a, const Value& b, Runtime* rt, int depth) {
  if (depth > kMaxValueDepth) Fail(kTemplateLimit, "values are nested too deeply to compare");
  if (rt != nullptr) rt->Charge(1);
  if (IsNumber(a) && IsNumber(b)) {
    const auto is_nan = [](const Value& v) { return v.Is(Kind::kFloat) && std::isnan(v.number()); };
    return !is_nan(a) && !is_nan(b) && CompareNumbers(a, b) < 0;
  }
  if (a.IsString() && b.IsString()) {
    if (rt != nullptr) rt->ChargeBytes(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // UTF-8 keeps the order of code points
  }
  if (a.kind() == b.kind() && (a.Is(Kind::kList) || a.Is(Kind::kTuple))) {
    const std::span<const Value> x = a.items(), y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equals(x[i], y[i], rt, depth + 1)) return Less(x[i], y[i], rt, depth + 1);
    }
    return x.size() < y.size();
  }
  if (a.IsUndefined()) FailUndefined(a);
  if (b.IsUndefined()) FailUndefined(b);
  FailType("'<' not supported between instances of '" + std::string(TypeName(a)) + "' and '" +
           std::string(TypeName(b)) + "'");
}

size_t FindBytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (from == text.size()) return std::string_view::npos;
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

bool Contains(Runtime& rt, const Value& container, const Value& item) {
  if (container.IsString()) {
    if (item.IsUndefined()) FailUndefined(item);
    if (!item.IsString())
      FailType("'in <string>' requires string as left operand, not " + std::string(TypeName(item)));
    rt.ChargeBytes(container.text().size());
    return FindBytes(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.Is(Kind::kDict)) return Find(container.dict(), item) != nullptr;
  if (!IsIterable(container)) {
    FailType("argument of type '" + std::string(TypeName(container)) + "' is not iterable");
  }
  for (const Value& other : Iterate(rt, container)) {
    if (Equals(other, item, &rt)) return true;
  }
  return false;
}

bool Compare(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  const auto ordered = [&](const Value& v) {
    return !(v.Is(Kind::kFloat) && std::isnan(v.number()));
  };
  switch (op) {
    case CompareOp::kEq: return Equals(a, b, &rt);
    case CompareOp::kNe: return !Equals(a, b, &rt);
    case CompareOp::kLt: return Less(a, b, &rt);
    case CompareOp::kGt: return Less(b, a, &rt);
    case CompareOp::kLe: return !Less(b, a, &rt) && ordered(a) && ordered(b);
    case CompareOp::kGe: return !Less(a, b, &rt) && ordered(a) && ordered(b);
    case CompareOp::kIn: return Contains(rt, b, a);
    case CompareOp::kNotIn: return !Contains(rt, b, a);
  }
  return false;
}

Value Binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (IsInteger(a) && IsInteger(b)) return IntegerOp(op, a.integer(), b.integer());
  if (IsNumber(a) && IsNumber(b)) {
    if (!a.Is(Kind::kFloat) && !b.Is(Kind::kFloat)) FailOverflow();
    return FloatOp(op, ToDouble(a), ToDouble(b));
  }
  if (op == BinaryOp::kAdd) {
    if (a.IsString() && b.IsString()) return Concatenate(rt, a, b);
    if (a.kind() == b.kind() && (a.Is(Kind::kList) || a.Is(Kind::kTuple))) return Join(rt, a, b);
    if (IsRepeatable(a) && !b.IsUndefined()) {
      const std::string type(TypeName(a));
      FailType("can only concatenate " + type + " (not \"" + std::string(TypeName(b)) + "\") to " +
               type);
    }
  }
  if (op == BinaryOp::kMul) {
    if (IsRepeatable(a) && IsInteger(b)) return Repeat(rt, a, b.integer());
    if (IsInteger(a) && IsRepeatable(b)) return Repeat(rt, b, a.integer());
  }
  if (op == BinaryOp::kMod && a.IsString()) return PercentFormat(rt, a, b);
  FailOperands(OpName(op), a, b);
}

Value Negate(const Value& v) {
  if (IsInteger(v)) return Value::Int(CheckedSub(0, v.integer()));
  if (v.Is(Kind::kFloat)) return Value::Float(-v.number());
  if (v.Is(Kind::kBigInt)) FailOverflow();
  if (v.IsUndefined()) FailUndefined(v);
  FailType("bad operand type for unary -: '" + std::string(TypeName(v)) + "'");
}

int64_t Length(const Value& v) {
  if (v.IsString()) return static_cast<int64_t>(CountChars(v.text()));
  if (v.IsArray()) return static_cast<int64_t>(v.items().size());
  if (v.Is(Kind::kDict)) return static_cast<int64_t>(v.dict().entries.size());
  if (v.Is(Kind::kLoop)) return static_cast<int64_t>(v.loop().items.size());
  if (v.IsUndefined()) {
    if (v.missing() == Missing::kUnsafe) FailUndefined(v);
    return 0;
  }
  FailType("object of type '" + std::string(TypeName(v)) + "' has no len()");
}

}  // namespace forebay::text::jinja
