#include "weights/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/log.h"
#include "base/units.h"

namespace forebay::weights {

using base::Result;
using base::ShownName;
using base::Status;

namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and read as they are");

constexpr uint64_t kDefaultAlignment = 32;
// The least bytes of an entry (empty key, type, one byte) and of a description (empty name, rank,
// one extent, type, offset): they bound counts before anything is allocated.
constexpr uint64_t kLeastEntryBytes = 8 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;
// Room for so many at once; a count that is garbage ends long before it is reached.
constexpr uint64_t kMostReserved = 1 << 16;

// Bytes of a value; 0 for those that say their own size.
uint64_t SizeOf(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

std::string_view Name(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

bool IsFloat(GgufType type) { return type == GgufType::kF32 || type == GgufType::kF64; }
bool IsString(GgufType type) { return type == GgufType::kString; }
bool IsBool(GgufType type) { return type == GgufType::kBool; }
bool IsInteger(GgufType type) { return SizeOf(type) != 0 && !IsFloat(type) && !IsBool(type); }
bool IsIntegerOrBool(GgufType type) { return IsInteger(type) || IsBool(type); }

template <typename T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// REQUIRES: an integer or boolean. U64 beyond the range of int64 becomes negative.
int64_t LoadInt(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool: return Load<uint8_t>(p);
    case GgufType::kI8: return Load<int8_t>(p);
    case GgufType::kU16: return Load<uint16_t>(p);
    case GgufType::kI16: return Load<int16_t>(p);
    case GgufType::kU32: return Load<uint32_t>(p);
    case GgufType::kI32: return Load<int32_t>(p);
    default: return Load<int64_t>(p);
  }
}

double LoadFloat(GgufType type, const std::byte* p) {
  return type == GgufType::kF32 ? static_cast<double>(Load<float>(p)) : Load<double>(p);
}

std::string_view LoadString(const std::byte* p) {
  return {reinterpret_cast<const char*>(p + sizeof(uint64_t)), Load<uint64_t>(p)};
}

Status InvalidGguf(std::string message) { return Status(kGgufInvalid, std::move(message)); }

}  // namespace

// Walks the file from its start; every step is checked against its end. What is read is called by
// `what` or `key`, as a message shows it.
class GgufFile::Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  // The next `count` bytes, which hold `what`.
  Result<const std::byte*> Take(uint64_t count, std::string_view what) {
    if (count > left()) {
      return Status(kGgufTruncated,
                    fmt::format("{} at byte {} needs {} bytes; {} are left in the file", what,
                                position_, count, left()));
    }
    const std::byte* start = bytes_.data() + position_;
    position_ += count;
    return start;
  }

  template <typename T>
  Result<T> Number(std::string_view what) {
    FB_ASSIGN_OR_RETURN(const std::byte* p, Take(sizeof(T), what));
    return Load<T>(p);
  }

  Result<std::string_view> String(std::string_view what) {
    FB_ASSIGN_OR_RETURN(const uint64_t length, Number<uint64_t>(what));
    FB_ASSIGN_OR_RETURN(const std::byte* p, Take(length, what));
    return std::string_view(reinterpret_cast<const char*>(p), length);
  }

  Result<GgufType> Type(std::string_view key) {
    FB_ASSIGN_OR_RETURN(const uint32_t type, Number<uint32_t>(key));
    if (type > static_cast<uint32_t>(GgufType::kF64)) {
      return InvalidGguf(fmt::format("key {}: unknown value type {}", key, type));
    }
    return static_cast<GgufType>(type);
  }

  // Steps over `count` values of one type.
  Status Skip(GgufType type, uint64_t count, std::string_view key) {
    if (type == GgufType::kArray)
      return InvalidGguf(fmt::format("key {}: an array of arrays", key));
    const uint64_t least = type == GgufType::kString ? sizeof(uint64_t) : SizeOf(type);
    if (count > left() / least) {
      return Status(kGgufTruncated,
                    fmt::format("key {}: {} values of type {}; {} bytes are left in the file", key,
                                count, Name(type), left()));
    }
    if (type != GgufType::kString) {
      FB_ASSIGN_OR_RETURN(const std::byte* p, Take(count * least, key));
      if (type != GgufType::kBool) return Status::Ok();
      const bool valid = std::all_of(p, p + count, [](std::byte b) { return b <= std::byte{1}; });
      return valid ? Status::Ok()
                   : InvalidGguf(fmt::format("key {}: a bool that is neither 0 nor 1", key));
    }
    for (uint64_t i = 0; i < count; ++i) FB_RETURN_IF_ERROR(String(key).status());
    return Status::Ok();
  }

  Result<Entry> ReadEntry() {
    Entry entry{};
    FB_ASSIGN_OR_RETURN(entry.key, String("a key"));
    const std::string key = ShownName(entry.key);
    FB_ASSIGN_OR_RETURN(entry.type, Type(key));
    entry.element = entry.type;
    entry.count = 1;
    if (entry.type == GgufType::kArray) {
      FB_ASSIGN_OR_RETURN(entry.element, Type(key));
      FB_ASSIGN_OR_RETURN(entry.count, Number<uint64_t>(key));
    }
    entry.payload = bytes_.data() + position_;
    FB_RETURN_IF_ERROR(Skip(entry.element, entry.count, key));
    return entry;
  }

