// Python's operators on values. Errors carry the words of Python's exceptions.
#pragma once

#include "text/jinja/text_builder.h"

namespace forebay::text::jinja {

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

[[noreturn]] void FailType(const std::string& message);
[[noreturn]] void FailUndefined(const Value& undefined);

bool IsNumber(const Value& v);   // bool, int, float
bool IsInteger(const Value& v);  // bool, int within 64 bits
double ToDouble(const Value& number);
// A total order over numbers (NaN last): negative, 0, positive.
int CompareNumbers(const Value& a, const Value& b);

bool Truth(const Value& v);
// `rt`, where given, is charged for the bytes compared.
bool Equals(const Value& a, const Value& b, Runtime* rt = nullptr, int depth = 0);
// Python's a < b; fails for types without an order.
bool Less(const Value& a, const Value& b, Runtime* rt = nullptr, int depth = 0);
bool Contains(Runtime& rt, const Value& container, const Value& item);
bool Compare(Runtime& rt, CompareOp op, const Value& a, const Value& b);
Value Binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value Negate(const Value& v);

// len(v).
int64_t Length(const Value& v);
// What `for x in v` goes over; an iterator is spent by it. Undefined is empty.
std::span<const Value> Iterate(Runtime& rt, const Value& v);
bool IsIterable(const Value& v);
// v.name and v[key], as the sandbox gives them: undefined where there is nothing or it is unsafe.
Value GetAttribute(Runtime& rt, const Value& v, const Value& name);
Value GetItem(Runtime& rt, const Value& v, const Value& key);
// v[start:stop:step]; absent bounds are None.
Value Slice(Runtime& rt, const Value& v, const Value& start, const Value& stop, const Value& step);

// First byte at or after `from` where `needle` stands, or npos. Linear time.
size_t FindBytes(std::string_view text, std::string_view needle, size_t from = 0);

}  // namespace forebay::text::jinja
