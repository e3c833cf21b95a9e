// Tensors that lie on the device already. On the emulated device that is the
// host's memory under another name, so every layout can be tried; its kernels
// read and write where the tensors lie.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/cuda/cuda_backend.h"
#include "core/cuda/emulation/emulated_device.h"
#include "core/cuda/rearrange.h"
#include "core/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"

namespace attention {
namespace {

using test::Layout;
using test::MakeProblem;
using test::OwnedProblem;
using test::ProblemSpec;
using test::Results;
using test::StatusIs;
using test::TestSeed;
using ::testing::HasSubstr;

template <typename View>
void PutOnDevice(View& view, int device = 0) {
  view.space = MemorySpace::kCudaDevice;
  view.device = device;
}

// Everything that a device reads where it lies.
AttentionProblem OnDevice(AttentionProblem problem) {
  PutOnDevice(problem.query);
  for (KeyValueBlock& block : problem.key_value) {
    PutOnDevice(block.key);
    PutOnDevice(block.value);
  }
  if (problem.masks.bias) PutOnDevice(*problem.masks.bias);
  return problem;
}

// A result's memory on the device, `misaligned` bytes beyond a multiple of 16.
class DeviceResult {
 public:
  DeviceResult(DataType type, const Shape& shape, size_t misaligned)
      : tensor_(Tensor::Create(type, shape).value()),
        memory_(tensor_.byte_size() + 32, std::byte{0x7B}) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = memory_.data() + (16 - address % 16) % 16 + misaligned;
  }
  MutableTensorView view() {
    MutableTensorView view =
        MutableContiguousView(tensor_.type(), tensor_.shape(), data_);
    PutOnDevice(view);
    return view;
  }
  Tensor Take() {
    if (tensor_.byte_size() > 0) {
      std::memcpy(tensor_.data(), data_, tensor_.byte_size());
    }
    return std::move(tensor_);
  }

 private:
  Tensor tensor_;
  std::vector<std::byte> memory_;
  std::byte* data_;
};

class ResidentTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Engine> MakeEngine(const std::string& backend,
                                            cuda::PlanOptions plan = {}) {
    cuda::Devices devices;
    for (int ordinal : {0, 1}) {
      cuda::DeviceProperties properties = cuda::EmulatedProperties();
      properties.ordinal = ordinal;
      devices.push_back(cuda::MakeEmulatedDevice(properties));
    }
    EngineOptions engine;
    engine.threads = 2;
    engine.backend = backend;
    engine.more_backends.push_back(MakeCudaBackend(
        std::move(devices),
        {.name = "cuda_test", .experimental = false, .plan = plan}));
    return Engine::Create(std::move(engine)).value();
  }

  // All results on the device, too.
  static absl::StatusOr<Results> RunResident(const Engine& engine,
                                             const AttentionProblem& problem,
                                             size_t misaligned = 0) {
    const absl::StatusOr<ValidatedProblem> valid = Validate(problem);
    if (!valid.ok()) return valid.status();
    DeviceResult output(valid->query.type, valid->output_shape, misaligned);
    DeviceResult weights(DataType::kFloat32, valid->weights_shape, misaligned);
    DeviceResult lse(DataType::kFloat32, valid->lse_shape, misaligned);
    AttentionJob job;
    job.problem = &*valid;
    job.outputs = {output.view(), weights.view(), lse.view()};
    if (absl::Status status = engine.Run(job); !status.ok()) return status;
    Results results;
    results.output = output.Take();
    if (valid->wanted.weights) results.weights = weights.Take();
    if (valid->wanted.lse) results.lse = lse.Take();
    return results;
  }

  // Wherever its tensors lie, a problem has the bits that it has with all of
  // them on the host.
  void ExpectBitsOfHost(const AttentionProblem& problem,
                        const OwnedProblem& on_host) const {
    ASSERT_OK_AND_ASSIGN(const Results expected,
                         test::RunOn(*engine_, on_host.problem));
    ASSERT_OK_AND_ASSIGN(const Results found, RunResident(*engine_, problem));
    EXPECT_TRUE(SameBits(found, expected));
  }

  const std::unique_ptr<Engine> engine_ = MakeEngine("cuda_test");
};

ProblemSpec Spec() {
  ProblemSpec spec;
  spec.query_heads = 4;
  spec.kv_heads = 2;
  spec.query_length = 9;
  spec.key_length = 21;
  spec.width = 16;
  spec.value_width = 24;
  spec.bias = test::MaskExtents::kSomeOnes;
  spec.wanted = {.weights = true, .lse = true};
  return spec;
}

