#include "oracle/milp.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace forebay::oracle {
namespace {

// HiGHS's C interface has 32-bit integers in every published build.
using HighsInt = int;
constexpr HighsInt kMinimise = 1, kByRow = 2, kInteger = 1, kContinuous = 0;

// Rows and columns as the solver takes them.
class Model {
 public:
  Model(const Instance& instance, const Packing& known) : instance_(instance) {
    horizon_ = known.makespan;
    for (const Profile& profile : instance.requests) {
      first_.push_back(static_cast<HighsInt>(integrality.size()));
      const int64_t beginnings = horizon_ - static_cast<int64_t>(profile.size()) + 1;
      integrality.insert(integrality.end(), static_cast<size_t>(beginnings), kInteger);
    }
    makespan_ = static_cast<HighsInt>(integrality.size());
    first_.push_back(makespan_);
    integrality.push_back(kContinuous);
    cost.assign(integrality.size(), 0);
    cost.back() = 1;
    lower.assign(integrality.size(), 0);
    upper.assign(integrality.size(), 1);
    lower.back() = static_cast<double>(LowerBound(instance));
    upper.back() = static_cast<double>(horizon_);
    AddBeginnings();
    AddCapacity();
    AddMakespan();
    row_start.push_back(static_cast<HighsInt>(index.size()));
  }

  // The packing whose beginnings the columns hold.
  Packing Read(const std::vector<double>& columns) const {
    Packing packing;
    for (size_t i = 0; i < instance_.requests.size(); ++i) {
      const auto begin = columns.begin() + first_[i], end = columns.begin() + first_[i + 1];
      packing.begin.push_back(std::max_element(begin, end) - begin);
      packing.makespan =
          std::max(packing.makespan,
                   packing.begin.back() + static_cast<int64_t>(instance_.requests[i].size()));
    }
    return packing;
  }

  HighsInt num_columns() const { return static_cast<HighsInt>(cost.size()); }
  HighsInt num_rows() const { return static_cast<HighsInt>(row_lower.size()); }

  std::vector<double> cost, lower, upper, row_lower, row_upper, value;
  std::vector<HighsInt> integrality, row_start, index;

 private:
  void BeginRow(double least, double most) {
    row_start.push_back(static_cast<HighsInt>(index.size()));
    row_lower.push_back(least);
    row_upper.push_back(most);
  }
  void Add(HighsInt column, double factor) {
    index.push_back(column);
    value.push_back(factor);
  }
  void AddBeginnings() {
    for (size_t i = 0; i < instance_.requests.size(); ++i) {
      BeginRow(1, 1);
      for (HighsInt column = first_[i]; column < first_[i + 1]; ++column) Add(column, 1);
    }
  }
  void AddCapacity() {
    for (int64_t step = 0; step < horizon_; ++step) {
      BeginRow(0, static_cast<double>(instance_.capacity));
      for (size_t i = 0; i < instance_.requests.size(); ++i) {
        const Profile& profile = instance_.requests[i];
        const int64_t last = std::min<int64_t>(step, first_[i + 1] - first_[i] - 1);
        for (int64_t begin = std::max<int64_t>(0, step - static_cast<int64_t>(profile.size()) + 1);
             begin <= last; ++begin) {
          Add(first_[i] + static_cast<HighsInt>(begin),
              static_cast<double>(profile[static_cast<size_t>(step - begin)]));
        }
      }
    }
  }
  void AddMakespan() {
    for (size_t i = 0; i < instance_.requests.size(); ++i) {
      BeginRow(0, HUGE_VAL);
      for (HighsInt column = first_[i]; column < first_[i + 1]; ++column) {
        Add(column, -static_cast<double>(column - first_[i] +
                                         static_cast<HighsInt>(instance_.requests[i].size())));
      }
      Add(makespan_, 1);
    }
  }

  const Instance& instance_;
  int64_t horizon_ = 0;
  std::vector<HighsInt> first_;  // by request: the column of its beginning at step 0; [requests]: M
  HighsInt makespan_ = 0;
};

}  // namespace

