#include "benchmarks/device/device_cases.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace attention::bench {
namespace {

using Cases = std::vector<Case>;

// What tells most in little time: prefill, decode, an option, weights and FP32.
void AddFirst(Cases& cases) {
  const Case prefill = {.query_length = 4096, .width = 128, .type = "BF16"};
  const Case decode = {.batch = 16,
                       .query_heads = 32,
                       .kv_heads = 8,
                       .query_length = 1,
                       .key_length = 8192,
                       .width = 128,
                       .type = "BF16"};
  const auto add = [&cases](Case shape, auto set) {
    set(shape);
    cases.push_back(shape);
  };
  add(prefill, [](Case& shape) { shape.causal = true; });
  add(decode, [](Case&) {});
  add(prefill, [](Case&) {});
  add(prefill, [](Case& shape) { shape.width = 64; });
  add(decode, [](Case& shape) { shape.batch = 1; });
  add(prefill, [](Case& shape) { shape.mask = true; });
  cases.push_back({.query_length = 4096, .type = "BF16", .weights = true});
  cases.push_back({.query_length = 4096});
}

void AddPlain(Cases& cases) {
  for (const int64_t length : {4096, 16384, 1024}) {
    for (const int64_t width : {128, 64, 256}) {
      for (const bool causal : {true, false}) {
        if (width == 256 && length != 4096) continue;
        cases.push_back({.query_length = length,
                         .width = width,
                         .type = "BF16",
                         .causal = causal});
      }
    }
  }
  cases.push_back({.query_length = 4096, .width = 128, .type = "FP16"});
}

// One query for each sequence. Keys and values of the first two fit into an L2
// cache of 50 MB, those of the others are 134 to 537 MB.
void AddDecode(Cases& cases) {
  const auto add = [&](int64_t batch, int64_t keys) {
    cases.push_back({.batch = batch,
                     .query_heads = 32,
                     .kv_heads = 8,
                     .query_length = 1,
                     .key_length = keys,
                     .width = 128,
                     .type = "BF16"});
  };
  add(1, 2048);
  add(1, 8192);
  add(1, 65536);
  add(16, 8192);
  add(64, 1024);
  add(64, 2048);
}

// What a plain case of the same shape is compared with.
void AddOptions(Cases& cases) {
  const Case plain = {.query_length = 4096, .width = 128, .type = "BF16"};
  const auto with = [&](auto set) {
    cases.push_back(plain);
    set(cases.back());
  };
  with([](Case& shape) {
    shape.query_heads = 32;
    shape.kv_heads = 8;
    shape.causal = true;
  });
  with([](Case& shape) { shape.mask = true; });
  with([](Case& shape) { shape.bias = true; });
  with([](Case& shape) { shape.softcap = 30; });
  with([](Case& shape) { shape.dropout = 0.1; });
  with([](Case& shape) { shape.alibi = true; });
  with([](Case& shape) { shape.sinks = true; });
  with([](Case& shape) {
    shape.causal = true;
    shape.window = 1024;
  });
  with([](Case& shape) { shape.magnitude = 0.01; });
}

void AddOthers(Cases& cases) {
  for (const char* type : {"BF16", "FP32"}) {
    cases.push_back({.query_length = 4096, .type = type, .weights = true});
    cases.push_back({.query_length = 1024, .type = type, .weights = true});
  }
  cases.push_back({.query_length = 4096});
  cases.push_back({.query_length = 4096, .magnitude = 0.01});
  cases.push_back({.query_length = 4096, .scoring = "gaussian"});
  cases.push_back({.query_length = 4096, .scoring = "bilinear"});
  cases.push_back({.query_length = 1024, .scoring = "additive"});
}

}  // namespace

Cases DeviceCases() {
  Cases all;
  AddFirst(all);
  AddPlain(all);
  AddDecode(all);
  AddOptions(all);
  AddOthers(all);
  Cases once;
  std::set<std::string> names;
  for (const Case& shape : all) {
    if (names.insert(DeviceName(shape)).second) once.push_back(shape);
  }
  return once;
}

Case Shortened(Case shape, int64_t longest) {
  if (longest == 0) return shape;
  shape.key_length = std::min(shape.KeyLength(), longest);
  shape.query_length = std::min(shape.query_length, longest);
  shape.batch = std::min<int64_t>(shape.batch, 2);
  shape.query_heads = shape.query_heads / shape.KvHeads();
  shape.kv_heads = 1;
  return shape;
}

std::string DeviceName(const Case& shape) {
  return absl::StrReplaceAll(shape.Name(), {{" threads 1 cpu", ""}});
}

double DeviceFlops(const Case& shape) {
  // Of each row, bottom-right.
  double pairs = 0;
  for (int64_t i = 0; i < shape.query_length; ++i) {
    const int64_t last = i + shape.KeyLength() - shape.query_length;
    int64_t keys = shape.causal ? last + 1 : shape.KeyLength();
    if (shape.window >= 0) keys = std::min(keys, shape.window + 1);
    pairs += static_cast<double>(std::max<int64_t>(keys, 0));
  }
  pairs *= static_cast<double>(shape.batch * shape.query_heads);
  return 2 * pairs * static_cast<double>(shape.width + shape.ValueWidth());
}

}  // namespace attention::bench