  // A description; its data begin `*offset` bytes into the data section and are `*size` long.
  Result<TensorInfo> ReadTensor(uint64_t* offset, uint64_t* size) {
    TensorInfo tensor;
    FB_ASSIGN_OR_RETURN(tensor.name, String("a tensor's name"));
    const std::string name = ShownName(tensor.name);
    FB_ASSIGN_OR_RETURN(const uint32_t rank, Number<uint32_t>(name));
    constexpr uint32_t kMostExtents = 64;  // of a tensor that is not read, but is well-formed
    if (rank == 0 || rank > kMostExtents) {
      return InvalidGguf(fmt::format("tensor {}: {} extents; expected 1 to {}", name, rank,
                                     tensor::Shape::kMaxRank));
    }
    uint64_t extents[kMostExtents];
    for (uint32_t i = rank; i-- > 0;) {
      FB_ASSIGN_OR_RETURN(extents[i], Number<uint64_t>(name));
      if (extents[i] == 0) return InvalidGguf(fmt::format("tensor {}: an extent of 0", name));
    }
    FB_ASSIGN_OR_RETURN(const uint32_t type, Number<uint32_t>(name));
    FB_ASSIGN_OR_RETURN(*offset, Number<uint64_t>(name));
    tensor.type = FindGgmlType(type);
    if (tensor.type == nullptr || rank > tensor::Shape::kMaxRank) {
      tensor.why =
          tensor.type == nullptr
              ? fmt::format("ggml type {}, which is not known here", type)
              : fmt::format("{} extents; at most {} are supported", rank, tensor::Shape::kMaxRank);
      tensor.type = &kUnreadableType;
      *size = 0;
      return tensor;
    }
    tensor.shape = MakeShape({extents, rank});
    const std::optional<uint64_t> bytes = StoredBytes(*tensor.type, {extents, rank});
    if (!bytes) {
      return InvalidGguf(fmt::format(
          "tensor {}: shape {} overflows, or its rows are no whole blocks of {} {}", name,
          tensor.shape.ToString(), tensor.type->format.elements, tensor.type->name));
    }
    *size = *bytes;
    return tensor;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  FB_ASSIGN_OR_RETURN(const std::byte* magic, reader.Take(4, "the magic word"));
  if (std::memcmp(magic, "GGUF", 4) != 0) return InvalidGguf("does not begin with \"GGUF\"");
  FB_ASSIGN_OR_RETURN(const uint32_t version, reader.Number<uint32_t>("the version"));
  if (version != 2 && version != 3) {
    return Status(
        kGgufVersionUnsupported,
        fmt::format("GGUF version {}{}; expected 2 or 3", version,
                    version != 0 && (version & 0xFFFF) == 0 ? " (a big-endian file)" : ""));
  }
  FB_ASSIGN_OR_RETURN(const uint64_t num_tensors, reader.Number<uint64_t>("the number of tensors"));
  FB_ASSIGN_OR_RETURN(const uint64_t num_entries, reader.Number<uint64_t>("the number of keys"));
  if (num_entries > reader.left() / kLeastEntryBytes ||
      num_tensors > reader.left() / kLeastTensorBytes) {
    return Status(kGgufTruncated,
                  fmt::format("{} keys and {} tensors do not fit in the {} bytes of the file",
                              num_entries, num_tensors, bytes.size()));
  }

  GgufFile file;
  FB_RETURN_IF_ERROR(file.ReadEntries(&reader, num_entries));
  FB_RETURN_IF_ERROR(file.ReadTensors(&reader, num_tensors, bytes));
  return file;
}

Status GgufFile::ReadEntries(Reader* reader, uint64_t count) {
  entries_.reserve(std::min(count, kMostReserved));
  for (uint64_t i = 0; i < count; ++i) {
    FB_ASSIGN_OR_RETURN(const Entry entry, reader->ReadEntry());
    entries_.push_back(entry);
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.key < b.key; });
  const auto twin =
      std::adjacent_find(entries_.begin(), entries_.end(),
                         [](const Entry& a, const Entry& b) { return a.key == b.key; });
  return twin == entries_.end()
             ? Status::Ok()
             : InvalidGguf(fmt::format("key {} is given twice", ShownName(twin->key)));
}