struct Solver::Functions {
  void* (*create)();
  void (*destroy)(void*);
  HighsInt (*set_bool)(void*, const char*, HighsInt);
  HighsInt (*set_double)(void*, const char*, double);
  HighsInt (*pass_mip)(void*, HighsInt, HighsInt, HighsInt, HighsInt, HighsInt, double,
                       const double*, const double*, const double*, const double*, const double*,
                       const HighsInt*, const HighsInt*, const double*, const HighsInt*);
  HighsInt (*run)(void*);
  HighsInt (*get_double)(const void*, const char*, double*);
  HighsInt (*get_solution)(const void*, double*, double*, double*, double*);
};

base::Result<Solver> Solver::Load(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return base::Status(kSolverMissing,
                        fmt::format("{}: {}; tools/fetch_highs.sh fetches it", path, dlerror()));
  }
  auto functions = std::make_shared<Functions>();
  base::Status status;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr && status.ok()) {
      status =
          base::Status(kSolverMissing, fmt::format("{} has no {}: it is not HiGHS", path, name));
    }
  };
  find("Highs_create", &functions->create);
  find("Highs_destroy", &functions->destroy);
  find("Highs_setBoolOptionValue", &functions->set_bool);
  find("Highs_setDoubleOptionValue", &functions->set_double);
  find("Highs_passMip", &functions->pass_mip);
  find("Highs_run", &functions->run);
  find("Highs_getDoubleInfoValue", &functions->get_double);
  find("Highs_getSolution", &functions->get_solution);
  if (!status.ok()) {
    dlclose(library);
    return status;
  }
  return Solver(std::move(functions));
}

base::Result<Optimum> Solver::Solve(const Instance& instance, const Packing& known,
                                    double seconds) const {
  Optimum optimum{.packing = known, .bound = LowerBound(instance)};
  optimum.proven = known.makespan == optimum.bound;
  if (optimum.proven) return optimum;
  const Functions& highs = *functions_;
  const Model model(instance, known);
  const std::unique_ptr<void, void (*)(void*)> solver(highs.create(), highs.destroy);
  highs.set_bool(solver.get(), "output_flag", 0);
  highs.set_double(solver.get(), "time_limit", seconds);
  // Makespans are whole: a gap below one step is none.
  highs.set_double(solver.get(), "mip_abs_gap", .99);
  const HighsInt passed = highs.pass_mip(
      solver.get(), model.num_columns(), model.num_rows(),
      static_cast<HighsInt>(model.index.size()), kByRow, kMinimise, 0, model.cost.data(),
      model.lower.data(), model.upper.data(), model.row_lower.data(), model.row_upper.data(),
      model.row_start.data(), model.index.data(), model.value.data(), model.integrality.data());
  if (passed < 0 || highs.run(solver.get()) < 0) {
    return base::Status(kSolverFailed, fmt::format("HiGHS refused a problem of {} columns and {} "
                                                   "rows",
                                                   model.num_columns(), model.num_rows()));
  }
  double bound = 0;
  if (highs.get_double(solver.get(), "mip_dual_bound", &bound) >= 0 && std::isfinite(bound)) {
    optimum.bound = std::max(optimum.bound, static_cast<int64_t>(std::ceil(bound - 1e-6)));
  }
  double objective = HUGE_VAL;
  std::vector<double> columns(static_cast<size_t>(model.num_columns()), 0);
  if (highs.get_double(solver.get(), "objective_function_value", &objective) >= 0 &&
      objective < static_cast<double>(known.makespan) - .5 &&
      highs.get_solution(solver.get(), columns.data(), nullptr, nullptr, nullptr) >= 0) {
    optimum.packing = model.Read(columns);
    CheckPacking(instance, optimum.packing);
  }
  optimum.bound = std::min(optimum.bound, optimum.packing.makespan);
  optimum.proven = optimum.packing.makespan == optimum.bound;
  return optimum;
}

}  // namespace forebay::oracle
