// The optimum of a small packing, by a mixed-integer solver (HiGHS) that is loaded when it is asked
// for: the program neither links nor needs it.
//
// The formulation is that of Vasuki's appendix A with what follows from a beginning put in: x[i][t]
// says that request i begins at step t; it is there at step s if it began at s - age for an age of
// its stay, and holds its profile's tokens then. Beginnings after which a request would end beyond
// the horizon do not exist.
//
//   minimise M   with   sum_t x[i][t] = 1                                       for each i
//                       sum_i sum_t x[i][t] profile_i(s - t) <= capacity        for each s
//                       M >= sum_t (t + stay_i) x[i][t]                         for each i
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "oracle/instance.h"

namespace forebay::oracle {

inline constexpr base::ErrorCode kSolverMissing{"solver_missing"};
inline constexpr base::ErrorCode kSolverFailed{"solver_failed"};

struct Optimum {
  Packing packing;      // the best that was found
  int64_t bound = 0;    // no packing is shorter
  bool proven = false;  // the packing is as short as the bound
};

class Solver {
 public:
  // `path`: of libhighs.so. kSolverMissing: it is not there, or is another library.
  static base::Result<Solver> Load(const std::string& path);

  // Solves within `seconds`. `known` is a packing: its makespan is the horizon, and it is the
  // answer where nothing better is found in time.
  base::Result<Optimum> Solve(const Instance& instance, const Packing& known, double seconds) const;

 private:
  struct Functions;
  explicit Solver(std::shared_ptr<const Functions> functions) : functions_(std::move(functions)) {}

  std::shared_ptr<const Functions> functions_;  // they belong to a library that is never unloaded
};

}  // namespace forebay::oracle
