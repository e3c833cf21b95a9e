#include "client/python-engine/native/run.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "client/python-engine/native/output.h"
#include "client/python-engine/native/python.h"
#include "client/python-engine/native/store.h"
#include "core/batch.h"
#include "core/shape.h"
#include "server/request/results.h"
#include "server/request/sequence_keys.h"

namespace attention::python {
namespace {

namespace nb = nanobind;
using server::ResultField;
using Clock = std::chrono::steady_clock;

// The results' arrays, by ResultField.
using ResultArrays = std::array<nb::object, std::size(server::kResultFields)>;

// What is called where, as Result has it, so that attributes are set without a
// look at the text.
PyObject* Name(const char* name) { return PyUnicode_InternFromString(name); }

struct ResultNames {
  std::array<PyObject*, std::size(server::kResultFields)> arrays;
  PyObject* id = Name("id");
  PyObject* backend = Name("backend");
  PyObject* kernel = Name("kernel");
  PyObject* queue_ns = Name("queue_ns");
  PyObject* compute_ns = Name("compute_ns");
  PyObject* empty = Name("");

  ResultNames() {
    for (size_t i = 0; i < arrays.size(); ++i) {
      arrays[i] = Name(server::kResultNames[i].data());
    }
  }
};

// Past a frozen dataclass's __setattr__, as its own __init__ does.
void Set(const nb::object& object, PyObject* name, nb::handle value) {
  if (PyObject_GenericSetAttr(object.ptr(), name, value.ptr()) != 0) {
    throw nb::python_error();
  }
}

nb::object NewResult(const Arguments& arguments, const ResultArrays& arrays,
                     const AttentionJob* job, std::chrono::nanoseconds taken) {
  static const auto* const names = new ResultNames;
  auto* const type =
      reinterpret_cast<PyTypeObject*>(GetPython().result_type.ptr());
  nb::object result = nb::steal(PyType_GenericNew(type, nullptr, nullptr));
  if (!result.is_valid()) throw nb::python_error();
  Set(result, names->id,
      arguments.id.is_valid() ? nb::handle(arguments.id) : names->empty);
  for (size_t i = 0; i < arrays.size(); ++i) {
    Set(result, names->arrays[i],
        arrays[i].is_valid() ? nb::handle(arrays[i]) : Py_None);
  }
  const auto text = [](absl::string_view words) {
    return nb::str(words.data(), words.size());
  };
  Set(result, names->backend, job != nullptr ? text(job->backend) : text(""));
  Set(result, names->kernel, job != nullptr ? text(job->kernel) : text(""));
  Set(result, names->queue_ns, nb::int_(0));
  Set(result, names->compute_ns, nb::int_(taken.count()));
  return result;
}

// New arrays for the results, and `out`, which may be None, as the output.
AttentionOutputs Places(server::Results& results, const ValidatedBatch& batch,
                        const Arguments& arguments, nb::handle out,
                        ResultArrays& arrays) {
  return results.OutputsAt([&](server::Result& result) {
    const auto field = result.wanted.result;
    nb::object& array = arrays[static_cast<size_t>(field)];
    if (field == ResultField::kOutput && !out.is_none()) {
      array = nb::borrow(out);
      return OutputView(ReadWritableArray(out, "out"), batch, arguments);
    }
    Array made = NewArray(Name(field).data(), result.type, result.shape);
    array = std::move(made.array);
    return std::move(made.view);
  });
}

// Ends jobs that run: at a deadline, and where the handler of a signal raises.
// To be asked before each tile, from any thread, and while a call waits.
class Ending {
 public:
  /// `main`: what the caller lets the interpreter go with, if signals are to be
  /// looked for; null on threads that have none.
  Ending(const Deadline& deadline, WithoutInterpreter* main)
      : deadline_(deadline), main_(main) {}

  void Watch(absl::Span<AttentionJob> jobs) {
    if (!deadline_.time && main_ == nullptr) return;
    for (AttentionJob& job : jobs) {
      job.stop = source_.get_token();
      job.before_tile = [this] { Look(); };
    }
  }

  bool GoesOn() {
    Look();
    return !source_.stop_requested();
  }
  bool is_interrupted() const { return is_interrupted_; }

 private:
  void Look() {
    const Clock::time_point now = Clock::now();
    if (deadline_.time && now >= *deadline_.time) source_.request_stop();
    // Handlers run on the thread that has called, which computes as well.
    if (main_ == nullptr || std::this_thread::get_id() != caller_) return;
    // Now and then: it takes the interpreter's lock.
    if (now < next_look_ || is_interrupted_) return;
    next_look_ = now + kBetweenLooks;
    is_interrupted_ = main_->IsInterrupted();
    if (is_interrupted_) source_.request_stop();
  }

  const Deadline& deadline_;
  WithoutInterpreter* const main_;
  const std::thread::id caller_ = std::this_thread::get_id();
  std::stop_source source_;
  // Of the caller's thread alone.
  Clock::time_point next_look_ = Clock::now() + kBetweenLooks;
  bool is_interrupted_ = false;
};

absl::Status Compute(const Engine& engine, absl::Span<AttentionJob> jobs,
                     const ValidatedBatch& batch, const Deadline& deadline,
                     Turns& turns) {
  absl::Status status;
  if (engine.IsQuick(batch.problems)) {
    // Over before another thread would have the interpreter.
    const WorkerPool::InPlace in_place;
    status = engine.Run(jobs);
  } else {
    const bool is_main = IsMainThread();
    bool is_interrupted = false;
    {
      WithoutInterpreter without;
      Ending ending(deadline, is_main ? &without : nullptr);
      const Turn turn(turns, [&] { return ending.GoesOn(); });
      // One thread is the caller's own: to wake the pool's takes longer than a
      // small call.
      std::optional<WorkerPool::InPlace> in_place;
      if (engine.workers().threads() == 1) in_place.emplace();
      ending.Watch(jobs);
      status = turn.has_come() ? engine.Run(jobs) : absl::CancelledError();
      is_interrupted = ending.is_interrupted();
    }
    if (is_interrupted) throw nb::python_error();
  }
  if (!absl::IsCancelled(status)) return status;
  return absl::DeadlineExceededError(absl::StrCat(
      "the call has not finished within ", deadline.seconds, " s"));
}

// Elements of a mask from which on a look at all of them takes longer than to
// hand over the interpreter.
constexpr int64_t kLargeMask = int64_t{1} << 20;

absl::StatusOr<ValidatedBatch> Validated(const AttentionProblem& problem) {
  const auto& mask = problem.masks.attend_mask;
  std::optional<WithoutInterpreter> without;
  if (mask && ElementCount(mask->shape).value_or(0) >= kLargeMask) {
    without.emplace();
  }
  return ValidateBatch(problem);
}

// Appends what the request brings, once all of it is known to be right.
void ReadSequences(server::SequenceKeys& keys, store::Store& store,
                   Arguments& arguments) {
  server::AttentionRequest& request = arguments.request;
  while (store.Expire(store::Clock::now()).more) continue;
  Check(keys.Plan(request));
  Check(Validated(request.problem).status());
  absl::Status read;
  {
    const WithoutInterpreter without;
    read = keys.Read(request);
  }
  Check(read);
}

}  // namespace

Deadline DeadlineOf(nb::handle timeout) {
  if (timeout.is_none()) return {};
  const auto seconds = nb::cast<double>(GetPython().seconds(timeout));
  const auto wait = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::fmax(seconds, 0)));
  return {seconds, Clock::now() + wait};
}

nb::object Run(const Engine& engine, Arguments& arguments, nb::handle query,
               nb::handle out, const Deadline& deadline, Turns& turns,
               store::Store* store) {
  // What sequences have stays held until the end.
  server::SequenceKeys keys({.store = store, .owner = kOwner});
  if (store != nullptr) ReadSequences(keys, *store, arguments);
  absl::StatusOr<ValidatedBatch> batch = Validated(arguments.request.problem);
  Check(batch.status());
  server::Results results(arguments.request.results, *batch);
  ResultArrays arrays;
  const AttentionOutputs outputs =
      Places(results, *batch, arguments, out, arrays);
  absl::InlinedVector<AttentionJob, 1> jobs(batch->problems.size());
  for (size_t n = 0; n < jobs.size(); ++n) {
    jobs[n].problem = &batch->problems[n];
    jobs[n].outputs = batch->OutputsOf(n, outputs);
  }
  const Clock::time_point begin = Clock::now();
  Check(Compute(engine, absl::MakeSpan(jobs), *batch, deadline, turns));
  const std::chrono::nanoseconds taken = Clock::now() - begin;
  if (!query.type().is(GetPython().array_type)) {
    const nb::object like = GetPython().like(query);
    for (nb::object& array : arrays) {
      if (array.is_valid() && !array.is(out)) array = like(array);
    }
  }
  return NewResult(arguments, arrays, jobs.empty() ? nullptr : jobs.data(),
                   taken);
}

}  // namespace attention::python
