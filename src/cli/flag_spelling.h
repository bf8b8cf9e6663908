// Flags as users of other engines spell them, and what to say to those that do not exist.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::cli {

// The arguments after the program's name with the spellings that other engines take as well turned
// into ours: --max_num_seqs, -tp, -pp, -dp.
std::vector<std::string> NormalArguments(int argc, const char* const* argv);

// What a command that refused its arguments says, with a hint where a flag is another engine's or
// nearly one of ours.
std::string DescribeFlagError(const CLI::App& app, const CLI::ParseError& error);

// For CLI::Option::check: integers above 0.
std::string CheckPositive(const std::string& text);

}  // namespace forebay::cli