struct Case {
  std::string name;
  ProblemSpec spec;
  cuda::PlanOptions plan = {};
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, auto change) {
    Case made{name, Spec()};
    change(made);
    cases.push_back(made);
  };
  add("fp32", [](Case&) {});
  add("fp16", [](Case& c) { c.spec.type = DataType::kFloat16; });
  add("bf16_mma", [](Case& c) {
    c.spec.type = DataType::kBFloat16;
    c.spec.bias = test::MaskExtents::kAll;
    c.spec.wanted.weights = false;
  });
  add("blocks", [](Case& c) { c.spec.keys_per_block = 8; });
  add("products", [](Case& c) { c.plan.least_gemm_elements = 1; });
  add("additive",
      [](Case& c) { c.spec.scoring = test::ScoringKind::kAdditive; });
  add("bilinear",
      [](Case& c) { c.spec.scoring = test::ScoringKind::kBilinear; });
  add("slices", [](Case& c) {
    c.spec.query_length = 260;
    c.plan = {.slice_bytes = 1, .slice_work = 1};
  });
  add("masked", [](Case& c) {
    c.spec.valid_lens = test::LengthsShape::kPerRow;
    c.spec.attend_mask = test::MaskExtents::kAll;
  });
  return cases;
}

struct Lies {
  std::string name;
  Layout layout;
};

class ResidentLayoutTest
    : public ResidentTest,
      public ::testing::WithParamInterface<std::tuple<Case, Lies>> {};

TEST_P(ResidentLayoutTest, GivesTheBitsThatHostMemoryGives) {
  auto [made, lies] = GetParam();
  made.spec.layout = lies.layout;
  const OwnedProblem owned = MakeProblem(made.spec, TestSeed());
  const auto engine = MakeEngine("cuda_test", made.plan);
  ASSERT_OK_AND_ASSIGN(const Results expected,
                       test::RunOn(*engine, owned.problem));
  for (const size_t misaligned : {size_t{0}, size_t{2}, size_t{1}}) {
    ASSERT_OK_AND_ASSIGN(
        const Results found,
        RunResident(*engine, OnDevice(owned.problem), misaligned));
    EXPECT_TRUE(SameBits(found, expected)) << misaligned;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ResidentLayoutTest,
    ::testing::Combine(
        ::testing::ValuesIn(Cases()),
        ::testing::Values(Lies{"row_major", Layout::kRowMajor},
                          Lies{"length_first", Layout::kLengthFirst},
                          Lies{"misaligned", Layout::kMisaligned},
                          Lies{"reversed", Layout::kReversed})),
    [](const auto& test) {
      return std::get<0>(test.param).name + "_" + std::get<1>(test.param).name;
    });

TEST_F(ResidentTest, WithoutKeysWritesZerosAndNoLogSumExp) {
  ProblemSpec spec = Spec();
  spec.key_length = 0;
  spec.wanted.weights = false;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  ExpectBitsOfHost(OnDevice(owned.problem), owned);
}

// As where other entries of a packed batch have their rows there.
TEST_F(ResidentTest, WithoutKeysWritesNothingBetweenItsHeads) {
  ProblemSpec spec = Spec();
  spec.batch = 1;
  spec.key_length = 0;
  spec.query_length = 1;
  spec.wanted.weights = false;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  const ValidatedProblem valid = Validate(owned.problem).value();
  DeviceResult output(valid.query.type, valid.output_shape, 0);
  DeviceResult lse(DataType::kFloat32, {1, spec.query_heads, 2}, 0);
  AttentionJob job;
  job.problem = &valid;
  job.outputs.output = output.view();
  job.outputs.lse = lse.view();
  job.outputs.lse.shape[2] = 1;
  ASSERT_THAT(engine_->Run(job), test::IsOk());
  const Tensor tensor = lse.Take();
  std::vector<uint32_t> found(static_cast<size_t>(2 * spec.query_heads));
  std::memcpy(found.data(), tensor.data(), tensor.byte_size());
  constexpr uint32_t kMinusInfinity = 0xFF800000;
  for (size_t n = 0; n < found.size(); n += 2) {
    EXPECT_EQ(found[n], kMinusInfinity) << n;
    EXPECT_EQ(found[n + 1], 0x7B7B7B7B) << n;  // nobody's result
  }
}

TEST_F(ResidentTest, BlocksMayLieOnTheHostAndOnTheDevice) {
  ProblemSpec spec = Spec();
  spec.keys_per_block = 8;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  AttentionProblem problem = owned.problem;
  PutOnDevice(problem.key_value[1].key);
  PutOnDevice(problem.key_value[2].value);
  ExpectBitsOfHost(problem, owned);
}

// Some bytes between what is copied before and behind them.
TEST_F(ResidentTest, ASmallLastBlockMayLieOnTheDeviceAlone) {
  ProblemSpec spec = Spec();
  spec.batch = spec.kv_heads = 1;
  spec.key_length = 16;
  spec.keys_per_block = 15;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  AttentionProblem problem = owned.problem;
  PutOnDevice(problem.key_value[1].key);
  ExpectBitsOfHost(problem, owned);
}

TEST_F(ResidentTest, WhatLiesInPlaceTakesNoMemoryOfThePlan) {
  const OwnedProblem owned = MakeProblem(Spec(), TestSeed());
  const ValidatedProblem valid = Validate(owned.problem).value();
  const cuda::DeviceProperties device = cuda::EmulatedProperties();
  const cuda::InPlace all = {true, true, true, true, true, true, true};
  const cuda::Plan copied = cuda::MakePlan(valid, device);
  const cuda::Plan in_place = cuda::MakePlan(valid, device, {}, all);
  EXPECT_EQ(in_place.query.bytes + in_place.key.bytes + in_place.value.bytes +
                in_place.bias.bytes + in_place.output.bytes +
                in_place.weights.bytes + in_place.lse.bytes,
            0);
  EXPECT_LT(in_place.bytes, copied.bytes);
}

TEST_F(ResidentTest, TensorsOnSeveralDevicesAreRefused) {
  const OwnedProblem owned = MakeProblem(Spec(), TestSeed());
  AttentionProblem problem = OnDevice(owned.problem);
  problem.key_value[0].value.device = 1;
  EXPECT_THAT(RunResident(*engine_, problem).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("value: lies on CUDA device 1, query on "
                                 "device 0 (one device is expected)")));
}

