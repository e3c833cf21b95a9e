#include "client/python-engine/native/run.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/inlined_vector.h"
#include "client/python-engine/native/output.h"
#include "client/python-engine/native/python.h"
#include "client/python-engine/native/store.h"
#include "core/batch.h"
#include "core/shape.h"
#include "server/base/out_of_memory.h"
#include "server/request/request_builder.h"
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
absl::StatusOr<AttentionOutputs> Places(server::Results& results,
                                        const ValidatedBatch& batch,
                                        const Arguments& arguments,
                                        nb::handle out, ResultArrays& arrays) {
  absl::Status status;
  const auto place = [&](server::Result& result) {
    const auto field = result.wanted.result;
    nb::object& array = arrays[static_cast<size_t>(field)];
    if (field == ResultField::kOutput && !out.is_none()) {
      array = nb::borrow(out);
      return OutputView(ReadWritableArray(out, "out"), batch, arguments);
    }
    absl::StatusOr<Array> made =
        NewArray(Name(field).data(), result.type, result.shape);
    status.Update(made.status());
    if (!made.ok()) return MutableTensorView();
    array = std::move(made->array);
    return std::move(made->view);
  };
  AttentionOutputs outputs = results.OutputsAt(place);
  if (!status.ok()) return status;
  return outputs;
}

absl::Status Compute(const Engine& engine, absl::Span<AttentionJob> jobs,
                     const ValidatedBatch& batch, const Deadline& deadline,
                     Turns& turns) {
  absl::Status status;
  if (deadline.HasPassed()) {
    status = absl::CancelledError();
  } else if (engine.IsQuick(batch.problems)) {
    // Over before another thread would have the interpreter.
    const WorkerPool::InPlace in_place;
    status = engine.Run(jobs);
  } else {
    status = WithEnding(deadline, [&](Ending& ending) {
      const Turn turn(turns, [&] { return ending.GoesOn(); });
      // One thread is the caller's own: to wake the pool's takes longer than a
      // small call.
      std::optional<WorkerPool::InPlace> in_place;
      if (engine.workers().threads() == 1) in_place.emplace();
      ending.Watch(jobs);
      return turn.has_come() ? engine.Run(jobs) : absl::CancelledError();
    });
  }
  return deadline.Named(status);
}

// From so many elements on, checking a mask takes longer than handing over the
// interpreter.
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
absl::Status ReadSequences(server::SequenceKeys& keys, store::Store& store,
                           Arguments& arguments) {
  server::AttentionRequest& request = arguments.request;
  while (store.Expire(store::Clock::now()).more) continue;
  absl::Status status = keys.Plan(request);
  if (status.ok()) status = Validated(request.problem).status();
  if (!status.ok()) return status;
  const WithoutInterpreter without;
  return keys.Read(request);
}

// The Result of what is read where it is by now.
absl::StatusOr<nb::object> Answer(const Engine& engine,
                                  const Arguments& arguments, nb::handle query,
                                  nb::handle out, const Deadline& deadline,
                                  Turns& turns) {
  absl::StatusOr<ValidatedBatch> batch = Validated(arguments.request.problem);
  if (!batch.ok()) return batch.status();
  server::Results results(arguments.request.results, *batch);
  ResultArrays arrays;
  const absl::StatusOr<AttentionOutputs> outputs =
      Places(results, *batch, arguments, out, arrays);
  if (!outputs.ok()) return outputs.status();
  absl::InlinedVector<AttentionJob, 1> jobs(batch->problems.size());
  for (size_t n = 0; n < jobs.size(); ++n) {
    jobs[n].problem = &batch->problems[n];
    jobs[n].outputs = batch->OutputsOf(n, *outputs);
  }
  const Clock::time_point begin = Clock::now();
  absl::Status status =
      Compute(engine, absl::MakeSpan(jobs), *batch, deadline, turns);
  if (!status.ok()) return status;
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

}  // namespace

nb::object Run(const Engine& engine, Arguments& arguments, nb::handle query,
               nb::handle out, const Deadline& deadline, Turns& turns,
               store::Store* store) {
  // What sequences have stays held until the end.
  server::SequenceKeys keys({.store = store, .owner = kOwner});
  absl::StatusOr<nb::object> result = server::WithoutBadAlloc(
      [&]() -> absl::StatusOr<nb::object> {
        if (store != nullptr) {
          absl::Status read = ReadSequences(keys, *store, arguments);
          if (!read.ok()) return read;
        }
        // Once read, they count as used until the end, also of a request that
        // fails.
        const absl::Cleanup used = [&] {
          if (store == nullptr) return;
          server::WithoutBadAlloc([&] {
            keys.End(arguments.request, absl::OkStatus());
            return absl::OkStatus();
          }).IgnoreError();
        };
        return Answer(engine, arguments, query, out, deadline, turns);
      },
      OutOfMemory);
  if (!result.ok()) Check(server::Followed(result.status(), keys.Kept()));
  return *std::move(result);
}

}  // namespace attention::python
