#include "client/python-engine/native/engine.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/python-engine/native/arguments.h"
#include "client/python-engine/native/fork.h"
#include "client/python-engine/native/option_values.h"
#include "client/python-engine/native/python.h"
#include "client/python-engine/native/run.h"
#include "server/base/out_of_memory.h"
#include "server/base/room_to_start.h"
#include "server/request/request_builder.h"

namespace attention::python {
namespace {

namespace nb = nanobind;

constexpr int64_t kMostThreads = 4096;  // as --worker-threads

nb::str Text(absl::string_view text) {
  return nb::str(text.data(), text.size());
}

// What `call` returns. It throws ResourceExhaustedError in place of
// std::bad_alloc.
template <typename Call>
nb::object WithoutBadAlloc(const Call& call) {
  auto result = server::WithoutBadAlloc(
      [&]() -> absl::StatusOr<nb::object> { return call(); }, OutOfMemory);
  Check(result.status());
  return *std::move(result);
}

}  // namespace

PythonEngine::PythonEngine(nb::handle threads_given, nb::handle backend) {
  GetPython();
  CheckHasThreads();
  const auto threads = static_cast<int>(
      IntegerOf(threads_given, "threads", 0, kMostThreads,
                absl::StrCat("0, one for each processor, to ", kMostThreads)));
  if (!PyUnicode_Check(backend.ptr())) {
    Check(server::FieldError(
        "backend", absl::StrCat(TextOf(backend), " (expected a str)")));
  }
  std::string backend_name = TextOf(backend);
  Check(CheckBackendName(backend_name));
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      [&]() -> absl::StatusOr<std::unique_ptr<Engine>> {
    const WithoutInterpreter without;
    const int own_threads = WorkerPool::ThreadsFor(threads) - 1;
    if (own_threads > 0) {
      // A caller that oneTBB refuses a thread waits for ever.
      absl::Status room = server::CheckRoomToStart(
          "threads: beside its caller's, the engine", own_threads);
      if (!room.ok()) return room;
    }
    auto made = Engine::Create({.threads = threads,
                                .for_callers = true,
                                .backend = std::move(backend_name)});
    if (!made.ok()) return made;
    NoteThreads();
    (*made)->workers().StartThreads();
    return made;
  }();
  Check(engine.status());
  engine_ = *std::move(engine);
  turns_.emplace(engine_->workers().threads());
}

// In a forked child there is nobody left to end: it would be waited for.
PythonEngine::~PythonEngine() { Close(); }

void PythonEngine::Close() {
  std::shared_ptr<Engine> engine = std::exchange(engine_, nullptr);
  if (LacksThreads()) {
    new std::shared_ptr<Engine>(std::move(engine));
    return;
  }
  const WithoutInterpreter without;
  engine.reset();
}

std::shared_ptr<Engine> PythonEngine::Get() const {
  CheckHasThreads();
  CheckOpen(engine_ != nullptr);
  return engine_;
}

nb::object PythonEngine::Attend(nb::handle query, nb::handle key,
                                nb::handle value, nb::handle out,
                                nb::handle timeout,
                                const nb::kwargs& options) const {
  const std::shared_ptr<Engine> engine = Get();
  const Deadline deadline = DeadlineOf(timeout);
  return WithoutBadAlloc([&] {
    Arguments arguments(query, key, value, options);
    return Run(*engine, arguments, query, out, deadline, *turns_);
  });
}

nb::object PythonEngine::AttendSequences(const PythonStore& store,
                                         const std::vector<Entry>& entries,
                                         nb::handle query, nb::handle key,
                                         nb::handle value, nb::handle timeout,
                                         const nb::kwargs& options) const {
  const std::shared_ptr<Engine> engine = Get();
  const std::shared_ptr<store::Store> sequences = store.Get();
  const Deadline deadline = DeadlineOf(timeout);
  return WithoutBadAlloc([&] {
    Arguments arguments(query, key, value, options, entries);
    return Run(*engine, arguments, query, nb::none(), deadline, *turns_,
               sequences.get());
  });
}

nb::dict PythonEngine::Info() const {
  const std::shared_ptr<Engine> engine = Get();
  nb::list backends;
  nb::list devices;
  for (const auto& backend : engine->backends()) {
    nb::dict facts;
    facts["name"] = Text(backend->name());
    facts["instruction_set"] = Text(backend->instruction_set());
    facts["experimental"] = backend->experimental();
    facts["broken"] = Text(backend->health().message());
    backends.append(facts);
    for (const BackendDevice& device : backend->devices()) {
      nb::dict known;
      known["name"] = Text(device.name);
      known["memory_bytes"] = device.memory;
      devices.append(known);
    }
  }
  nb::list unused;
  for (const UnusedBackend& backend : engine->unused()) {
    nb::dict facts;
    facts["name"] = Text(backend.name);
    facts["reason"] = Text(backend.reason.message());
    unused.append(facts);
  }
  nb::dict info;
  info["backends"] = backends;
  info["worker_threads"] = engine->workers().threads();
  info["devices"] = devices;
  info["unused_backends"] = unused;
  return info;
}

}  // namespace attention::python
