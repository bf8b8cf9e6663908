#include "kernels/latent_attention.h"

#include <span>

#include "base/check.h"
#include "kernels/kernel_set.h"
#include "kernels/number_format.h"

namespace forebay::kernels {
namespace {

void Check(const LatentKvArgs& args) {
  const KvLayout& layout = args.layout;
  CheckKvLayout("latent_kv", layout, args.heads);
  FB_CHECK(
      layout.kv_heads == 1 && layout.values_in_keys && args.turned() > 0 && args.turned() % 2 == 0,
      "latent_kv: {} heads of keys of {} and values of {}; expected one, its value within "
      "its key and an even rest",
      layout.kv_heads, layout.key_dim, layout.value_dim);
  FB_CHECK(args.rope_cos != nullptr && args.rope_sin != nullptr && args.kv_norm != nullptr,
           "latent_kv: no rope tables or no norm");
}

}  // namespace

void LatentKv(device::Stream& stream, const KernelSet& kernels, const LatentKvArgs& args) {
  const StepBatch& batch = args.batch;
  if (batch.num_rows == 0) return;
  Check(args);
  const uint64_t rows = static_cast<uint64_t>(batch.num_rows);
  const uint64_t queries = static_cast<uint64_t>(args.heads * (args.plain + args.turned())),
                 absorbed = static_cast<uint64_t>(args.heads * args.layout.key_dim);
  const uint64_t key = static_cast<uint64_t>(args.layout.key_dim);
  const uint64_t element = tensor::SizeOf(args.layout.dtype);
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kNorm;
  desc.label = "latent_kv";
  desc.rows = batch.num_rows;
  desc.columns = static_cast<int64_t>(queries + key);
  desc.weight_format = NumberFormatOf(args.layout.dtype);
  desc.flops = 4.0 * static_cast<double>(rows) * static_cast<double>(desc.columns);
  desc.write_bytes =
      static_cast<double>(rows) * static_cast<double>(args.layout.LayerBytes()) / kBlockTokens;
  device::Operation operation = device::MakeOperation(desc, args, kernels.latent_kv);
  operation.Reads(args.kv, rows * key * sizeof(float))
      .Reads(args.queries, rows * queries * sizeof(float))
      .Writes(args.q, rows * queries * element)
      .Writes(args.absorbed, rows * absorbed * element);
  DeclareBatch(batch, &operation);
  operation.further_accesses = [](const void* raw, std::vector<device::Access>* accesses) {
    const LatentKvArgs& all = *static_cast<const LatentKvArgs*>(raw);
    WrittenBlocks(all.batch, all.layout, all.layer, all.digests, accesses);
  };
  stream.Enqueue(operation);
}

void GatherLatents(device::Stream& stream, const KernelSet& kernels,
                   const GatherLatentsArgs& args) {
  CheckKvLayout("gather_latents", args.layout, args.layout.kv_heads);
  FB_CHECK(args.layout.kv_heads == 1 && args.layout.values_in_keys,
           "gather_latents: {} heads whose values are {}; expected one, its value within its key",
           args.layout.kv_heads, args.layout.values_in_keys ? "in keys" : "stored");
  const uint64_t bytes =
      tensor::BytesOf(args.layout.dtype, static_cast<uint64_t>(args.num_blocks) *
                                             static_cast<uint64_t>(args.layout.HeadElements()));
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kOther;
  desc.label = "gather_latents";
  desc.rows = int64_t{args.num_blocks} * kBlockTokens;
  desc.columns = args.layout.key_dim;
  desc.read_bytes = static_cast<double>(args.num_blocks * args.layout.LayerBytes());
  desc.write_bytes = static_cast<double>(bytes);
  device::Operation operation = device::MakeOperation(desc, args, kernels.gather_latents);
  operation.Reads(args.blocks, static_cast<uint64_t>(args.num_blocks) * sizeof(*args.blocks))
      .Writes(args.out, bytes);
  operation.further_accesses = [](const void* raw, std::vector<device::Access>* accesses) {
    const GatherLatentsArgs& all = *static_cast<const GatherLatentsArgs*>(raw);
    for (const uint32_t entry : std::span(all.blocks, static_cast<size_t>(all.num_blocks))) {
      accesses->push_back({all.layer.Block(entry, all.layout),
                           static_cast<uint64_t>(all.layout.LayerBytes()), false});
    }
  };
  stream.Enqueue(operation);
}

void StoreExpanded(device::Stream& stream, const KernelSet& kernels,
                   const StoreExpandedArgs& args) {
  const KvLayout& layout = args.layout;
  CheckKvLayout("store_expanded", layout, layout.kv_heads);
  FB_CHECK(!layout.values_in_keys && args.plain > 0 && args.turned() > 0 &&
               args.turned() <= args.latent_dim,
           "store_expanded: keys of {}, of which {} are a head's own and the rest ends rows of {}",
           layout.key_dim, args.plain, args.latent_dim);
  const uint64_t rows = static_cast<uint64_t>(args.num_blocks) * kBlockTokens,
                 element = tensor::SizeOf(layout.dtype),
                 keys = rows * static_cast<uint64_t>(layout.kv_heads * args.plain) * element,
                 values =
                     rows * static_cast<uint64_t>(layout.kv_heads * layout.value_dim) * element,
                 latents = rows * static_cast<uint64_t>(args.latent_dim) * element,
                 stored = static_cast<uint64_t>(args.num_blocks * layout.LayerBytes());
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kOther;
  desc.label = "store_expanded";
  desc.rows = static_cast<int64_t>(rows);
  desc.columns = int64_t{layout.kv_heads} * (layout.key_dim + layout.value_dim);
  desc.read_bytes =
      static_cast<double>(keys + values + rows * static_cast<uint64_t>(args.turned()) * element);
  desc.write_bytes = static_cast<double>(stored);
  device::Operation operation = device::MakeOperation(desc, args, kernels.store_expanded);
  operation.Reads(args.keys, keys)
      .Reads(args.values, values)
      .Reads(args.latents, latents)
      .Writes(args.blocks, stored);
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels
