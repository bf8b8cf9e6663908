// forebay._forebay: what the Python package needs of the engine. Conversions alone: what happens is
// in src/job. The engine's thread never takes the GIL; results wait in an Inbox and become objects
// in the thread that takes them.
#include <nanobind/stl/string.h>

#include "base/log.h"
#include "model.h"

namespace forebay::python {
namespace {

void Translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Failure& failure) {
    const PythonCall call;
    const nb::object make = nb::module_::import_("forebay.errors").attr("make_error");
    const nb::object error = make(failure.code, failure.message, failure.usage);
    PyErr_SetObject(error.type().ptr(), error.ptr());
  }
}

}  // namespace
}  // namespace forebay::python

NB_MODULE(_forebay, module) {
  // At the interpreter's end what still runs is not torn down.
  nanobind::set_leak_warnings(false);
  nanobind::register_exception_translator(forebay::python::Translate);
  forebay::base::SetLogLevel(forebay::base::LogLevel::kWarning);
  forebay::python::Entry::ForgetOthersInChildren();
  module.def("send_to_sleep", &forebay::python::Entry::SendToSleep);
  module.attr("__version__") = FOREBAY_VERSION;
  forebay::python::AddModel(module);
  forebay::python::AddPrompts(module);
  forebay::python::AddRowIds(module);
  forebay::python::AddCall(module);
  forebay::python::AddAnswers(module);
  forebay::python::AddJobs(module);
}
