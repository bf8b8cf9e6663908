#include "weights/formats/unpack.h"

#include <cstring>

#include "base/check.h"
#include "weights/formats/tensor_info.h"

namespace forebay::weights {
namespace {

using kernels::TileForm;

// Where the parts of a row that the next block fills begin.
struct BlockOut {
  uint8_t *codes, *scales, *minima, *outer_scales, *outer_minima;
};

void Copy(uint8_t* to, const uint8_t* from, int bytes) { std::memcpy(to, from, bytes); }

// 16 bytes of 32 codes: the low halves are the first 16.
void UnpackNibbles(const uint8_t* from, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) codes[i] = from[i] & 15;
  for (int i = 0; i < 16; ++i) codes[16 + i] = from[i] >> 4;
}

// Adds bit i of the four bytes to code i as bit 4.
void AddHighBits(const uint8_t* from, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (bits >> i & 1) << 4);
}

void UnpackQ8_0(const uint8_t* in, const BlockOut& out) {
  Copy(out.scales, in, 2);
  Copy(out.codes, in + 2, 32);
}
// Q4_0 and IQ4_NL.
void UnpackQ4_0(const uint8_t* in, const BlockOut& out) {
  Copy(out.scales, in, 2);
  UnpackNibbles(in + 2, out.codes);
}
void UnpackQ4_1(const uint8_t* in, const BlockOut& out) {
  Copy(out.scales, in, 2);
  Copy(out.minima, in + 2, 2);
  UnpackNibbles(in + 4, out.codes);
}
void UnpackQ5_0(const uint8_t* in, const BlockOut& out) {
  Copy(out.scales, in, 2);
  UnpackNibbles(in + 6, out.codes);
  AddHighBits(in + 2, out.codes);
}
void UnpackQ5_1(const uint8_t* in, const BlockOut& out) {
  Copy(out.scales, in, 2);
  Copy(out.minima, in + 2, 2);
  UnpackNibbles(in + 8, out.codes);
  AddHighBits(in + 4, out.codes);
}
void UnpackMXFP4(const uint8_t* in, const BlockOut& out) {
  out.scales[0] = in[0];
  UnpackNibbles(in + 1, out.codes);
}

void UnpackQ2_K(const uint8_t* in, const BlockOut& out) {
  const uint8_t* const quants = in + 16;
  for (int i = 0; i < 16; ++i) {
    out.scales[i] = in[i] & 15;
    out.minima[i] = in[i] >> 4;
  }
  for (int i = 0; i < 256; ++i)
    out.codes[i] = quants[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
  Copy(out.outer_scales, in + 80, 2);
  Copy(out.outer_minima, in + 82, 2);
}

void UnpackQ3_K(const uint8_t* in, const BlockOut& out) {
  const uint8_t *const quants = in + 32, *const scales = in + 96;
  for (int i = 0; i < 256; ++i) {
    const int low = quants[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    const int high = in[i % 32] >> (i / 32) & 1;
    out.codes[i] = static_cast<uint8_t>(low | high << 2);
  }
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
    const int high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
    out.scales[i] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  Copy(out.outer_scales, in + 108, 2);
}

// Eight scales and eight minima of 6 bits in 12 bytes.
void UnpackScalesOfK(const uint8_t* in, const BlockOut& out) {
  for (int i = 0; i < 4; ++i) {
    out.scales[i] = in[i] & 63;
    out.minima[i] = in[i + 4] & 63;
    out.scales[i + 4] = static_cast<uint8_t>((in[i + 8] & 15) | in[i] >> 6 << 4);
    out.minima[i + 4] = static_cast<uint8_t>(in[i + 8] >> 4 | in[i + 4] >> 6 << 4);
  }
}
// 32 bytes of 64 codes: the low halves are the first 32.
void UnpackLongNibbles(const uint8_t* in, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = in[i] & 15;
  for (int i = 0; i < 32; ++i) codes[32 + i] = in[i] >> 4;
}

void UnpackQ4_K(const uint8_t* in, const BlockOut& out) {
  Copy(out.outer_scales, in, 2);
  Copy(out.outer_minima, in + 2, 2);
  UnpackScalesOfK(in + 4, out);
  for (int i = 0; i < 4; ++i) UnpackLongNibbles(in + 16 + 32 * i, out.codes + 64 * i);
}

void UnpackQ5_K(const uint8_t* in, const BlockOut& out) {
  Copy(out.outer_scales, in, 2);
  Copy(out.outer_minima, in + 2, 2);
  UnpackScalesOfK(in + 4, out);
  for (int i = 0; i < 4; ++i) UnpackLongNibbles(in + 48 + 32 * i, out.codes + 64 * i);
  for (int part = 0; part < 8; ++part) {
    for (int i = 0; i < 32; ++i) {
      const int high = in[16 + i] >> part & 1;
      out.codes[32 * part + i] = static_cast<uint8_t>(out.codes[32 * part + i] | high << 4);
    }
  }
}

void UnpackQ6_K(const uint8_t* in, const BlockOut& out) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t *const low = in + 64 * half, *const high = in + 128 + 32 * half;
    for (int part = 0; part < 4; ++part) {
      uint8_t* const codes = out.codes + 128 * half + 32 * part;
      for (int i = 0; i < 32; ++i) {
        const int low_bits = low[part % 2 * 32 + i] >> (part / 2 * 4) & 15;
        codes[i] = static_cast<uint8_t>(low_bits | (high[i] >> (2 * part) & 3) << 4);
      }
    }
  }
  Copy(out.scales, in + 192, 16);
  Copy(out.outer_scales, in + 208, 2);
}

