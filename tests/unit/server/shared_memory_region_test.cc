#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "server/memory/region_names.h"
#include "server/memory/system_memory_region.h"
#include "tests/support/shared_memory_object.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::SharedMemoryObject;

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();
constexpr size_t kSize = 40'000;  // not a whole number of pages

using RegionPointer = std::shared_ptr<SystemMemoryRegion>;

absl::StatusOr<RegionPointer> MapAll(const SharedMemoryObject& object) {
  return SystemMemoryRegion::Map({"tensors", object.key(), 0, kSize});
}

TEST(SystemMemoryRegion, IsTheOwnersMemory) {
  SharedMemoryObject object(kSize);
  ASSERT_OK_AND_ASSIGN(const RegionPointer region, MapAll(object));
  object.bytes()[100] = std::byte{7};
  ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> bytes,
                       region->Bytes(100, 50));
  EXPECT_EQ(bytes.size(), 50);
  EXPECT_EQ(bytes[0], std::byte{7});
  bytes[1] = std::byte{8};
  EXPECT_EQ(object.bytes()[101], std::byte{8});
}

TEST(SystemMemoryRegion, BeginsAtAnyByte) {
  SharedMemoryObject object(kSize);
  const size_t offset = SharedMemoryObject::PageSize() + 13;
  object.bytes()[offset + 2] = std::byte{9};
  ASSERT_OK_AND_ASSIGN(
      const RegionPointer region,
      SystemMemoryRegion::Map({"r", object.key(), offset, kSize - offset}));
  ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> bytes, region->Bytes(2, 1));
  EXPECT_EQ(bytes[0], std::byte{9});
  EXPECT_THAT(region->Bytes(kSize - offset - 1, 1), IsOk());
}

TEST(SystemMemoryRegion, OneObjectMayBeMappedTwice) {
  SharedMemoryObject object(kSize);
  ASSERT_OK_AND_ASSIGN(const RegionPointer first, MapAll(object));
  ASSERT_OK_AND_ASSIGN(const RegionPointer second, MapAll(object));
  ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> written, first->Bytes(0, 1));
  written[0] = std::byte{5};
  ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> read, second->Bytes(0, 1));
  EXPECT_EQ(read[0], std::byte{5});
}

TEST(SystemMemoryRegion, OutlivesTheObjectsName) {
  RegionPointer region;
  {
    SharedMemoryObject object(kSize);
    object.bytes()[0] = std::byte{3};
    ASSERT_OK_AND_ASSIGN(region, MapAll(object));
  }
  ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> bytes, region->Bytes(0, 1));
  EXPECT_EQ(bytes[0], std::byte{3});
}

struct RegionRange {
  const char* name;
  uint64_t offset;
  uint64_t byte_size;
};

class OutOfBounds : public ::testing::TestWithParam<RegionRange> {};

TEST_P(OutOfBounds, BytesRefuses) {
  SharedMemoryObject object(kSize);
  ASSERT_OK_AND_ASSIGN(const RegionPointer region, MapAll(object));
  EXPECT_THAT(
      region->Bytes(GetParam().offset, GetParam().byte_size),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("'tensors'"), HasSubstr("40000 bytes"))));
}

TEST_P(OutOfBounds, MapRefuses) {
  SharedMemoryObject object(kSize);
  EXPECT_THAT(
      SystemMemoryRegion::Map(
          {"tensors", object.key(), GetParam().offset, GetParam().byte_size}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("'tensors'"), HasSubstr(object.key()),
                     HasSubstr("40000 bytes"))));
}

INSTANTIATE_TEST_SUITE_P(
    SystemMemoryRegion, OutOfBounds,
    ::testing::Values(RegionRange{"OneTooMany", 0, kSize + 1},
                      RegionRange{"OneBeyond", 1, kSize},
                      RegionRange{"BeginsAtTheEnd", kSize, 1},
                      RegionRange{"BeginsAfterTheEnd", kSize + 1, 1},
                      RegionRange{"LargestSize", 0, kLargest},
                      RegionRange{"LargestOffset", kLargest, 1},
                      RegionRange{"SumWrapsToZero", kLargest, kSize},
                      RegionRange{"SumWrapsIntoBounds", kLargest - 9, 20},
                      RegionRange{"BothLargest", kLargest, kLargest},
                      RegionRange{"NegativeAsSigned", uint64_t{1} << 63, 1}),
    [](const auto& test) { return test.param.name; });

