#include "client/python-engine/native/store.h"

#include <sys/random.h>

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/python-engine/native/arrays.h"
#include "client/python-engine/native/ending.h"
#include "client/python-engine/native/fork.h"
#include "client/python-engine/native/option_values.h"
#include "client/python-engine/native/python.h"
#include "server/base/out_of_memory.h"
#include "server/request/idle_limit.h"
#include "server/request/request_builder.h"
#include "server/request/sequence_files.h"

namespace attention::python {
namespace {

namespace nb = nanobind;
using server::FieldError;
using server::Named;
using store::Clock;
using store::Store;

uint64_t RandomNumber() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != ssize_t{sizeof(number)}) {
    Check(absl::InternalError("the system has no random bits"));
  }
  return number;
}

// What `work` returns, a StatusOr, after idle sequences have expired.
template <typename Work>
auto Answer(Store& store, const Work& work) {
  return server::WithoutBadAlloc(
      [&] {
        while (store.Expire(Clock::now()).more) continue;
        return work();
      },
      OutOfMemory);
}

// The same, where nobody waits for the interpreter.
template <typename Work>
auto Done(Store& store, const Work& work) {
  auto result = [&] {
    const WithoutInterpreter without;
    return Answer(store, work);
  }();
  Check(result.status());
  return *std::move(result);
}

// The same for work on a file, which asks what it is given whether to go on.
template <typename Work>
auto DoneInTime(Store& store, const Deadline& deadline, const Work& work) {
  auto result = WithEnding(deadline, [&](Ending& ending) {
    const auto go_on = [&ending] {
      return ending.GoesOn() ? absl::OkStatus() : absl::CancelledError();
    };
    return Answer(store, [&] { return work(go_on); });
  });
  Check(deadline.Named(result.status()));
  return *std::move(result);
}

// The same of a Status.
template <typename Work>
void Do(Store& store, const Work& work) {
  Done(store, [&]() -> absl::StatusOr<bool> {
    absl::Status status = work();
    if (!status.ok()) return status;
    return true;
  });
}

absl::StatusOr<store::NewSequence> Wanted(
    const PythonStore::NewSequence& from) {
  const auto& [heads, key_width, value_width, datatype, layers, name, label,
               idle_limit] = from;
  const std::optional<DataType> type = DataTypeFromName(datatype);
  if (!type) {
    return FieldError("datatype", absl::StrCat(datatype,
                                               " (expected FP32, FP16, BF16, "
                                               "INT8 or FP8)"));
  }
  const auto idle = server::IdleLimitOf(idle_limit);
  if (!idle.ok()) return idle.status();
  return store::NewSequence{.form = {.heads = heads,
                                     .key_width = key_width,
                                     .value_width = value_width,
                                     .type = *type,
                                     .layers = layers},
                            .name = name,
                            .label = label,
                            .idle_limit = *idle};
}

PythonStore::Description Described(const store::Description& from) {
  PythonStore::Milliseconds idle_limit;
  if (from.idle_limit) idle_limit = server::ToMs(*from.idle_limit);
  const store::SequenceForm& form = from.form;
  return {from.name,
          from.label,
          form.heads,
          form.key_width,
          form.value_width,
          std::string{Name(form.type)},
          form.layers,
          from.lengths,
          from.page_bytes,
          idle_limit,
          server::ToMs(from.idle)};
}

}  // namespace

PythonStore::PythonStore(nb::handle memory_limit)
    : incarnation_(RandomNumber()) {
  store::StoreOptions options;
  if (!memory_limit.is_none()) {
    options.memory_limit = IntegerOf(memory_limit, "resident_memory_limit", 1,
                                     std::numeric_limits<int64_t>::max(),
                                     "an integer of bytes, 1 or more, or None");
  }
  store_ = std::make_shared<Store>(options);
}

PythonStore::~PythonStore() { Close(); }

void PythonStore::Close() {
  std::shared_ptr<Store> store = std::exchange(store_, nullptr);
  if (LacksThreads()) {
    // A thread that is not here may have held one of its locks.
    new std::shared_ptr<Store>(std::move(store));
    return;
  }
  const WithoutInterpreter without;
  store.reset();
}

std::shared_ptr<Store> PythonStore::Get() const {
  CheckHasThreads();
  CheckOpen(store_ != nullptr);
  return store_;
}

