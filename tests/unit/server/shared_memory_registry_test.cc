#include "server/memory/shared_memory_registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/memory/system_memory_region.h"
#include "tests/support/shared_memory_object.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::SharedMemoryObject;

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kObjectSize = 4096;

class SharedMemoryRegistryTest : public ::testing::Test {
 protected:
  absl::Status Register(const std::string& name) {
    return Register(name, 0, kObjectSize);
  }
  absl::Status Register(const std::string& name, uint64_t offset,
                        uint64_t size) {
    return registry_.Register(name, [&] {
      return SystemMemoryRegion::Map({name, object_.key(), offset, size});
    });
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const auto regions = registry_.Status(MemorySpace::kHost, "");
    EXPECT_THAT(regions, IsOk());
    for (const SharedMemoryDescription& region : *regions) {
      names.push_back(region.name);
    }
    return names;
  }

  SharedMemoryObject object_{kObjectSize};
  SharedMemoryRegistry registry_{/*most_regions=*/3};
};

TEST_F(SharedMemoryRegistryTest, WhatIsRegisteredIsFoundAndListed) {
  ASSERT_THAT(Register("a", 16, 32), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto region, registry_.Find("a"));
  EXPECT_THAT(region->Bytes(0, 32), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto status,
                       registry_.Status(MemorySpace::kHost, "a"));
  ASSERT_EQ(status.size(), 1);
  EXPECT_EQ(status[0].name, "a");
  EXPECT_EQ(status[0].key, object_.key());
  EXPECT_EQ(status[0].offset, 16);
  EXPECT_EQ(status[0].byte_size, 32);
}

TEST_F(SharedMemoryRegistryTest, OneObjectMayHaveSeveralNames) {
  EXPECT_THAT(Register("b"), IsOk());
  EXPECT_THAT(Register("a"), IsOk());
  EXPECT_EQ(Names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(SharedMemoryRegistryTest, ATakenNameIsRefused) {
  ASSERT_THAT(Register("a"), IsOk());
  EXPECT_THAT(Register("a"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("'a'")));
}

TEST_F(SharedMemoryRegistryTest, ANameIsFreeAgainOnceUnregistered) {
  ASSERT_THAT(Register("a"), IsOk());
  registry_.Unregister(MemorySpace::kHost, "a");
  EXPECT_THAT(Register("a"), IsOk());
}

TEST_F(SharedMemoryRegistryTest, AnUnknownNameIsNotFound) {
  EXPECT_THAT(registry_.Find("x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'x'")));
  EXPECT_THAT(registry_.Status(MemorySpace::kHost, "x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'x'")));
}

TEST_F(SharedMemoryRegistryTest, UnregisteringAnUnknownNameChangesNothing) {
  ASSERT_THAT(Register("a"), IsOk());
  registry_.Unregister(MemorySpace::kHost, "x");
  EXPECT_EQ(Names(), std::vector<std::string>{"a"});
}

TEST_F(SharedMemoryRegistryTest, UnregisterAllForgetsEveryRegion) {
  ASSERT_THAT(Register("a"), IsOk());
  ASSERT_THAT(Register("b"), IsOk());
  registry_.UnregisterAll(MemorySpace::kHost);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(SharedMemoryRegistryTest, AHeldRegionOutlivesItsName) {
  ASSERT_THAT(Register("a"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto region, registry_.Find("a"));
  ASSERT_OK_AND_ASSIGN(const auto bytes, region->Bytes(0, kObjectSize));
  registry_.Unregister(MemorySpace::kHost, "a");
  bytes[kObjectSize - 1] = std::byte{4};
  EXPECT_EQ(object_.bytes()[kObjectSize - 1], std::byte{4});
  EXPECT_THAT(region->CheckIntact(), IsOk());
}

TEST_F(SharedMemoryRegistryTest, OneBeyondTheLimitIsRefused) {
  for (const char* name : {"a", "b", "c"}) ASSERT_THAT(Register(name), IsOk());
  EXPECT_THAT(Register("d"), StatusIs(absl::StatusCode::kResourceExhausted,
                                      HasSubstr("at most 3")));
  registry_.Unregister(MemorySpace::kHost, "b");
  EXPECT_THAT(Register("d"), IsOk());
}

TEST_F(SharedMemoryRegistryTest, NamesAreRestricted) {
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a\n"),
        std::string("a\0b", 3), std::string("\xff"), std::string(257, 'a')}) {
    EXPECT_THAT(Register(name), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("name:")));
  }
  EXPECT_THAT(Register("query_0/0-in.put:1"), IsOk());
}

TEST_F(SharedMemoryRegistryTest, WhatCannotBeMappedIsNotRegistered) {
  EXPECT_THAT(Register("a", 0, kObjectSize + 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'a'")));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(SharedMemoryRegistryTest, ARegionStaysWhileItsOwnerHoldsTheLock) {
  object_.Lock();
  ASSERT_THAT(Register("a"), IsOk());
  ASSERT_THAT(Register("b"), IsOk());
  registry_.UnregisterAbandoned();
  EXPECT_EQ(Names(), (std::vector<std::string>{"a", "b"}));
  object_.Unlock();
  registry_.UnregisterAbandoned();
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(SharedMemoryRegistryTest, WithoutALockARegionStays) {
  ASSERT_THAT(Register("a"), IsOk());
  registry_.UnregisterAbandoned();
  // A lock that came later says nothing of the one who registered it.
  object_.Lock();
  registry_.UnregisterAbandoned();
  object_.Unlock();
  registry_.UnregisterAbandoned();
  EXPECT_EQ(Names(), std::vector<std::string>{"a"});
}

TEST_F(SharedMemoryRegistryTest, AbandonedRegionsGoByThemselves) {
  object_.Lock();
  ASSERT_THAT(Register("a"), IsOk());
  object_.Unlock();
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (!Names().empty() && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(SharedMemoryRegistryTest, UsersAndUnregisteringMeetSafely) {
  std::atomic<bool> stop = false;
  std::thread user([&] {
    while (!stop) {
      const auto region = registry_.Find("a");
      if (!region.ok()) continue;
      const auto bytes = (*region)->Bytes(0, kObjectSize);
      ASSERT_THAT(bytes, IsOk());
      bytes->back() = std::byte{1};
    }
  });
  for (int i = 0; i < 200; ++i) {
    EXPECT_THAT(Register("a"), IsOk());
    registry_.Unregister(MemorySpace::kHost, "a");
  }
  stop = true;
  user.join();
}

}  // namespace
}  // namespace attention::server