void UnpackIQ4_XS(const uint8_t* in, const BlockOut& out) {
  Copy(out.outer_scales, in, 2);
  uint16_t high;
  std::memcpy(&high, in + 2, sizeof(high));
  for (int i = 0; i < 8; ++i) {
    const int low = in[4 + i / 2] >> (i % 2 * 4) & 15;
    out.scales[i] = static_cast<uint8_t>((low | (high >> (2 * i) & 3) << 4) - 32);
    UnpackNibbles(in + 8 + 16 * i, out.codes + 32 * i);
  }
}

using UnpackBlock = void (*)(const uint8_t* in, const BlockOut& out);

UnpackBlock UnpackOf(TileForm form) {
  switch (form) {
    case TileForm::kQ8_0: return UnpackQ8_0;
    case TileForm::kQ6_K: return UnpackQ6_K;
    case TileForm::kQ5_K: return UnpackQ5_K;
    case TileForm::kQ4_K: return UnpackQ4_K;
    case TileForm::kQ3_K: return UnpackQ3_K;
    case TileForm::kQ2_K: return UnpackQ2_K;
    case TileForm::kQ5_1: return UnpackQ5_1;
    case TileForm::kQ5_0: return UnpackQ5_0;
    case TileForm::kQ4_1: return UnpackQ4_1;
    case TileForm::kQ4_0:
    case TileForm::kIQ4_NL: return UnpackQ4_0;
    case TileForm::kIQ4_XS: return UnpackIQ4_XS;
    case TileForm::kMXFP4: return UnpackMXFP4;
    default: return nullptr;
  }
}

uint8_t* Bytes(std::vector<std::byte>& values) { return reinterpret_cast<uint8_t*>(values.data()); }

}  // namespace

void UnpackBlocks(TileForm form, const std::byte* source, int64_t count, StoredRowMemory* row) {
  const UnpackBlock unpack = UnpackOf(form);
  const tensor::BlockFormat block = BlocksOf(form);
  FB_CHECK(unpack != nullptr && count % block.elements == 0, "{} values of {}", count,
           kernels::TraitsOf(form).name);
  row->Resize(form, count);
  const kernels::FormTraits& traits = kernels::TraitsOf(form);
  const int64_t groups = block.elements / traits.group;
  BlockOut out{row->codes.data(), Bytes(row->scales), Bytes(row->minima), Bytes(row->outer_scales),
               Bytes(row->outer_minima)};
  const uint8_t* in = reinterpret_cast<const uint8_t*>(source);
  for (int64_t i = 0; i < count; i += block.elements) {
    unpack(in, out);
    in += block.bytes;
    out.codes += block.elements;
    out.scales += groups * traits.scale_bytes();
    out.minima += groups * traits.minimum_bytes();
    out.outer_scales += traits.outer_scale_bytes();
    out.outer_minima += traits.outer_minimum_bytes();
  }
}

void ExpandBlocks(TileForm form, const std::byte* source, int64_t count, float* out) {
  StoredRowMemory row;
  UnpackBlocks(form, source, count, &row);
  kernels::ExpandRow(form, row.view(), 0, count, out);
}

}  // namespace forebay::weights