Status GgufFile::ReadTensors(Reader* reader, uint64_t count, std::span<const std::byte> bytes) {
  uint64_t alignment = kDefaultAlignment;
  if (Has("general.alignment")) {
    FB_ASSIGN_OR_RETURN(alignment, GetUint("general.alignment"));
    if (!std::has_single_bit(alignment) || alignment > (1u << 30)) {
      return InvalidGguf(
          fmt::format("general.alignment is {}; expected a power of two up to 2^30", alignment));
    }
  }
  struct Place {
    uint64_t offset, size, index;
  };
  std::vector<Place> places;
  tensors_.reserve(std::min(count, kMostReserved));
  for (uint64_t i = 0; i < count; ++i) {
    Place place{.index = i};
    FB_ASSIGN_OR_RETURN(TensorInfo tensor, reader->ReadTensor(&place.offset, &place.size));
    places.push_back(place);
    tensors_.push_back(std::move(tensor));
  }
  header_ = bytes.subspan(0, reader->position());

  // In the order of their data, tensors must be aligned, apart, and inside the file.
  const uint64_t start =
      std::min<uint64_t>(base::RoundUp(reader->position(), alignment), bytes.size());
  const std::span<const std::byte> data = bytes.subspan(start);
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.offset < b.offset; });
  uint64_t end = 0;
  for (const Place& place : places) {
    TensorInfo& tensor = tensors_[place.index];
    if (place.offset % alignment != 0 || place.offset < end) {
      return InvalidGguf(
          fmt::format("tensor {}: offset {} overlaps the tensor before it or is no multiple of {}",
                      ShownName(tensor.name), place.offset, alignment));
    }
    if (place.offset > data.size() || place.size > data.size() - place.offset) {
      return Status(kGgufTruncated,
                    fmt::format("tensor {}: {} bytes at offset {}; the file has {} bytes of data",
                                ShownName(tensor.name), place.size, place.offset, data.size()));
    }
    tensor.data = data.subspan(place.offset, place.size);
    end = place.offset + place.size;
  }
  return Status::Ok();
}

const GgufFile::Entry* GgufFile::FindEntry(std::string_view key) const {
  const auto it =
      std::lower_bound(entries_.begin(), entries_.end(), key,
                       [](const Entry& entry, std::string_view k) { return entry.key < k; });
  return it != entries_.end() && it->key == key ? &*it : nullptr;
}

Result<const GgufFile::Entry*> GgufFile::Require(std::string_view key, bool array,
                                                 std::string_view expected,
                                                 bool (*accepts)(GgufType)) const {
  const Entry* entry = FindEntry(key);
  if (entry == nullptr) {
    return Status(kGgufKeyMissing,
                  fmt::format("key {} is missing; expected {}", ShownName(key), expected));
  }
  if (array != (entry->type == GgufType::kArray) || !accepts(entry->element)) {
    return Status(kGgufKeyType, fmt::format("key {} has type {}{}; expected {}", ShownName(key),
                                            entry->type == GgufType::kArray ? "array of " : "",
                                            Name(entry->element), expected));
  }
  return entry;
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> keys;
  for (const Entry& entry : entries_) keys.push_back(entry.key);
  return keys;
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  FB_ASSIGN_OR_RETURN(const Entry* entry, Require(key, false, "a bool", IsBool));
  return *entry->payload != std::byte{0};
}

Result<uint64_t> GgufFile::GetUint(std::string_view key) const {
  FB_ASSIGN_OR_RETURN(const Entry* entry, Require(key, false, "an integer", IsInteger));
  const int64_t value = LoadInt(entry->type, entry->payload);
  if (value < 0) {
    return Status(kGgufKeyType,
                  fmt::format("key {} is {} as a signed number; expected 0 .. 2^63 - 1",
                              ShownName(key), value));
  }
  return static_cast<uint64_t>(value);
}

Result<double> GgufFile::GetFloat(std::string_view key) const {
  FB_ASSIGN_OR_RETURN(const Entry* entry, Require(key, false, "a float", IsFloat));
  return LoadFloat(entry->type, entry->payload);
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  FB_ASSIGN_OR_RETURN(const Entry* entry, Require(key, false, "a string", IsString));
  return LoadString(entry->payload);
}

Result<std::vector<std::string_view>> GgufFile::GetStrings(std::string_view key) const {
  FB_ASSIGN_OR_RETURN(const Entry* entry, Require(key, true, "an array of strings", IsString));
  std::vector<std::string_view> values(entry->count);
  const std::byte* p = entry->payload;
  for (std::string_view& value : values) {
    value = LoadString(p);
    p += sizeof(uint64_t) + value.size();
  }
  return values;
}

Result<std::vector<int64_t>> GgufFile::GetInts(std::string_view key) const {
  FB_ASSIGN_OR_RETURN(const Entry* entry,
                      Require(key, true, "an array of integers", IsIntegerOrBool));
  std::vector<int64_t> values(entry->count);
  const uint64_t size = SizeOf(entry->element);
  for (uint64_t i = 0; i < entry->count; ++i)
    values[i] = LoadInt(entry->element, entry->payload + i * size);
  return values;
}

Result<std::vector<double>> GgufFile::GetFloats(std::string_view key) const {
  FB_ASSIGN_OR_RETURN(const Entry* entry, Require(key, true, "an array of floats", IsFloat));
  std::vector<double> values(entry->count);
  const uint64_t size = SizeOf(entry->element);
  for (uint64_t i = 0; i < entry->count; ++i)
    values[i] = LoadFloat(entry->element, entry->payload + i * size);
  return values;
}

}  // namespace forebay::weights