TEST_F(ResidentTest, AnUnknownDeviceIsRefused) {
  const OwnedProblem owned = MakeProblem(Spec(), TestSeed());
  AttentionProblem problem = owned.problem;
  PutOnDevice(problem.query, 7);
  const ValidatedProblem valid = Validate(problem).value();
  AttentionJob job;
  job.problem = &valid;
  EXPECT_THAT(engine_->Run(job),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tensors lie on CUDA device 7")));
}

TEST_F(ResidentTest, ABackendOfTheHostRefusesThem) {
  const auto engine = MakeEngine("reference");
  const OwnedProblem owned = MakeProblem(Spec(), TestSeed());
  EXPECT_THAT(RunResident(*engine, OnDevice(owned.problem)).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("the reference backend computes in host "
                                 "memory alone")));
}

TEST_F(ResidentTest, MasksAndLengthsMustLieOnTheHost) {
  ProblemSpec spec = Spec();
  spec.attend_mask = test::MaskExtents::kAll;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  AttentionProblem problem = owned.problem;
  PutOnDevice(*problem.masks.attend_mask);
  EXPECT_THAT(Validate(problem).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attend_mask: lies in device memory")));
}

// ---- The rearrange kernel's arguments.

TEST(RearrangeArgs, MergesWhatHasNoGaps) {
  alignas(16) std::byte from[4 * 3 * 8 * 2];
  alignas(16) std::byte to[sizeof(from)];
  const TensorView view =
      ContiguousView(DataType::kFloat16, {1, 4, 3, 8}, from);
  const cuda::RearrangeArgs args =
      cuda::RearrangeArgsOf(view, to, view.strides);
  EXPECT_EQ(args.unit, 16);
  EXPECT_EQ(args.extents[4], static_cast<int64_t>(sizeof(from) / 16));
  EXPECT_EQ(RearrangeCount(args), args.extents[4]);
}

TEST(RearrangeArgs, UnitsNeverLieAcrossAMultipleOfTheirSize) {
  alignas(16) std::byte memory[256];
  for (const int64_t offset : {0, 1, 2, 4, 8, 15}) {
    const TensorView view =
        ContiguousView(DataType::kFloat32, {3, 4}, memory + offset);
    const cuda::RearrangeArgs args =
        cuda::RearrangeArgsOf(view, memory + 128, view.strides);
    const int64_t expected = offset == 0       ? 16
                             : offset % 4 == 0 ? 4
                             : offset % 2 == 0 ? 2
                                               : 1;
    EXPECT_EQ(args.unit, expected) << offset;
  }
}

}  // namespace
}  // namespace attention
