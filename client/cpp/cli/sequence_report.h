#ifndef ATTENTION_CLIENT_CLI_SEQUENCE_REPORT_H_
#define ATTENTION_CLIENT_CLI_SEQUENCE_REPORT_H_

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention_client/sequences.h"

namespace attention::cli {

/// A line for each sequence under the names of the columns, and one that counts
/// them; without sequences only that.
std::string SequenceTable(
    const std::vector<client::SequenceDescription>& sequences);

/// Everything about one sequence, in lines.
std::string SequenceLines(const client::SequenceDescription& sequence);

/// The same for programs: bytes and milliseconds. The incarnation is text,
/// because JSON's numbers do not hold 64 bits everywhere.
nlohmann::ordered_json SequenceJson(
    const client::SequenceDescription& sequence);

/// "100", or "96 to 100" where layers differ.
std::string FormatLengths(const std::vector<int64_t>& lengths);

/// "850 ms", "12 s", "3 min 20 s", "2 h 5 min", "4 d 3 h": two units, and what
/// is below them is dropped.
std::string FormatAge(std::chrono::milliseconds age);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_SEQUENCE_REPORT_H_
