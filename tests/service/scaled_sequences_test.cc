// Sequences of INT8 and FP8: keys and values that stay with their scales.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/sequences_fixture.h"
#include "tests/service/wrong_input.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {
namespace {

using absl::StatusCode;

constexpr int64_t kHeads = 2;
constexpr int64_t kWidth = 4;

class ScaledSequencesTest : public SequencesTest,
                            public testing::WithParamInterface<v1::DataType> {
 protected:
  // Numbers by position and head, and a scale for each of them, (1, Hkv, n, D)
  // and (1, Hkv, n).
  static v1::KeyValueTensors Rows(int64_t first, int64_t count) {
    std::vector<double> elements[2];
    std::vector<double> scales[2];
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t n = first; n < first + count; ++n) {
        for (int64_t d = 0; d < kWidth; ++d) {
          elements[0].push_back(
              static_cast<double>((n * 3 + d + head) % 9 - 4));
          elements[1].push_back(static_cast<double>((n + d * head) % 13 - 6));
        }
        scales[0].push_back(0.01 * static_cast<double>(n % 11));
        scales[1].push_back(0.1 + static_cast<double>((n + head) % 5));
      }
    }
    v1::KeyValueTensors rows;
    *rows.mutable_key() =
        MakeTensor(GetParam(), {1, kHeads, count, kWidth}, elements[0]);
    *rows.mutable_value() =
        MakeTensor(GetParam(), {1, kHeads, count, kWidth}, elements[1]);
    *rows.mutable_key_scale() = Floats({1, kHeads, count}, scales[0]);
    *rows.mutable_value_scale() = Floats({1, kHeads, count}, scales[1]);
    return rows;
  }

  static v1::AppendRequest AppendOfRows(const std::string& name, int64_t first,
                                        int64_t count) {
    v1::KeyValueTensors rows = Rows(first, count);
    v1::AppendRequest request;
    request.set_name(name);
    request.set_position(first);
    *request.mutable_key() = rows.key();
    *request.mutable_value() = rows.value();
    *request.mutable_key_scale() = rows.key_scale();
    *request.mutable_value_scale() = rows.value_scale();
    return request;
  }

  // Four query heads, three queries.
  static v1::AttendRequest ScaledQuery() {
    std::vector<double> values;
    values.reserve(size_t{4} * 3 * kWidth);
    for (int64_t n = 0; n < int64_t{4} * 3 * kWidth; ++n) {
      values.push_back(0.5 * static_cast<double>(n % 5) - 1);
    }
    v1::AttendRequest request;
    *request.mutable_query() = Floats({1, 4, 3, kWidth}, values);
    request.set_causal(v1::CAUSAL_BOTTOM_RIGHT);
    request.set_return_weights(true);
    return request;
  }

  // Asks it of keys 0 to `keys` - 1, sent with it.
  static v1::AttendRequest WithRows(v1::AttendRequest query, int64_t keys) {
    *query.mutable_key_value() = Rows(0, keys);
    return query;
  }

  void MakeScaled(const std::string& name, int64_t keys) {
    v1::CreateSequencesRequest create = CreateRequest({name});
    v1::SequenceForm& form = *create.mutable_sequences(0)->mutable_form();
    form.set_heads(kHeads);
    form.set_key_width(kWidth);
    form.set_value_width(kWidth);
    form.set_datatype(GetParam());
    EXPECT_EQ(Call<v1::CreateSequencesResponse>("Create", create).status(),
              absl::OkStatus());
    EXPECT_EQ(Append(AppendOfRows(name, 0, keys)).status(), absl::OkStatus());
  }
};

TEST_P(ScaledSequencesTest, KeysThatStayGiveTheBitsOfKeysThatAreSent) {
  MakeScaled("s", 1000);
  ExpectSameAnswer(OnSequences(ScaledQuery(), {"s"}),
                   WithRows(ScaledQuery(), 1000));
}

