#include "client/python-engine/native/arguments.h"

#include <bitset>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/python-engine/native/option_values.h"
#include "client/python-engine/native/python.h"
#include "server/request/option_fields.h"
#include "server/request/request_builder.h"
#include "server/request/scoring_names.h"
#include "server/request/tensor_fields.h"

namespace attention::python {
namespace {

namespace nb = nanobind;
using server::FieldError;
using server::OptionField;
using server::OptionType;
using server::RequestBuilder;
using server::ResultField;
using server::ScoringName;
using server::TensorField;

enum class Kind : uint8_t {
  kTensor,
  kOption,
  kResult,
  kCausal,
  kWindow,
  kTopK,
  kScores,
  kId,
  kScoring,  // and scale: read before the others
};

// A keyword that attend() takes.
struct Keyword {
  Kind kind;
  const TensorField* tensor = nullptr;
  const OptionField* option = nullptr;
  ResultField result = {};
};

using Keywords = absl::flat_hash_map<absl::string_view, Keyword>;

// The tables' names, with those that Python has for some of them.
Keywords MakeKeywords() {
  Keywords keywords;
  for (const TensorField& tensor : server::TensorFields()) {
    if (tensor.need != server::Need::kNobody) continue;
    keywords[tensor.name] = {.kind = Kind::kTensor, .tensor = &tensor};
  }
  for (const OptionField& option : server::OptionFields()) {
    keywords[option.name] = {.kind = Kind::kOption, .option = &option};
  }
  for (const char* const name : {"sigma", "window_left", "window_right"}) {
    keywords.erase(name);
  }
  for (const ResultField result :
       {ResultField::kWeights, ResultField::kLse, ResultField::kKeyWeights}) {
    keywords[server::Name(result)] = {.kind = Kind::kResult, .result = result};
  }
  keywords["causal"].kind = Kind::kCausal;
  keywords["top_k"].kind = Kind::kTopK;
  keywords["scores"].kind = Kind::kScores;
  keywords["scale"].kind = Kind::kScoring;
  keywords["scoring"] = {.kind = Kind::kScoring};
  keywords["window"] = {.kind = Kind::kWindow};
  keywords["id"] = {.kind = Kind::kId};
  return keywords;
}

// An option of a dictionary, None where it is not given.
nb::handle Find(nb::handle options, const char* name) {
  PyObject* const found = PyDict_GetItemString(options.ptr(), name);
  return found != nullptr ? found : Py_None;
}

bool IsInteger(DataType type) {
  return type == DataType::kUint8 || type == DataType::kInt8 ||
         type == DataType::kInt32 || type == DataType::kInt64;
}

// `types` is a list for people: "FP32, FP16 or BF16".
bool Lists(absl::string_view types, absl::string_view name) {
  for (const absl::string_view word :
       absl::StrSplit(types, absl::ByAnyChar(", "))) {
    if (word == name) return true;
  }
  return false;
}

// Floating-point numbers are what they are; integers may be meant as others.
Array ReadTensorOf(const TensorField& tensor, nb::handle value,
                   const char* shown) {
  Array array = ReadArray(value, shown);
  if (!IsInteger(array.view.type) ||
      Lists(tensor.types, Name(array.view.type))) {
    return array;
  }
  return ConvertArray(value, shown);
}

// Whether a client sends it as it is.
bool IsPlain(OptionType type, PyObject* value) {
  switch (type) {
    case OptionType::kNumber:
      return PyFloat_CheckExact(value) || PyLong_CheckExact(value);
    case OptionType::kInteger:
    case OptionType::kUnsigned:
      return PyLong_CheckExact(value);
    case OptionType::kBool:
      return PyBool_Check(value);
    case OptionType::kWord:
      return true;
  }
  return false;
}

// An option as a client sends it, which refuses what it cannot send.
nb::object AsSent(const OptionField& option, nb::handle value,
                  absl::string_view shown) {
  if (IsPlain(option.type, value.ptr())) return nb::borrow(value);
  return GetPython().option(nb::str(shown.data(), shown.size()), value);
}

bool IsWanted(ResultField result, nb::handle value) {
  if (PyBool_Check(value.ptr())) return value.is(Py_True);
  return nb::cast<bool>(
      GetPython().is_wanted(nb::str(server::Name(result).data()), value));
}

// Fills a request by keywords. Python's objects are only looked at, but for the
// arrays, which `to` keeps.
class Reader {
 public:
  Reader(Arguments& to, nb::handle options)
      : to_(to), options_(options), builder_(Begin(options)) {}

  void ReadTensor(const char* name, nb::handle value);
  void SetSequences(const std::vector<Entry>& sequences);
  void ReadOptions();
  server::AttentionRequest Build();

 private:
  // The chosen scoring function, with its fields where it has some.
  RequestBuilder Begin(nb::handle options);
  void ReadScoring();
  void ReadOption(const Keyword& keyword, nb::handle value);
  void ReadWindow(nb::handle value);
  void ReadId(nb::handle value);
  void SetTensor(const TensorField& tensor, nb::handle value,
                 const char* shown);
  void SetOption(const OptionField& option, nb::handle value,
                 absl::string_view shown = "") {
    const nb::object sent =
        AsSent(option, value, shown.empty() ? option.name : shown);
    Check(builder_.SetOption(option, OptionValueOf(sent), shown));
  }
  void Want(ResultField result) { wanted_.set(static_cast<size_t>(result)); }