TEST(SystemMemoryRegion, OfNoBytesIsRefused) {
  SharedMemoryObject object(kSize);
  EXPECT_THAT(SystemMemoryRegion::Map({"r", object.key(), 0, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("byte_size is 0")));
}

TEST(SystemMemoryRegion, NoBytesOfItAreFine) {
  SharedMemoryObject object(kSize);
  ASSERT_OK_AND_ASSIGN(const RegionPointer region, MapAll(object));
  EXPECT_THAT(region->Bytes(kSize, 0), IsOk());
}

TEST(SystemMemoryRegion, OfAnObjectThatDoesNotExistIsNotFound) {
  EXPECT_THAT(
      SystemMemoryRegion::Map({"r", "/attention_test_of_nobody", 0, 1}),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("'r'"), HasSubstr("attention_test_of_nobody"))));
}

TEST(SystemMemoryRegion, KeysAreNamesOfObjectsAlone) {
  for (const char* key : {"k", "/k", "/psm_1a2b3c", "/a.b-c:d+e=f@g"}) {
    EXPECT_THAT(CheckSharedMemoryKey(key), IsOk()) << key;
  }
  const std::string long_key(256, 'k');
  for (const char* key :
       {"", "/", "//k", "/a/b", "a/", "..", "/../etc/passwd", "/a..b", "/.",
        "/k\n", "/k k", "/\xc3\xa4", long_key.c_str()}) {
    EXPECT_THAT(CheckSharedMemoryKey(key),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("key:")))
        << key;
  }
}

TEST(SystemMemoryRegion, KeysOfTritonsOwnMemoryAreReserved) {
  for (const char* key : {"triton_python_backend_shm_region_1",
                          "/triton_python_backend_shm_region_"}) {
    EXPECT_THAT(
        CheckSharedMemoryKey(key),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reserved")));
  }
}

TEST(SystemMemoryRegion, ATruncatedOneIsLostWhenItIsTouched) {
  SharedMemoryObject object(kSize);
  ASSERT_OK_AND_ASSIGN(const RegionPointer region, MapAll(object));
  ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> bytes,
                       region->Bytes(0, kSize));
  object.Truncate(0);
  std::fill(bytes.begin(), bytes.end(), std::byte{1});
  EXPECT_TRUE(region->lost());
  EXPECT_THAT(region->CheckIntact(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("'tensors'"), HasSubstr("truncated"))));
  EXPECT_THAT(region->Bytes(0, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("register it again")));
}

TEST(SystemMemoryRegion, AnotherMappingOfItsObjectIsLostByItself) {
  SharedMemoryObject object(kSize);
  ASSERT_OK_AND_ASSIGN(const RegionPointer touched, MapAll(object));
  ASSERT_OK_AND_ASSIGN(const RegionPointer untouched, MapAll(object));
  ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> bytes,
                       touched->Bytes(0, kSize));
  object.Truncate(0);
  bytes[0] = std::byte{1};
  EXPECT_TRUE(touched->lost());
  EXPECT_FALSE(untouched->lost());
}

// A thread that runs `pass` over a region's bytes until the region is lost,
// while its owner truncates it.
template <typename Pass>
void TruncateDuring(Pass pass) {
  SharedMemoryObject object(kSize);
  ASSERT_OK_AND_ASSIGN(const RegionPointer region, MapAll(object));
  ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> bytes,
                       region->Bytes(0, kSize));
  std::atomic<bool> running = false;
  std::thread worker([&] {
    while (!region->lost()) {
      pass(bytes);
      running = true;
      running.notify_one();
    }
  });
  running.wait(false);
  object.Truncate(0);
  worker.join();
  EXPECT_THAT(region->CheckIntact(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("")));
}

TEST(SystemMemoryRegion, TruncatedWhileItIsReadDoesNotEndTheProcess) {
  TruncateDuring([](absl::Span<const std::byte> bytes) {
    for (const volatile std::byte& byte : bytes) (void)std::byte{byte};
  });
}

TEST(SystemMemoryRegion, TruncatedWhileItIsWrittenDoesNotEndTheProcess) {
  TruncateDuring([](absl::Span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{1});
  });
}

}  // namespace
}  // namespace attention::server