TEST_P(ScaledSequencesTest, AStepAppendsItsOwnKeysWithTheirScales) {
  MakeScaled("s", 100);
  v1::AttendRequest step = OnSequences(ScaledQuery(), {"s"});
  step.mutable_sequences()->mutable_entries(0)->set_position(100);
  *step.mutable_sequences()->mutable_append() = Rows(100, 3);
  const v1::AttendRequest sent = WithRows(ScaledQuery(), 103);
  ExpectSameAnswer(step, sent);
  ExpectSameAnswer(step, sent);  // again: it is acknowledged
}

TEST_P(ScaledSequencesTest, PackedQueriesAppendTheirTokensWithScales) {
  MakeScaled("a", 10);
  MakeScaled("b", 20);
  v1::AttendRequest request;
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {3, 4, kWidth}, 0.5);
  v1::Tensor& starts = *request.mutable_query_starts();
  starts = MakeTensor(v1::DATA_TYPE_INT32, {3}, {0, 1, 3});
  request = OnSequences(request, {"a", "b"});
  v1::KeyValueTensors& append = *request.mutable_sequences()->mutable_append();
  *append.mutable_key() = Filled(GetParam(), {3, kHeads, kWidth}, 2);
  *append.mutable_value() = Filled(GetParam(), {3, kHeads, kWidth}, 3);
  *append.mutable_key_scale() =
      Floats({3, kHeads}, {0.5, 0.25, 1, 2, 0.125, 4});
  *append.mutable_value_scale() = Filled(v1::DATA_TYPE_FP32, {3, kHeads}, 1);
  ASSERT_EQ(Attend(request).status(), absl::OkStatus());
  // The third token's, as a sequence's own append has them.
  v1::AppendRequest same;
  same.set_name("b");
  same.set_position(21);
  *same.mutable_key() = Filled(GetParam(), {kHeads, 1, kWidth}, 2);
  *same.mutable_value() = Filled(GetParam(), {kHeads, 1, kWidth}, 3);
  *same.mutable_key_scale() = Floats({kHeads, 1}, {0.125, 4});
  *same.mutable_value_scale() = Filled(v1::DATA_TYPE_FP32, {kHeads, 1}, 1);
  const auto acknowledged = Append(same);
  ASSERT_EQ(acknowledged.status(), absl::OkStatus());
  EXPECT_EQ(acknowledged->new_keys(), 0);
}

TEST_P(ScaledSequencesTest, AForkAndACutKeepTheScales) {
  MakeScaled("s", 100);
  v1::ForkRequest fork;
  fork.set_name("s");
  fork.set_new_name("f");
  ASSERT_EQ(Call<v1::ForkResponse>("Fork", fork).status(), absl::OkStatus());
  v1::TruncateRequest cut;
  cut.set_name("f");
  cut.set_length(70);
  ASSERT_EQ(Call<v1::TruncateResponse>("Truncate", cut).status(),
            absl::OkStatus());
  // In a page that both share.
  ASSERT_EQ(Append(AppendOfRows("f", 70, 5)).status(), absl::OkStatus());
  ExpectSameAnswer(OnSequences(ScaledQuery(), {"f"}),
                   WithRows(ScaledQuery(), 75));
  ExpectSameAnswer(OnSequences(ScaledQuery(), {"s"}),
                   WithRows(ScaledQuery(), 100));
}

TEST_P(ScaledSequencesTest, AFileHasTheScales) {
  TemporaryFolder files;
  server::ServerOptions options = TestOptions();
  options.resident_folder = files.path();
  Start(options);
  MakeScaled("s", 100);
  v1::ExportSequenceRequest out;
  out.set_name("s");
  out.set_file("s.safetensors");
  ASSERT_EQ(Call<v1::ExportSequenceResponse>("Export", out).status(),
            absl::OkStatus());
  v1::ImportSequenceRequest in;
  in.set_file("s.safetensors");
  in.set_name("t");
  ASSERT_EQ(Call<v1::ImportSequenceResponse>("Import", in).status(),
            absl::OkStatus());
  ExpectSameAnswer(OnSequences(ScaledQuery(), {"t"}),
                   WithRows(ScaledQuery(), 100));
}

