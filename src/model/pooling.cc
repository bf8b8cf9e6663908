#include "model/pooling.h"

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
    if (path.find("..") != std::string_view::npos || path.starts_with('/'))
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

}  // namespace

std::optional<Pooling> PoolingNamed(std::string_view name) {
  if (name == "last") return Pooling{.rows = Pooling::Rows::kLast};
  if (name == "first") return Pooling{.rows = Pooling::Rows::kFirst};
  if (name == "mean") return Pooling{.rows = Pooling::Rows::kMean};
  return std::nullopt;
}

base::Result<Pooling> ParsePooling(std::string_view modules, std::string_view pooling,
                                   const std::string& folder) {
  const std::string where = folder + "/modules.json";
  FB_ASSIGN_OR_RETURN(const std::vector<Module> list, ParseModules(modules, where));
  Pooling found{.normalize = false};
  bool pools = false;
  for (size_t i = 1; i < list.size(); ++i) {
    const Module& module = list[i];
    if (module.kind == "Pooling" && !pools) {
      FB_ASSIGN_OR_RETURN(
          found.rows, ParseRows(pooling, fmt::format("{}/{}/config.json", folder, module.path)));
      pools = true;
    } else if (module.kind == "Normalize" && pools && i + 1 == list.size()) {
      found.normalize = true;
    } else {
      return base::Status(kPoolingUnsupported,
                          fmt::format("{}: module {} is {}; expected Transformer, Pooling and "
                                      "Normalize, in this order",
                                      where, i, base::ShownName(module.kind)));
    }
  }
  if (!pools) return Invalid(where, "no Pooling among its modules");
  return found;
}

base::Result<std::optional<Pooling>> ReadPooling(const std::string& folder) {
  const std::string path = folder + "/modules.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<Pooling>();
  FB_ASSIGN_OR_RETURN(const std::string modules, base::ReadFile(path));
  FB_ASSIGN_OR_RETURN(const std::vector<Module> list, ParseModules(modules, path));
  std::string text = "{}";
  for (const Module& module : list) {
    if (module.kind != "Pooling") continue;
    FB_ASSIGN_OR_RETURN(text,
                        base::ReadFile(fmt::format("{}/{}/config.json", folder, module.path)));
    break;
  }
  FB_ASSIGN_OR_RETURN(const Pooling pooling, ParsePooling(modules, text, folder));
  return std::optional(pooling);
}

}  // namespace forebay::model
