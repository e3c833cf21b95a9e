// Long runs of one worker, by a clock that is a number.
#include "server/scheduling/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/scheduling/request_queue.h"

namespace attention::server {
namespace {

constexpr double kMillisecond = 1e6;

class Nothing final : public QueuedWork {
 public:
  void RunQueued(Turn&) override {}
};

// One worker that serves a FairQueue. Time is told by what it has served.
class FairQueueTest : public ::testing::Test {
 protected:
  using Path = FairQueue::Path;
  // What a request costs, and takes.
  struct Cost {
    double estimated;
    double measured;
  };

  void Add(const Path& path, Cost cost) {
    auto work = std::make_shared<Nothing>();
    costs_[work.get()] = {path, cost.measured};
    ++waiting_[path.connection];
    queue_.Add(path, std::move(work), cost.estimated);
  }
  // So many requests of this connection wait.
  void Keep(const Path& path, Cost cost, int depth) {
    while (waiting_[path.connection] < depth) Add(path, cost);
  }
  void Keep(const Path& path, double cost, int depth) {
    Keep(path, {cost, cost}, depth);
  }
  // Connections of `party` have brought one request each, so many times what
  // the worker could do until now.
  void Connect(const std::string& party, double load, double cost) {
    while (static_cast<double>(connected_) * cost < load * now_) {
      Add({party, absl::StrCat("new", connected_++)}, {cost, cost});
    }
  }

  // `meanwhile` adds what has come by now.
  void ServeUntil(double end, const std::function<void()>& meanwhile) {
    while (now_ < end) {
      meanwhile();
      if (queue_.empty()) {
        now_ += 0.01 * kMillisecond;
        continue;
      }
      const FairQueue::Taken taken = queue_.Take();
      const auto [path, took] = costs_.extract(taken.item.work.get()).mapped();
      --waiting_[path.connection];
      now_ += took;
      queue_.End(taken, took);
      had_[path.party] += took;
      had_[path.connection] += took;
    }
  }

  FairQueue queue_;
  double now_ = 0;
  // Time that a party, and a connection, had.
  std::map<std::string, double> had_;