TEST_P(ScaledSequencesTest, BytesAreThoseOfElementsAndScales) {
  MakeScaled("s", 65);
  v1::DescribeSequenceRequest describe;
  describe.set_name("s");
  const auto described = Call<v1::SequenceDescription>("Describe", describe);
  ASSERT_EQ(described.status(), absl::OkStatus());
  EXPECT_EQ(described->form().datatype(), GetParam());
  // Two pages of 64 keys, each with 80 bytes beside.
  EXPECT_EQ(described->bytes(),
            2U * (64 * kHeads * (2 * kWidth + 2 * sizeof(float)) + 80));
}

TEST_P(ScaledSequencesTest, ScalesThatAreMissingOrNotWantedAreRefused) {
  MakeScaled("s", 10);
  v1::AppendRequest bare = AppendOfRows("s", 10, 1);
  bare.clear_value_scale();
  ExpectRefusal(Append(bare).status(), StatusCode::kInvalidArgument,
                {"value_scale: missing"});
  v1::AttendRequest step = OnSequences(ScaledQuery(), {"s"});
  *step.mutable_sequences()->mutable_append() = Rows(10, 3);
  step.mutable_sequences()->mutable_append()->clear_key_scale();
  ExpectRefusal(Attend(step).status(), StatusCode::kInvalidArgument,
                {"key_scale: missing"});
  step.mutable_sequences()->mutable_append()->clear_key();
  step.mutable_sequences()->mutable_append()->clear_value();
  ExpectRefusal(Attend(step).status(), StatusCode::kInvalidArgument,
                {"key: missing"});
  Make("plain", 10);
  v1::AppendRequest scaled = AppendOf("plain", 10, 1);
  *scaled.mutable_key_scale() = Floats({1, 1}, {1});
  ExpectRefusal(Append(scaled).status(), StatusCode::kInvalidArgument,
                {"key_scale: was given beside FP32"});
}

TEST_P(ScaledSequencesTest, AnAppendOfAnotherDatatypeIsNamed) {
  MakeScaled("s", 10);
  v1::AttendRequest step = OnSequences(ScaledQuery(), {"s"});
  v1::KeyValueTensors& append = *step.mutable_sequences()->mutable_append();
  *append.mutable_key() = Filled(v1::DATA_TYPE_FP32, {1, kHeads, 3, kWidth}, 1);
  *append.mutable_value() = append.key();
  ExpectRefusal(Attend(step).status(), StatusCode::kInvalidArgument,
                {"sequences.entries[0]: key: datatype FP32, the sequence has"});
}

TEST_P(ScaledSequencesTest, SequenceIdsHaveScalesAsInputs) {
  Start();
  const auto infer = [this](const v1::AttendRequest& request, bool start) {
    inference::ModelInferRequest step = ToInfer(request);
    (*step.mutable_parameters())["sequence_id"].set_int64_param(7);
    (*step.mutable_parameters())["sequence_start"].set_bool_param(start);
    return Infer(*client_, step);
  };
  ASSERT_EQ(infer(WithRows(ScaledQuery(), 100), true).status(),
            absl::OkStatus());
  v1::AttendRequest next = ScaledQuery();
  *next.mutable_key_value() = Rows(100, 3);
  const auto answer = infer(next, false);
  const auto expected = Attend(WithRows(ScaledQuery(), 103));
  ASSERT_EQ(answer.status(), absl::OkStatus());
  ASSERT_EQ(expected.status(), absl::OkStatus());
  EXPECT_EQ(answer->raw_output_contents(0), expected->output().data());
}

INSTANTIATE_TEST_SUITE_P(Types, ScaledSequencesTest,
                         testing::Values(v1::DATA_TYPE_INT8, v1::DATA_TYPE_FP8),
                         [](const auto& type) {
                           return v1::DataType_Name(type.param);
                         });

}  // namespace
}  // namespace attention::test