  Arguments& to_;
  nb::handle options_;
  std::string scoring_;        // its name, where it was given
  nb::object scoring_fields_;  // its fields by their names
  RequestBuilder builder_;
  std::bitset<std::size(server::kResultFields)> wanted_;
};

RequestBuilder Reader::Begin(nb::handle options) {
  AttentionProblem problem;
  const nb::handle scoring = Find(options, "scoring");
  if (scoring.is_none()) return RequestBuilder(problem);
  const nb::object chosen =
      GetPython().scoring_fields(scoring, Find(options, "scale"));
  scoring_ = TextOf(chosen[0]);
  scoring_fields_ = chosen[1];
  for (const ScoringName& name : server::ScoringNames()) {
    if (name.name == scoring_) problem.scoring = name.scoring;
  }
  return RequestBuilder(problem);
}

// Its tensors and options have names like "gaussian.sigma" for whoever gave
// them.
void Reader::ReadScoring() {
  if (scoring_.empty()) {
    const nb::handle scale = Find(options_, "scale");
    if (scale.is_none()) return;
    SetOption(*server::FindOption("scale"), scale, "scaled_dot_product.scale");
    return;
  }
  for (const auto [key, value] : nb::borrow<nb::dict>(scoring_fields_)) {
    const std::string name = TextOf(key);
    const std::string shown = absl::StrCat(scoring_, ".", name);
    if (const TensorField* const tensor = server::FindTensor(name)) {
      SetTensor(*tensor, value, shown.c_str());
    } else {
      SetOption(*server::FindOption(name), value, shown);
    }
  }
}

void Reader::SetTensor(const TensorField& tensor, nb::handle value,
                       const char* shown) {
  Array array = ReadTensorOf(tensor, value, shown);
  // Lengths and places say what is read: nobody may change them once they were
  // checked, as another thread could.
  if (array.view.type == DataType::kInt32 ||
      array.view.type == DataType::kInt64) {
    array = ReadArray(array.array.attr("copy")(), shown);
  }
  Check(builder_.SetTensor(
      tensor, {array.view.type, array.view.shape, array.view.strides,
               array.view.data, array.view.space, array.view.device}));
  to_.arrays.push_back({tensor.name.data(), std::move(array)});
}

void Reader::ReadTensor(const char* name, nb::handle value) {
  SetTensor(*server::FindTensor(name), value, name);
}

void Reader::SetSequences(const std::vector<Entry>& sequences) {
  std::vector<server::SequenceLayer> layers;
  layers.reserve(sequences.size());
  for (const auto& [name, layer, position] : sequences) {
    layers.push_back({.name = name, .layer = layer, .position = position});
  }
  Check(builder_.SetSequences(std::move(layers)));
}

void Reader::ReadWindow(nb::handle value) {
  const nb::object sides = GetPython().window_sides(value);
  for (const auto [key, side] : nb::borrow<nb::dict>(sides)) {
    SetOption(*server::FindOption(TextOf(key)), side);
  }
}

void Reader::ReadId(nb::handle value) {
  if (!PyUnicode_Check(value.ptr())) {
    Check(FieldError("id", absl::StrCat(TextOf(value), " (expected a str)")));
  }
  Check(server::CheckId(TextOf(value)));
  to_.id = nb::borrow(value);
}

void Reader::ReadOption(const Keyword& keyword, nb::handle value) {
  switch (keyword.kind) {
    case Kind::kTensor:
      return SetTensor(*keyword.tensor, value, keyword.tensor->name.data());
    case Kind::kOption:
      return SetOption(*keyword.option, value);
    case Kind::kResult:
      if (IsWanted(keyword.result, value)) Want(keyword.result);
      return;
    case Kind::kCausal: {
      server::OptionValue given = OptionValueOf(value);
      if (const bool* const is = std::get_if<bool>(&given)) {
        given = std::string(*is ? "top_left" : "none");
      }
      return Check(builder_.SetOption(*keyword.option, given));
    }
    case Kind::kTopK:
      Want(ResultField::kTopKIndices);
      Want(ResultField::kTopKWeights);
      return SetOption(*keyword.option, value);
    case Kind::kScores: {
      const server::OptionValue given = OptionValueOf(value);
      if (given != server::OptionValue("none")) Want(ResultField::kScores);
      return Check(builder_.SetOption(*keyword.option, given));
    }
    case Kind::kWindow:
      return ReadWindow(value);
    case Kind::kId:
      return ReadId(value);
    case Kind::kScoring:
      return;
  }
}

void Reader::ReadOptions() {
  static const auto* const keywords = new Keywords(MakeKeywords());
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t place = 0;
  while (PyDict_Next(options_.ptr(), &place, &name, &value) != 0) {
    const auto found = keywords->find(TextOf(name));
    if (found == keywords->end()) GetPython().refuse_option(nb::handle(name));
    if (value != Py_None) ReadOption(found->second, value);
  }
}

server::AttentionRequest Reader::Build() {
  ReadScoring();
  Check(builder_.AddResult({ResultField::kOutput}));
  for (const ResultField result : server::kResultFields) {
    if (!wanted_.test(static_cast<size_t>(result))) continue;
    Check(builder_.AddResult({result}));
  }
  absl::StatusOr<server::AttentionRequest> built = std::move(builder_).Build();
  Check(built.status());
  return *std::move(built);
}

}  // namespace

Arguments::Arguments(nb::handle query, nb::handle key, nb::handle value,
                     nb::handle options, const std::vector<Entry>& sequences) {
  Reader reader(*this, options);
  reader.ReadTensor("query", query);
  // Without sequences, None is an array that is missing.
  const bool has_rows = sequences.empty() || !key.is_none();
  if (has_rows) reader.ReadTensor("key", key);
  if (has_rows) reader.ReadTensor("value", value);
  if (!sequences.empty()) reader.SetSequences(sequences);
  reader.ReadOptions();
  request = reader.Build();
}

}  // namespace attention::python
