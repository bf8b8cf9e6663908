// Shows how far a search of layouts is.
#pragma once

#include <chrono>
#include <string>

#include "choose/layout_search.h"

namespace forebay::cli {

// "12 of 34 layouts foreseen, 3 with other settings, the best so far 28.9s".
std::string SearchLine(const choose::SearchProgress& progress);

// On stderr: one line that moves where that is a terminal, else a line every five seconds. The line
// of a terminal is gone at the end.
class SearchDisplay {
 public:
  SearchDisplay();
  ~SearchDisplay();
  SearchDisplay(const SearchDisplay&) = delete;
  SearchDisplay& operator=(const SearchDisplay&) = delete;

  void Show(const choose::SearchProgress& progress);

 private:
  const bool live_;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace forebay::cli
