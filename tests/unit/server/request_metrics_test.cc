#include "server/telemetry/request_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/telemetry/model_statistics.h"

namespace attention::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::FieldsAre;

constexpr size_t kAttend = static_cast<size_t>(Rpc::kAttend);
constexpr size_t kStream = static_cast<size_t>(Rpc::kAttendStream);
constexpr size_t kOk = 0;
constexpr size_t kExhaustedCode = 8;

RequestFacts Answered(Rpc rpc = Rpc::kAttend) {
  RequestFacts facts;
  facts.rpc = rpc;
  facts.scoring = 2;
  facts.backend = "cpu";
  facts.kernel = "fp32";
  facts.request_bytes = 100;
  facts.reply_bytes = 10;
  facts.batch_entries = 3;
  facts.tensors[11] = 3;
  facts.decode_time = microseconds(20);
  facts.queue_time = microseconds(50);
  facts.gather_time = microseconds(4);
  facts.compute_time = milliseconds(2);
  facts.encode_time = microseconds(6);
  return facts;
}

RequestFacts Refused(Refusal why = Refusal::kNone) {
  RequestFacts facts;
  facts.rpc = Rpc::kAttend;
  facts.status = absl::ResourceExhaustedError("full");
  facts.refused = true;
  facts.refusal = why;
  facts.decode_time = microseconds(20);
  return facts;
}

TEST(RequestMetricsTest, CountsAUnaryCallByItsCode) {
  RequestMetrics metrics;
  metrics.NoteArrival(Rpc::kAttend);
  metrics.NoteArrival(Rpc::kAttend);
  metrics.NoteArrival(Rpc::kAttend);
  metrics.Count(Answered());
  metrics.Count(Refused());
  const auto of = metrics.Read().rpcs[kAttend];
  EXPECT_EQ(of.started, 3);
  EXPECT_EQ(of.by_code[kOk], 1);
  EXPECT_EQ(of.by_code[kExhaustedCode], 1);
}

TEST(RequestMetricsTest, AStreamIsOneCallWithManyMessages) {
  RequestMetrics metrics;
  metrics.NoteStream(Rpc::kAttendStream);
  for (int i = 0; i < 3; ++i) {
    metrics.NoteArrival(Rpc::kAttendStream);
    metrics.Count(Answered(Rpc::kAttendStream));
  }
  metrics.NoteStreamEnd(Rpc::kAttendStream, 14);
  const auto of = metrics.Read().rpcs[kStream];
  EXPECT_EQ(of.started, 1);
  EXPECT_EQ(of.by_code[kOk], 0);
  EXPECT_EQ(of.by_code[14], 1);
  EXPECT_EQ(of.received, 3);
  EXPECT_EQ(of.sent, 3);
}

TEST(RequestMetricsTest, TheWholeTimeIsFromArrivalToTheReply) {
  RequestMetrics metrics;
  metrics.Count(Answered());
  EXPECT_EQ(metrics.Read().rpcs[kAttend].time.sum, 2'060'000);
}

TEST(RequestMetricsTest, SplitsItIntoWaitingComputingAndMoving) {
  RequestMetrics metrics;
  metrics.Count(Answered());
  const auto counts = metrics.Read();
  const RequestSeries& series = counts.by_scoring[2];
  EXPECT_EQ(series.queue.sum, 30'000);
  EXPECT_EQ(series.compute.sum, 2'000'000);
  EXPECT_EQ(series.transfer.sum, 30'000);
  EXPECT_EQ(series.batch.sum, 3);
  EXPECT_EQ(series.request_bytes, 100);
  EXPECT_EQ(series.reply_bytes, 10);
}

TEST(RequestMetricsTest, WhatNeverWaitedIsNotInTheTimesOfWaiting) {
  RequestMetrics metrics;
  metrics.Count(Refused());
  const auto counts = metrics.Read();
  const RequestSeries& unread = counts.by_scoring[kMostScorings];
  EXPECT_EQ(unread.requests(), 1);
  EXPECT_THAT(unread.queue.counts, testing::Each(0));
}

TEST(RequestMetricsTest, AnAppendIsNoneOfAScoringFunction) {
  RequestMetrics metrics;
  metrics.Count(Answered(Rpc::kAppend));
  EXPECT_EQ(metrics.Read().appends.requests(), 1);
  EXPECT_EQ(metrics.Read().by_scoring[2].requests(), 0);
}

TEST(RequestMetricsTest, OfShardsThePartsAreCounted) {
  RequestMetrics metrics;
  metrics.Count(Answered(Rpc::kAttendShards));
  const auto counts = metrics.Read();
  EXPECT_EQ(counts.rpcs[static_cast<size_t>(Rpc::kAttendShards)].by_code[0], 1);
  EXPECT_EQ(counts.by_scoring[2].requests(), 0);
}

TEST(RequestMetricsTest, ARequestThatNamesAModelIsTheModels) {
  RequestMetrics metrics;
  RequestFacts facts = Answered(Rpc::kModelInfer);
  facts.model = std::make_shared<ModelCounters>();
  Observe(facts, &metrics);
  EXPECT_EQ(metrics.Read().by_scoring[2].requests(), 0);
  EXPECT_EQ(facts.model->ReadSeries().requests(), 1);
}

TEST(RequestMetricsTest, WithoutAModelItIsStillOfItsApi) {
  RequestMetrics metrics;
  for (const Rpc rpc : {Rpc::kModelInfer, Rpc::kModelStreamInfer}) {
    RequestFacts facts = Refused();
    facts.rpc = rpc;
    metrics.Count(facts);
  }
  EXPECT_EQ(metrics.Read().no_model.requests(), 2);
  EXPECT_EQ(metrics.Read().by_scoring[kMostScorings].requests(), 0);
}

TEST(RequestMetricsTest, CountsRefusalsByReason) {
  RequestMetrics metrics;
  metrics.Count(Refused(Refusal::kServerMemory));
  metrics.Count(Refused());  // as the status says
  const auto refused = metrics.Read().refused;
  EXPECT_EQ(refused[static_cast<size_t>(Refusal::kServerMemory)], 1);
  EXPECT_EQ(refused[static_cast<size_t>(Refusal::kTooLarge)], 1);
}

TEST(RequestMetricsTest, CountsWhatComputedAndTensors) {
  RequestMetrics metrics;
  metrics.Count(Answered());
  metrics.Count(Answered());
  RequestFacts other = Answered();
  other.kernel = "fp32_small";
  metrics.Count(other);
  const auto counts = metrics.Read();
  EXPECT_THAT(counts.kernels, ElementsAre(FieldsAre("cpu", "fp32", 2),
                                          FieldsAre("cpu", "fp32_small", 1)));
  EXPECT_EQ(counts.tensors[11], 9);
}

TEST(RequestMetricsTest, KeepsABoundedNumberOfKernels) {
  RequestMetrics metrics;
  for (int i = 0; i < 1000; ++i) {
    RequestFacts facts = Answered();
    facts.kernel = absl::StrCat("kernel", i);
    metrics.Count(facts);
  }
  EXPECT_LE(metrics.Read().kernels.size(), 64);
}

TEST(HistogramTest, AValueAtABoundIsWithinIt) {
  CountHistogram histogram;
  histogram.Observe(0);
  histogram.Observe(1);
  histogram.Observe(2);
  histogram.Observe(1'000'000);
  EXPECT_EQ(histogram.counts.front(), 2);
  EXPECT_EQ(histogram.counts[1], 1);
  EXPECT_EQ(histogram.counts.back(), 1);
}

}  // namespace
}  // namespace attention::server
