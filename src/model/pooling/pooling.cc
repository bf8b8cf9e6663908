#include "model/pooling/pooling.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/read_file.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr size_t kMostPathBytes = 255;

struct Module {
  std::string kind;  // the last part of its class' name
  std::string path;
};

base::Status Invalid(const std::string& where, std::string_view what) {
  return {kPoolingInvalid, fmt::format("{}: {}", where, what)};
}

base::Result<std::vector<Module>> ParseModules(std::string_view text, const std::string& where) {
  simdjson::dom::parser parser;
  const auto parsed = base::ParseJson(parser, text);
  if (!parsed.ok()) return Invalid(where, parsed.status().message());
  simdjson::dom::array list;
  if (parsed->get(list)) return Invalid(where, "no list of modules");
  std::vector<Module> modules;
  for (const simdjson::dom::element item : list) {
    std::string_view type, path;
    if (item["type"].get(type) || item["path"].get(path))
      return Invalid(where, "a module without the strings \"type\" and \"path\"");
    // A path leads to a folder beside the file.
    if (path.find("..") != std::string_view::npos || path.starts_with('/') ||
        path.size() > kMostPathBytes)
      return Invalid(where, fmt::format("a module's path is {}; expected a folder beside the file",
                                        base::ShownName(path)));
    modules.push_back({std::string(type.substr(type.rfind('.') + 1)), std::string(path)});
  }
  if (modules.empty() || modules.front().kind != "Transformer")
    return Invalid(where, "its first module is no Transformer");
  return modules;
}

base::Result<Pooling::Rows> ParseRows(std::string_view text, const std::string& where) {
  constexpr std::pair<std::string_view, Pooling::Rows> kKinds[] = {
      {"pooling_mode_lasttoken", Pooling::Rows::kLast},
      {"pooling_mode_cls_token", Pooling::Rows::kFirst},
      {"pooling_mode_mean_tokens", Pooling::Rows::kMean}};
  simdjson::dom::parser parser;
  const auto parsed = base::ParseJson(parser, text);
  if (!parsed.ok()) return Invalid(where, parsed.status().message());
  simdjson::dom::object object;
  if (parsed->get(object)) return Invalid(where, "no object");
  std::optional<Pooling::Rows> rows;
  for (const auto& member : object) {
    bool on = false;
    if (!member.key.starts_with("pooling_mode_") || member.value.is_null()) continue;
    if (member.value.get(on))
      return Invalid(where,
                     fmt::format("{} is neither true nor false", base::ShownName(member.key)));
    if (!on) continue;
    const auto* const kind =
        std::ranges::find(kKinds, member.key, [](const auto& known) { return known.first; });
    if (kind == std::end(kKinds) || rows) {
      return base::Status(
          kPoolingUnsupported,
          fmt::format("{}: {} is true{}; expected one of pooling_mode_lasttoken, "
                      "pooling_mode_cls_token and pooling_mode_mean_tokens",
                      where, base::ShownName(member.key), rows ? " beside another" : ""));
    }
    rows = kind->second;
  }
  if (!rows) return Invalid(where, "no pooling_mode_... is true");
  return *rows;
}

// A Dense module's; its folder is left open.
base::Result<DenseLayer> ParseDense(std::string_view text, const std::string& where) {
  constexpr int64_t kMostFeatures = 1 << 20;
  simdjson::dom::parser parser;
  const auto parsed = base::ParseJson(parser, text);
  if (!parsed.ok()) return Invalid(where, parsed.status().message());
  simdjson::dom::object object;
  if (parsed->get(object)) return Invalid(where, "no object");
  DenseLayer layer{.name = "linear"};
  for (const auto& [key, size] :
       {std::pair{"in_features", &layer.in}, {"out_features", &layer.out}}) {
    if (object[key].get(*size) || *size < 1 || *size > kMostFeatures)
      return Invalid(where, fmt::format("{} is no integer from 1 to {}", key, kMostFeatures));
  }
  if (object["bias"].get(layer.bias)) return Invalid(where, "bias is neither true nor false");
  std::string_view activation;
  if (object["activation_function"].get(activation))
    return Invalid(where, "activation_function is no string");
  const std::string_view name = activation.substr(activation.rfind('.') + 1);
  if (name == "Tanh") {
    layer.activation = DenseLayer::Activation::kTanh;
  } else if (name == "GELU") {
    layer.activation = DenseLayer::Activation::kErfGelu;
  } else if (name != "Identity") {
    return base::Status(
        kPoolingUnsupported,
        fmt::format("{}: activation_function is {}; expected Identity, Tanh or GELU "
                    "of torch.nn.modules",
                    where, base::ShownName(activation)));
  }
  return layer;
}

}  // namespace

std::optional<Pooling> PoolingNamed(std::string_view name) {
  if (name == "last") return Pooling{.rows = Pooling::Rows::kLast};
  if (name == "first") return Pooling{.rows = Pooling::Rows::kFirst};
  if (name == "mean") return Pooling{.rows = Pooling::Rows::kMean};
  return std::nullopt;
}

base::Result<Pooling> ParsePooling(std::string_view modules, const ConfigOf& config_of,
                                   const std::string& folder) {
  const std::string where = folder + "/modules.json";
  FB_ASSIGN_OR_RETURN(const std::vector<Module> list, ParseModules(modules, where));
  Pooling found{.normalize = false};
  bool pools = false;
  for (size_t i = 1; i < list.size(); ++i) {
    const Module& module = list[i];
    const bool dense = module.kind == "Dense" && pools;
    if (dense || (module.kind == "Pooling" && !pools)) {
      FB_ASSIGN_OR_RETURN(const std::string config, config_of(module.path));
      const std::string path = fmt::format("{}/{}/config.json", folder, module.path);
      if (dense) {
        FB_ASSIGN_OR_RETURN(found.dense.emplace_back(), ParseDense(config, path));
        found.dense.back().folder = module.path;
      } else {
        FB_ASSIGN_OR_RETURN(found.rows, ParseRows(config, path));
        pools = true;
      }
    } else if (module.kind == "Normalize" && pools && i + 1 == list.size()) {
      found.normalize = true;
    } else {
      return base::Status(kPoolingUnsupported,
                          fmt::format("{}: module {} is {}; expected Transformer, Pooling, Dense "
                                      "and Normalize, in this order",
                                      where, i, base::ShownName(module.kind)));
    }
  }
  if (!pools) return Invalid(where, "no Pooling among its modules");
  for (size_t i = 1; i < found.dense.size(); ++i) {
    if (found.dense[i].in == found.dense[i - 1].out) continue;
    return Invalid(where, fmt::format("a Dense has {} inputs behind one of {} outputs",
                                      found.dense[i].in, found.dense[i - 1].out));
  }
  return found;
}

base::Result<std::optional<Pooling>> ReadPooling(const std::string& folder) {
  const std::string path = folder + "/modules.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<Pooling>();
  FB_ASSIGN_OR_RETURN(const std::string modules, base::ReadFile(path));
  const auto config_of = [&](const std::string& module) {
    return base::ReadFile(fmt::format("{}/{}/config.json", folder, module));
  };
  FB_ASSIGN_OR_RETURN(Pooling pooling, ParsePooling(modules, config_of, folder));
  return std::optional(std::move(pooling));
}

}  // namespace forebay::model
