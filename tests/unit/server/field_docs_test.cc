// docs/inference-protocol.md's tables of inputs and options are the tables of
// the server. With ATTENTION_UPDATE_DOCS=1 in the environment,
// server_test --gtest_filter='FieldDocs.*' brings them up to date.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/formats/file.h"
#include "server/request/option_fields.h"
#include "server/request/tensor_fields.h"

namespace attention::server {
namespace {

const char* TypeName(OptionType type) {
  switch (type) {
    case OptionType::kNumber:
      return "double";
    case OptionType::kInteger:
      return "int64";
    case OptionType::kUnsigned:
      return "uint64";
    case OptionType::kBool:
      return "bool";
    case OptionType::kWord:
      break;
  }
  return "string";
}

std::string Words(const OptionField& option) {
  return absl::StrCat("`", absl::StrJoin(option.words, "`, `"), "`");
}

std::string OptionsTable() {
  std::string table =
      "| option | type | range | default | belongs to | meaning |\n"
      "|---|---|---|---|---|---|\n";
  for (const OptionField& option : OptionFields()) {
    const bool word = option.type == OptionType::kWord;
    const std::string range =
        word ? Words(option) : static_cast<std::string>(option.range);
    absl::StrAppend(&table, "| `", option.name, "` | ", TypeName(option.type),
                    " | ", range, range.empty() ? "" : " ", "| ",
                    word ? "`" : "", option.absent, word ? "`" : "", " | ",
                    NamesOf(option.scorings), " | ", option.meaning, " |\n");
  }
  return table;
}

std::string InputsTable() {
  std::string table =
      "| input | datatype | shape | belongs to | meaning |\n"
      "|---|---|---|---|---|\n";
  for (const TensorField& tensor : TensorFields()) {
    absl::StrAppend(&table, "| `", tensor.name, "` | ", tensor.types, " | ",
                    tensor.shape, " | ", NamesOf(tensor.scorings),
                    tensor.need == Need::kNobody ? "" : ", required", " | ",
                    tensor.meaning, " |\n");
  }
  return table;
}

// The page holds `table` between the marks of `section`, or does afterwards
// where that is asked for.
void ExpectInPage(const std::string& section, const std::string& table) {
  const std::string path = ATTENTION_FIELD_DOCS;
  std::string page = ReadFile(path).value();
  const std::string begin = absl::StrCat("<!-- ", section, ": begin -->\n");
  const size_t from = page.find(begin);
  const size_t to = page.find(absl::StrCat("<!-- ", section, ": end -->"));
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const size_t first = from + begin.size();
  if (std::getenv("ATTENTION_UPDATE_DOCS") != nullptr) {
    page.replace(first, to - first, table);
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(page.substr(first, to - first), table)
      << "the head of field_docs_test.cc says how to bring the page up to date";
}

TEST(FieldDocs, HaveTheInputs) { ExpectInPage("inputs", InputsTable()); }

TEST(FieldDocs, HaveTheOptions) { ExpectInPage("options", OptionsTable()); }

}  // namespace
}  // namespace attention::server
