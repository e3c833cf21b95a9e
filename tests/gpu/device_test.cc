// The device layer on a real device: copies, memory, matrix products.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/cuda_backend.h"
#include "core/cuda/loader.h"
#include "core/cuda/transfer.h"
#include "core/element.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"

namespace attention::cuda {
namespace {

using test::IsOk;

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(devices_, OpenDevices());
    ASSERT_OK_AND_ASSIGN(stream_, device().NewStream());
    ASSERT_OK_AND_ASSIGN(memory_, device().Allocate(kMemory));
  }
  void TearDown() override {
    if (memory_ != nullptr) device().Free(memory_);
  }

  Device& device() { return *devices_[0]; }

  void Put(std::byte* to, const void* data, int64_t bytes) {
    Uploader uploader(*stream_);
    uploader.Begin(to);
    uploader.Append(data, bytes);
    ASSERT_THAT(uploader.Finish(), IsOk());
    // The next one fills the staging buffer anew.
    ASSERT_THAT(stream_->Synchronize(), IsOk());
  }

  std::vector<std::byte> Get(const std::byte* from, int64_t bytes) {
    std::vector<std::byte> all(static_cast<size_t>(bytes));
    Downloader downloader(*stream_);
    downloader.Copy(from, all.data(), bytes);
    EXPECT_THAT(downloader.Finish(), IsOk());
    return all;
  }

  static constexpr int64_t kMemory = int64_t{64} << 20;
  Devices devices_;
  std::unique_ptr<Stream> stream_;
  std::byte* memory_ = nullptr;
};

TEST_F(DeviceTest, SaysWhatItIs) {
  const DeviceProperties& properties = device().properties();
  EXPECT_NE(properties.name, "");
  EXPECT_GE(properties.compute_capability, 80);
  EXPECT_GT(properties.multiprocessors, 0);
  EXPECT_GE(properties.shared_memory_per_block, 48 * 1024);
  ASSERT_OK_AND_ASSIGN(const int64_t free, device().FreeMemory());
  EXPECT_GT(free, 0);
  EXPECT_LE(free, properties.memory);
  EXPECT_THAT(device().Health(), IsOk());
}

TEST_F(DeviceTest, BringsBackWhatItWasGiven) {
  std::vector<uint32_t> sent(kMemory / 4);
  for (size_t n = 0; n < sent.size(); ++n) sent[n] = static_cast<uint32_t>(n);
  Put(memory_, sent.data(), kMemory);
  const std::vector<std::byte> found = Get(memory_, kMemory);
  EXPECT_EQ(std::memcmp(found.data(), sent.data(), found.size()), 0);
}

TEST_F(DeviceTest, FillsMemory) {
  ASSERT_THAT(stream_->Fill(memory_, 0x5A, 1000), IsOk());
  EXPECT_THAT(Get(memory_, 1000), ::testing::Each(std::byte{0x5A}));
}

