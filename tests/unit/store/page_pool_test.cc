#include "core/store/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/random.h"

namespace attention::store {
namespace {

using test::Random;

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;

// Pages of a pool, each filled with a number of its own.
class Pages {
 public:
  explicit Pages(PagePool& pool, char first = 1) : pool_(pool), next_(first) {}
  ~Pages() {
    for (const Page& page : pages_) pool_.Return(page.memory);
  }

  void Take(int64_t bytes) {
    const PagePool::Memory memory = pool_.Take(bytes);
    ASSERT_NE(memory.data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data) % 64, 0U);
    std::memset(memory.data, next_, static_cast<size_t>(bytes));
    pages_.push_back({memory, bytes, next_++});
  }
  void Return(size_t index) {
    pool_.Return(pages_[index].memory);
    pages_.erase(pages_.begin() + static_cast<ptrdiff_t>(index));
  }
  // All but each n-th. Gives the pages that are no more.
  std::vector<std::byte*> ReturnAllButEach(size_t n) {
    std::vector<std::byte*> returned;
    std::vector<Page> left;
    for (size_t i = 0; i < pages_.size(); ++i) {
      if (i % n == 0) {
        left.push_back(pages_[i]);
      } else {
        returned.push_back(pages_[i].memory.data);
        pool_.Return(pages_[i].memory);
      }
    }
    pages_ = std::move(left);
    return returned;
  }
  bool AreAsWritten() const {
    return std::all_of(pages_.begin(), pages_.end(), [](const Page& page) {
      const auto* const begin = reinterpret_cast<char*>(page.memory.data);
      return std::all_of(begin, begin + page.bytes,
                         [&page](char c) { return c == page.number; });
    });
  }
  size_t count() const { return pages_.size(); }
  std::byte* data(size_t index) const { return pages_[index].memory.data; }

 private:
  struct Page {
    PagePool::Memory memory;
    int64_t bytes;
    char number;
  };

  PagePool& pool_;
  std::vector<Page> pages_;
  char next_;
};

// Of the whole granules in mapped memory, how much the system has given.
int64_t Resident(const std::byte* data, int64_t bytes) {
  const int64_t granule = Mapping::Granule();
  const int64_t misplaced = reinterpret_cast<intptr_t>(data) % granule;
  const int64_t before = misplaced == 0 ? 0 : granule - misplaced;
  const int64_t granules = (bytes - before) / granule;
  std::vector<unsigned char> present(static_cast<size_t>(granules));
  EXPECT_EQ(mincore(const_cast<std::byte*>(data) + before,
                    static_cast<size_t>(granules * granule), present.data()),
            0);
  return granule * std::count_if(present.begin(), present.end(),
                                 [](unsigned char c) { return (c & 1) != 0; });
}

TEST(StorePagePoolTest, PagesOfAnySizeLieApart) {
  PagePool pool;
  Pages pages(pool);
  for (int round = 0; round < 5; ++round) {
    for (const int64_t bytes :
         {int64_t{64}, 4 * kKiB, 4 * kKiB + 64, 132 * kKiB, 3 * kMiB + 64}) {
      pages.Take(bytes);
    }
  }
  EXPECT_TRUE(pages.AreAsWritten());
  pages.ReturnAllButEach(3);
  EXPECT_TRUE(pages.AreAsWritten());
}

TEST(StorePagePoolTest, WhatIsFreedBeyondALimitGoesBackToTheSystem) {
  for (const int64_t bytes : {64 * kKiB, 64 * kKiB + 64}) {
    PagePool pool;
    Pages pages(pool);
    while (static_cast<int64_t>(pages.count()) * bytes < 64 * kMiB) {
      pages.Take(bytes);
    }
    int64_t resident = 0;
    for (const std::byte* const data : pages.ReturnAllButEach(30)) {
      resident += Resident(data, bytes);
    }
    EXPECT_LE(pool.kept(), pool.kept_limit());
    EXPECT_LE(resident, pool.kept_limit());
    EXPECT_TRUE(pages.AreAsWritten());

    // It can be had again, in the same places.
    const int64_t slabs = pool.slabs();
    while (static_cast<int64_t>(pages.count()) * bytes < 60 * kMiB) {
      pages.Take(bytes);
    }
    EXPECT_EQ(pool.slabs(), slabs);
    EXPECT_TRUE(pages.AreAsWritten());
  }
}

TEST(StorePagePoolTest, SlabsThatAreFreeGoBackButForAFew) {
  PagePool pool;
  {
    Pages pages(pool);
    for (int i = 0; i < 64; ++i) pages.Take(kMiB);
    EXPECT_EQ(pool.slabs(), 32);
  }
  EXPECT_EQ(pool.slabs() * 2 * kMiB, pool.kept_limit());
  Pages pages(pool);
  for (int i = 0; i < 16; ++i) pages.Take(kMiB);
  EXPECT_EQ(pool.slabs(), 8);
}

TEST(StorePagePoolTest, OnePageOfEachOfManySizesTakesLittleMoreThanItself) {
  PagePool pool;
  Pages pages(pool);
  int64_t taken = 0;
  int64_t resident = 0;
  for (int64_t bytes = 16 * kKiB; bytes < 80 * kKiB; bytes += 512) {
    pages.Take(bytes);
    taken += bytes;
    resident += Resident(pages.data(pages.count() - 1), 2 * kMiB);
  }
  EXPECT_EQ(pool.slabs(), 128);
  EXPECT_LE(pool.kept(), pool.kept_limit());
  EXPECT_LE(resident,
            taken + pool.kept_limit() + pool.slabs() * Mapping::Granule());
}

TEST(StorePagePoolTest, SeveralThreadsTakeAndReturnPages) {
  PagePool pool;
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (char number = 0; number < 4; ++number) {
      threads.emplace_back([&pool, number] {
        Random random(static_cast<uint64_t>(number));
        Pages pages(pool, static_cast<char>(32 * number));
        for (int i = 0; i < 400; ++i) {
          if (pages.count() == 0 || random.Chance(0.6)) {
            pages.Take(kKiB * random.Between(1, 3) * random.Between(5, 100));
          } else {
            pages.Return(static_cast<size_t>(
                random.Below(static_cast<int64_t>(pages.count()))));
          }
          if (i % 50 == 0) {
            EXPECT_TRUE(pages.AreAsWritten());
          }
        }
        EXPECT_TRUE(pages.AreAsWritten());
      });
    }
  }
  EXPECT_LE(pool.kept(), pool.kept_limit());
}

}  // namespace
}  // namespace attention::store
