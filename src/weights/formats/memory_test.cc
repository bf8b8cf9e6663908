// No header, however bent, makes a reader allocate more than 16 times the file's size and 4 MB.
#include <gtest/gtest.h>

#include "base/testing/allocation_counter.h"
#include "weights/formats/testing/weight_files.h"
#include "weights/formats/weight_source.h"

namespace forebay::weights {
namespace {

constexpr size_t kFileBytes = 4 << 20;

// Opens `path` and holds what that took against the size of the file.
void ExpectBounded(const std::string& path, size_t file_bytes) {
  std::string outcome = "opened";
  const size_t taken = base::PeakBytes([&] {
    if (const auto source = WeightSource::Open(path); !source.ok())
      outcome = source.status().message().substr(0, 200);
  });
  EXPECT_GT(taken, 0u);
  EXPECT_LE(taken, base::AllocationLimit(file_bytes))
      << static_cast<double>(taken) / file_bytes << "x; " << outcome;
}

TEST(Memory, SafetensorsOfEmptyTensors) {
  std::string header = "{";
  for (int i = 0; header.size() < kFileBytes; ++i) {
    header += (i ? ",\"" : "\"") + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  base::TemporaryFolder folder;
  folder.Write("model.safetensors", SafetensorsBytes(header + "}", ""));
  ExpectBounded(folder.path(), kFileBytes);
}

TEST(Memory, SafetensorsOfBracketsAndMetadata) {
  base::TemporaryFolder folder;
  folder.Write("model.safetensors", SafetensorsBytes(std::string(kFileBytes, '['), ""));
  ExpectBounded(folder.path(), kFileBytes);
  std::string header = R"({"__metadata__":{)";
  while (header.size() < kFileBytes) header += "\"\":\"\",";
  folder.Write("model.safetensors", SafetensorsBytes(header + "\"\":\"\"}}", ""));
  ExpectBounded(folder.path(), kFileBytes);
}

TEST(Memory, AnIndexOfManyTensors) {
  std::string index = R"({"weight_map":{)";
  for (int i = 0; index.size() < kFileBytes; ++i)
    index += (i ? ",\"\":\"" : "\"\":\"") + std::to_string(i % 10) + "\"";
  base::TemporaryFolder folder;
  folder.Write("model.safetensors.index.json", index + "}}");
  for (int i = 0; i < 10; ++i) folder.Write(std::to_string(i), SafetensorsBytes("{}", ""));
  ExpectBounded(folder.path(), kFileBytes);
}

TEST(Memory, GgufOfManyKeysOrTensors) {
  base::TemporaryFolder folder;
  const uint64_t keys = kFileBytes / 17, tensors = kFileBytes / 68;
  GgufBytes all_keys(0, keys);
  for (uint32_t i = 0; i < keys; ++i) {
    all_keys.Text({reinterpret_cast<const char*>(&i), 4}).Raw<uint32_t>(0).Raw<uint8_t>(0);
  }
  ExpectBounded(folder.Write("keys.gguf", all_keys.bytes()), all_keys.bytes().size());
  GgufBytes all_tensors(tensors, 0);
  for (uint32_t i = 0; i < tensors; ++i) {
    all_tensors.Tensor({reinterpret_cast<const char*>(&i), 4}, {32}, 24, uint64_t{i} * 32);
  }
  all_tensors.Data(std::string(tensors * 32, '\0'));
  ExpectBounded(folder.Write("tensors.gguf", all_tensors.bytes()), all_tensors.bytes().size());
}

}  // namespace
}  // namespace forebay::weights
