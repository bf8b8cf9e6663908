// How threads give the GIL away and take it back, and what becomes of them when the interpreter
// ends.
#pragma once

#include <nanobind/nanobind.h>

namespace forebay::python {

// A thread that asks for the GIL of an interpreter that is ending is unwound by it, which ends the
// process where C++ is on the stack. So threads other than the main one may come in only until
// `SendToSleep`; later ones sleep until the process has ended. While an Entry lives, the
// interpreter does not end.
class Entry {
 public:
  // The thread is without the GIL. Does not return where the interpreter ends, unless the thread is
  // the main one.
  Entry();
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  // The main thread's, with the GIL, before the interpreter ends: returns when no thread is within
  // an Entry.
  static void SendToSleep();
  // A child of fork has none of the threads that were within an Entry.
  static void ForgetOthersInChildren();
};

// The thread is without the GIL while this lives.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    const Entry entry;
    PyEval_RestoreThread(state_);
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

// Python's code is called from C++ while this lives. The thread has the GIL.
class PythonCall {
 public:
  PythonCall() : state_(PyEval_SaveThread()) { PyEval_RestoreThread(state_); }

 private:
  PyThreadState* const state_;
  const Entry entry_;
};

}  // namespace forebay::python
