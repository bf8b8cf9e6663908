// Shows how far a search of layouts is.
#pragma once

#include <chrono>
#include <string>

#include "choose/layout_search.h"

namespace forebay::cli {

// "12 of 34 layouts foreseen, 3 with other settings, the best so far 28.9s".
std::string SearchLine(const choose::SearchProgress& progress);

// On stderr: one line that moves where that is a terminal, else a line every five seconds. The line
// of a terminal is gone when the search is done, and at the display's end.
class SearchDisplay {
 public:
  explicit SearchDisplay(bool quiet);  // shows nothing
  ~SearchDisplay() { Erase(); }
  SearchDisplay(const SearchDisplay&) = delete;
  SearchDisplay& operator=(const SearchDisplay&) = delete;

  // Shows what the search tells; for as long as the display lives.
  choose::TellSearch tell() {
    return [this](const choose::SearchProgress& progress) { Show(progress); };
  }

 private:
  void Show(const choose::SearchProgress& progress);
  void Erase();

  const bool quiet_, live_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace forebay::cli
