#include "core/cpu/targets.h"

#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cpu/kernels/bf16/products.h"

namespace attention::cpu {
namespace {

struct Available {
  Available() {
    for (const int64_t* t = AvailableTargets(); *t != 0; ++t) {
      const Kernels& kernels = KernelsOf(*t);
      // What has products of BF16 has vectors of 512 bits, too.
      const bool bf16 = kernels.lanes == kBf16Depth;
      if (bf16) Add(kernels, AmxProducts());
      if (bf16 && Avx512Bf16IsFast()) Add(kernels, Avx512Bf16Products());
      targets.push_back(kernels);
      if (bf16 && !Avx512Bf16IsFast()) Add(kernels, Avx512Bf16Products());
    }
  }

  void Add(Kernels kernels, const Bf16Products* products) {
    if (products == nullptr) return;
    names.push_back(absl::StrCat(kernels.name, products->suffix));
    kernels.name = names.back().c_str();
    kernels.bf16 = products;
    targets.push_back(kernels);
  }

  std::deque<std::string> names;  // that the targets point to
  std::vector<Kernels> targets;
};

}  // namespace

absl::Span<const Kernels> Targets() {
  static const auto& available = *new Available();
  return available.targets;
}

}  // namespace attention::cpu
