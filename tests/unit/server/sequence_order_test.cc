#include "server/scheduling/sequence_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attention::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SequenceStep Reads(std::vector<std::string> layers) {
  return {std::move(layers), /*appends=*/false};
}
SequenceStep Appends(std::vector<std::string> layers) {
  return {std::move(layers), /*appends=*/true};
}

TEST(SequenceOrderTest, ReadersRunBesideEachOther) {
  SequenceOrder order;
  EXPECT_TRUE(order.Add(0, Reads({"a"})));
  EXPECT_TRUE(order.Add(1, Reads({"a"})));
}

TEST(SequenceOrderTest, AnAppendWaitsForThoseBeforeIt) {
  SequenceOrder order;
  EXPECT_TRUE(order.Add(0, Reads({"a"})));
  EXPECT_TRUE(order.Add(1, Reads({"a"})));
  EXPECT_FALSE(order.Add(2, Appends({"a"})));
  EXPECT_THAT(order.Remove(1), IsEmpty());
  EXPECT_THAT(order.Remove(0), ElementsAre(2));
}

TEST(SequenceOrderTest, ReadersBehindAnAppendGoTogether) {
  SequenceOrder order;
  EXPECT_TRUE(order.Add(0, Appends({"a"})));
  EXPECT_FALSE(order.Add(1, Reads({"a"})));
  EXPECT_FALSE(order.Add(2, Reads({"a"})));
  EXPECT_FALSE(order.Add(3, Appends({"a"})));
  EXPECT_FALSE(order.Add(4, Reads({"a"})));
  EXPECT_THAT(order.Remove(0), ElementsAre(1, 2));
  EXPECT_THAT(order.Remove(2), IsEmpty());
  EXPECT_THAT(order.Remove(1), ElementsAre(3));
  EXPECT_THAT(order.Remove(3), ElementsAre(4));
}

TEST(SequenceOrderTest, OtherLayersDoNotWait) {
  SequenceOrder order;
  EXPECT_TRUE(order.Add(0, Appends({"a"})));
  EXPECT_TRUE(order.Add(1, Appends({"b"})));
}

TEST(SequenceOrderTest, ABatchWaitsForAllOfItsLayers) {
  SequenceOrder order;
  EXPECT_TRUE(order.Add(0, Appends({"a"})));
  EXPECT_TRUE(order.Add(1, Appends({"b"})));
  EXPECT_FALSE(order.Add(2, Appends({"a", "b"})));
  EXPECT_THAT(order.Remove(0), IsEmpty());
  EXPECT_THAT(order.Remove(1), ElementsAre(2));
}

TEST(SequenceOrderTest, ALayerThatIsNamedTwiceHasOnePlace) {
  SequenceOrder order;
  EXPECT_TRUE(order.Add(0, Appends({"a", "a"})));
  EXPECT_FALSE(order.Add(1, Reads({"a"})));
  EXPECT_THAT(order.Remove(0), ElementsAre(1));
}

TEST(SequenceOrderTest, RequestsWithoutSequencesAreNotKnown) {
  SequenceOrder order;
  EXPECT_THAT(order.Remove(7), IsEmpty());
}

}  // namespace
}  // namespace attention::server
