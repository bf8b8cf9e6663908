#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace forebay::base {
namespace {

spdlog::logger& Logger() {
  static const auto logger = [] {
    auto made = std::make_shared<spdlog::logger>("forebay", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("forebay: %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

const char* Prefix(LogLevel level) {
  switch (level) {
    case LogLevel::kWarning: return "warning: ";
    case LogLevel::kError: return "error: ";
    default: return "";
  }
}

}  // namespace

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }

void Log(LogLevel level, std::string_view message) {
  Logger().log(ToSpdlog(level), "{}{}", Prefix(level), message);
}

}  // namespace forebay::base