std::vector<std::string> PythonStore::Create(
    const std::vector<NewSequence>& wanted) const {
  const std::shared_ptr<Store> store = Get();
  std::vector<store::NewSequence> sequences;
  sequences.reserve(wanted.size());
  for (const NewSequence& one : wanted) {
    absl::StatusOr<store::NewSequence> sequence = Wanted(one);
    Check(Named(absl::StrCat("sequences[", sequences.size(), "]"),
                sequence.status()));
    sequences.push_back(*std::move(sequence));
  }
  return Done(*store,
              [&] { return store->Create(kOwner, sequences, Clock::now()); });
}

std::pair<int64_t, int64_t> PythonStore::Append(
    const std::string& name, int64_t layer, std::optional<int64_t> position,
    nb::handle key, nb::handle value, nb::handle key_scale,
    nb::handle value_scale) const {
  const std::shared_ptr<Store> store = Get();
  std::vector<Array> arrays;  // what the rows lie in
  const auto view = [&](nb::handle array, const char* field) {
    return ReadOnly(arrays.emplace_back(ReadArray(array, field)).view);
  };
  KeyValueBlock rows = {view(key, "key"), view(value, "value")};
  if (!key_scale.is_none()) rows.key_scale = view(key_scale, "key_scale");
  if (!value_scale.is_none()) {
    rows.value_scale = view(value_scale, "value_scale");
  }
  const store::Appended appended = Done(*store, [&] {
    return store->Append(kOwner, name, layer, position, rows, Clock::now());
  });
  return {appended.length, appended.new_keys};
}

void PythonStore::Truncate(const std::string& name, int64_t length) const {
  const std::shared_ptr<Store> store = Get();
  Do(*store,
     [&] { return store->Truncate(kOwner, name, length, Clock::now()); });
}

std::string PythonStore::Fork(const std::string& name,
                              std::optional<int64_t> length,
                              const std::string& new_name,
                              const std::optional<std::string>& label,
                              Milliseconds idle_limit) const {
  const std::shared_ptr<Store> store = Get();
  const auto idle = server::IdleLimitOf(idle_limit);
  Check(idle.status());
  const store::NewFork fork = {
      .length = length, .name = new_name, .label = label, .idle_limit = *idle};
  return Done(*store,
              [&] { return store->Fork(kOwner, name, fork, Clock::now()); });
}

PythonStore::Description PythonStore::Describe(const std::string& name) const {
  const std::shared_ptr<Store> store = Get();
  return Described(Done(
      *store, [&] { return store->Describe(kOwner, name, Clock::now()); }));
}

std::vector<PythonStore::Description> PythonStore::List(
    const std::string& label, bool is_prefix) const {
  using Match = store::ListQuery::Match;
  const std::shared_ptr<Store> store = Get();
  store::ListQuery query = {.label = label,
                            .match = is_prefix ? Match::kPrefix : Match::kEqual,
                            .after = {},
                            .most = Store::kMostListed};
  std::vector<Description> all;
  do {
    const store::ListedPage page =
        Done(*store, [&] { return store->List(kOwner, query, Clock::now()); });
    all.reserve(all.size() + page.sequences.size());
    for (const store::Description& one : page.sequences) {
      all.push_back(Described(one));
    }
    query.after = page.next;
  } while (query.after);
  return all;
}

int64_t PythonStore::Delete(const std::vector<std::string>& names) const {
  const std::shared_ptr<Store> store = Get();
  return Done(*store, [&]() -> absl::StatusOr<int64_t> {
    int64_t deleted = 0;
    for (const std::string& name : names) {
      if (store->Delete(kOwner, name).ok()) ++deleted;
    }
    return deleted;
  });
}

int64_t PythonStore::Export(const std::string& name, const std::string& path,
                            nb::handle timeout) const {
  const std::shared_ptr<Store> store = Get();
  return DoneInTime(*store, DeadlineOf(timeout), [&](server::GoOn go_on) {
    return server::ExportSequence(*store, kOwner, name, {path, path}, go_on);
  });
}

std::string PythonStore::Import(const std::string& path,
                                const std::string& name,
                                const std::string& label,
                                Milliseconds idle_limit,
                                nb::handle timeout) const {
  const std::shared_ptr<Store> store = Get();
  const auto idle = server::IdleLimitOf(idle_limit);
  Check(idle.status());
  const store::NewSequence wanted = {
      .form = {}, .name = name, .label = label, .idle_limit = *idle};
  return DoneInTime(*store, DeadlineOf(timeout),
                    [&](server::GoOn go_on) {
                      return server::ImportSequence(
                          *store, kOwner, {path, path}, wanted, go_on);
                    })
      .name;
}

}  // namespace attention::python