TEST_F(DeviceTest, MoreMemoryThanThereIsIsRefusedAndTheDeviceGoesOn) {
  const absl::Status status =
      device().Allocate(device().properties().memory * 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(device().Health(), IsOk());
  EXPECT_THAT(stream_->Synchronize(), IsOk());
}

struct ProductCase {
  GemmType type;
  DataType element;
  bool transpose_b;
};

class ProductTest : public DeviceTest,
                    public ::testing::WithParamInterface<ProductCase> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (HasFatalFailure()) return;
    if (const absl::Status gemm = device().LoadGemm(); !gemm.ok()) {
      GTEST_SKIP() << gemm;
    }
  }

  static constexpr int64_t kRows = 37, kColumns = 53, kDepth = 29, kBatch = 3;

  // Small whole numbers, so that every sum is exact.
  static double A(int64_t n, int64_t i, int64_t k) {
    return static_cast<double>((n + 3 * i + 5 * k) % 7) - 3;
  }
  static double B(int64_t n, int64_t k, int64_t j) {
    return static_cast<double>((2 * n + k + 4 * j) % 5) - 2;
  }

  // A matrix of `rows` by `columns` for each of the batch.
  template <typename Value>
  void PutMatrices(std::byte* to, int64_t rows, int64_t columns, Value value) {
    const int64_t size = ByteSize(GetParam().element);
    std::vector<std::byte> all(
        static_cast<size_t>(kBatch * rows * columns * size));
    std::byte* element = all.data();
    for (int64_t n = 0; n < kBatch; ++n) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j, element += size) {
          StoreElement(GetParam().element, value(n, i, j), element);
        }
      }
    }
    Put(to, all.data(), static_cast<int64_t>(all.size()));
  }

  Gemm Product() const {
    Gemm product;
    product.type = GetParam().type;
    product.transpose_b = GetParam().transpose_b;
    product.m = kRows;
    product.n = kColumns;
    product.k = kDepth;
    product.a = memory_;
    product.b = memory_ + (1 << 20);
    product.c = reinterpret_cast<float*>(memory_ + (2 << 20));
    product.a_row = kDepth;
    product.b_row = product.transpose_b ? kDepth : kColumns;
    product.c_row = kColumns;
    product.batch = kBatch;
    product.a_matrix = kRows * kDepth;
    product.b_matrix = kColumns * kDepth;
    product.c_matrix = kRows * kColumns;
    product.workspace = memory_ + kMemory - kWorkspaceBytes;
    return product;
  }
};

TEST_P(ProductTest, MultipliesRowMajorMatrices) {
  PutMatrices(memory_, kRows, kDepth, A);
  if (GetParam().transpose_b) {
    PutMatrices(memory_ + (1 << 20), kColumns, kDepth,
                [](int64_t n, int64_t j, int64_t k) { return B(n, k, j); });
  } else {
    PutMatrices(memory_ + (1 << 20), kDepth, kColumns, B);
  }
  ASSERT_THAT(stream_->Multiply(Product()), IsOk());
  std::vector<float> found(kBatch * kRows * kColumns);
  const auto bytes = Get(memory_ + (2 << 20),
                         static_cast<int64_t>(found.size() * sizeof(float)));
  std::memcpy(found.data(), bytes.data(), bytes.size());
  size_t at = 0;
  for (int64_t n = 0; n < kBatch; ++n) {
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j, ++at) {
        double sum = 0;
        for (int64_t k = 0; k < kDepth; ++k) sum += A(n, i, k) * B(n, k, j);
        ASSERT_EQ(found[at], sum) << n << ' ' << i << ' ' << j;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, ProductTest,
    ::testing::Values(
        ProductCase{GemmType::kFloat32, DataType::kFloat32, false},
        ProductCase{GemmType::kFloat32, DataType::kFloat32, true},
        ProductCase{GemmType::kFloat16, DataType::kFloat16, false},
        ProductCase{GemmType::kFloat16, DataType::kFloat16, true},
        ProductCase{GemmType::kBfloat16, DataType::kBFloat16, false},
        ProductCase{GemmType::kBfloat16, DataType::kBFloat16, true}));

// Not TF32: a product of two numbers with 12 bits each is exact in FP32.
TEST_F(DeviceTest, ProductsInFp32KeepAllBits) {
  if (const absl::Status gemm = device().LoadGemm(); !gemm.ok()) {
    GTEST_SKIP() << gemm;
  }
  const float a = 1 + std::ldexp(1.0F, -11);
  Put(memory_, &a, 4);
  Gemm product;
  product.m = product.n = product.k = 1;
  product.a = product.b = memory_;
  product.c = reinterpret_cast<float*>(memory_ + 256);
  product.a_row = product.b_row = product.c_row = 1;
  product.workspace = memory_ + kMemory - kWorkspaceBytes;
  ASSERT_THAT(stream_->Multiply(product), IsOk());
  float found = 0;
  std::memcpy(&found, Get(memory_ + 256, 4).data(), 4);
  EXPECT_EQ(found, a * a);
}

}  // namespace
}  // namespace attention::cuda