 private:
  std::map<const QueuedWork*, std::pair<Path, double>> costs_;
  std::map<std::string, int> waiting_;  // of a connection
  int64_t connected_ = 0;
};

TEST_F(FairQueueTest, WhoStaysHasItsShareBesideThoseWhoConnectAnew) {
  const double end = 20'000 * kMillisecond;
  ServeUntil(end, [&] {
    Connect("new callers", 1.05, kMillisecond);
    Keep({"stays", "stays:1"}, kMillisecond, 1);
  });
  // Two parties that want half or more.
  EXPECT_GT(had_["stays"], 0.9 * end / 2);
  EXPECT_GT(had_["new callers"], 0.9 * end / 2);
}

TEST_F(FairQueueTest, SoItHasBesideThoseOfItsOwnAddress) {
  // Twenty others wait at any time, each on a connection of its own.
  int64_t others = 0;
  const double end = 10'000 * kMillisecond;
  ServeUntil(end, [&] {
    while (queue_.cost() < 20 * kMillisecond) {
      Add({"address", absl::StrCat("new", others++)},
          {kMillisecond, kMillisecond});
    }
    Keep({"address", "stays"}, kMillisecond, 1);
  });
  EXPECT_GT(had_["stays"], 0.9 * end / 21);
}

TEST_F(FairQueueTest, ConnectionsGainNothing) {
  const double end = 10'000 * kMillisecond;
  ServeUntil(end, [&] {
    for (int i = 0; i < 100; ++i) {
      Keep({"many", absl::StrCat("many:", i)}, kMillisecond, 1);
    }
    Keep({"one", "one:1"}, kMillisecond, 4);
  });
  EXPECT_NEAR(had_["one"] / end, 0.5, 0.01);
}

TEST_F(FairQueueTest, ConnectionsOfOnePartyShareAlike) {
  const double end = 10'000 * kMillisecond;
  ServeUntil(end, [&] {
    Keep({"host", "busy"}, kMillisecond, 50);
    Keep({"host", "modest"}, kMillisecond, 2);
  });
  EXPECT_NEAR(had_["modest"] / end, 0.5, 0.01);
}

TEST_F(FairQueueTest, SharesAreOfTimeWhateverTheSizes) {
  const double end = 30'000 * kMillisecond;
  ServeUntil(end, [&] {
    Keep({"small", "small:1"}, kMillisecond, 4);
    Keep({"middle", "middle:1"}, 7 * kMillisecond, 4);
    Keep({"large", "large:1"}, 100 * kMillisecond, 4);
  });
  for (const char* party : {"small", "middle", "large"}) {
    EXPECT_NEAR(had_[party] / end, 1.0 / 3, 0.02) << party;
  }
}

TEST_F(FairQueueTest, SmallAndLargeOnesOfACallerAreOneShare) {
  const double end = 30'000 * kMillisecond;
  ServeUntil(end, [&] {
    Keep({"both", "its small ones"}, kMillisecond, 4);
    Keep({"both", "its large ones"}, 100 * kMillisecond, 4);
    Keep({"one", "one:1"}, 30 * kMillisecond, 4);
  });
  EXPECT_NEAR(had_["one"] / end, 0.5, 0.02);
  EXPECT_NEAR(had_["its small ones"] / end, 0.25, 0.02);
}

TEST_F(FairQueueTest, SharesAreOfTheTimeThatWasTaken) {
  const double end = 10'000 * kMillisecond;
  ServeUntil(end, [&] {
    Keep({"longer", "longer:1"}, {kMillisecond, 9 * kMillisecond}, 4);
    Keep({"other", "other:1"}, kMillisecond, 4);
    Keep({"shorter", "shorter:1"}, {9 * kMillisecond, kMillisecond}, 4);
  });
  for (const char* party : {"longer", "other", "shorter"}) {
    EXPECT_NEAR(had_[party] / end, 1.0 / 3, 0.02) << party;
  }
}

TEST_F(FairQueueTest, WhoComesBackHasNoCredit) {
  const double alone = 1'000 * kMillisecond;
  ServeUntil(alone, [&] { Keep({"a", "a:1"}, kMillisecond, 2); });
  const double before = had_["a"];
  const double end = alone + 100 * kMillisecond;
  ServeUntil(end, [&] {
    Keep({"a", "a:1"}, kMillisecond, 2);
    Keep({"b", "b:1"}, kMillisecond, 2);
  });
  EXPECT_NEAR(had_["a"] - before, 50 * kMillisecond, 2 * kMillisecond);
}

TEST_F(FairQueueTest, AnEstimateThatWasFarOffIsForgotten) {
  // It would take years, and is cancelled at once.
  Add({"years", "years:1"}, {1e17, kMillisecond});
  ServeUntil(kMillisecond, [] {});
  const double end = 1'000 * kMillisecond;
  ServeUntil(end, [&] {
    Connect("new callers", 1.05, kMillisecond);
    Keep({"years", "years:1"}, kMillisecond, 2);
  });
  EXPECT_NEAR(had_["years"] / end, 0.5, 0.05);
}

TEST_F(FairQueueTest, ACostBeforeOneIsThatOfItsShare) {
  FairQueue queue;
  const auto add = [&queue](const std::string& party,
                            const std::string& connection, double cost) {
    queue.Add({party, connection}, std::make_shared<Nothing>(), cost);
  };
  add("a", "a:1", 60);
  add("a", "a:2", 60);
  add("b", "b:1", 1000);
  // Beside its own of the same size, as much of others' each.
  EXPECT_EQ(queue.CostBefore({"c", "c:1"}, 60), 120);
  EXPECT_EQ(queue.CostBefore({"a", "a:3"}, 60), 120 + 180);
  EXPECT_EQ(queue.CostBefore({"b", "b:2"}, 1000), 1000 + 120);
}

}  // namespace
}  // namespace attention::server
