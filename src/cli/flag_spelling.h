// Flags as users of other engines spell them, and what to say to those that do not exist.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::cli {

// The arguments after the program's name with the spellings that other engines take as well turned
// into ours: --max_num_seqs, -tp, -pp, -dp.
std::vector<std::string> NormalArguments(int argc, const char* const* argv);

// What to say to an argument that is none of `flags` ("--model"): that it is another engine's, or
// nearly one of ours; "": nothing.
std::string HintFor(std::span<const std::string> flags, std::string_view argument);

}  // namespace forebay::cli
