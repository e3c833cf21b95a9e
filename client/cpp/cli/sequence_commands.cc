#include "client/cpp/cli/sequence_commands.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/cli/format.h"
#include "client/cpp/cli/json_output.h"
#include "client/cpp/cli/label.h"
#include "client/cpp/cli/numbers.h"
#include "client/cpp/cli/sequence_report.h"

namespace attention::cli {
namespace {

constexpr char kDescription[] =
    "Keys and values that stay on the server: what is there, and what goes";

constexpr char kFooter[] =
    R"(Sequences are made and filled by programs (the C++ library, Python): a request
then sends queries alone. They take memory on the server until they are deleted,
have been idle for their limit, or the server ends. With a callers file a caller
sees its own ones only.

Examples:
  attention-client sequences list
  attention-client sequences list --label-prefix chat/ --json
  attention-client sequences describe mine
  attention-client sequences export mine mine.safetensors
  attention-client sequences import mine.safetensors --name restored
  attention-client sequences delete mine restored

attention-client sequences COMMAND --help says more about a command.)";

constexpr char kListFooter[] =
    R"(In order of label and name. KEYS is of each layer, "96 to 100" where they differ;
MEMORY has what a sequence shares with its forks, so that sums count it twice;
IDLE is the time since its last use. A list is no use.)";

constexpr char kDeleteFooter[] =
    R"(Names that are not there are no error: the exit code is 0, and the number of
those that were there is printed.)";

constexpr char kExportFooter[] =
    R"(FILE is a name in the folder that the server was started with
(--resident-folder), without a path: letters, digits and . _ - : + = @, not
beginning with a dot. The file lies on the server, not on this machine, and
replaces an older one. Its format is safetensors, with key.0 and value.0 of layer
0, and so on, (heads, keys, width).)";

constexpr char kImportFooter[] =
    R"(FILE is a name in the folder that the server was started with
(--resident-folder), as in export. Prints the sequence's name.)";

// At most so many names in one call.
constexpr size_t kMostNames = 256;

// What the commands are given. Each has its own.
struct SequenceFlags {
  bool json = false;
  std::string label_prefix;
  std::optional<std::string> label;
  std::string name;
  std::vector<std::string> names;
  std::string file;
  std::optional<double> idle_limit_seconds;
};

using Run = absl::Status (*)(const client::Client&, const SequenceFlags&);

absl::Status RunList(const client::Client& client, const SequenceFlags& flags) {
  client::SequenceQuery query = {.label_prefix = flags.label_prefix,
                                 .label = flags.label,
                                 .page_size = 1000};
  const auto sequences = client.ListAllSequences(std::move(query));
  if (!sequences.ok()) return sequences.status();
  if (flags.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const client::SequenceDescription& sequence : *sequences) {
      list.push_back(SequenceJson(sequence));
    }
    PrintJson({{"sequences", std::move(list)}});
  } else {
    std::cout << SequenceTable(*sequences);
  }
  return absl::OkStatus();
}

absl::Status RunDescribe(const client::Client& client,
                         const SequenceFlags& flags) {
  const auto sequence = client.DescribeSequence(flags.name);
  if (!sequence.ok()) return sequence.status();
  if (flags.json) {
    PrintJson(SequenceJson(*sequence));
  } else {
    std::cout << SequenceLines(*sequence);
  }
  return absl::OkStatus();
}

absl::Status RunDelete(const client::Client& client,
                       const SequenceFlags& flags) {
  int64_t deleted = 0;
  for (auto first = flags.names.begin(); first != flags.names.end();) {
    const auto count = std::min<size_t>(
        kMostNames, static_cast<size_t>(flags.names.end() - first));
    const auto end = first + static_cast<std::ptrdiff_t>(count);
    const auto some = client.DeleteSequences({first, end});
    if (!some.ok()) return some.status();
    deleted += *some;
    first = end;
  }
  if (flags.json) {
    PrintJson({{"deleted", deleted}});
  } else {
    std::cout << "deleted " << deleted << " of " << flags.names.size() << "\n";
  }
  return absl::OkStatus();
}

absl::Status RunExport(const client::Client& client,
                       const SequenceFlags& flags) {
  const auto bytes = client.ExportSequence(flags.name, flags.file);
  if (!bytes.ok()) return bytes.status();
  if (flags.json) {
    PrintJson({{"file", flags.file}, {"bytes", *bytes}});
  } else {
    std::cout << "wrote " << flags.file << " on the server, "
              << FormatBytes(*bytes) << "\n";
  }
  return absl::OkStatus();
}

absl::Status RunImport(const client::Client& client,
                       const SequenceFlags& flags) {
  client::SequenceImport import = {.file = flags.file,
                                   .name = flags.name,
                                   .label = flags.label.value_or("")};
  if (flags.idle_limit_seconds) {
    import.idle_limit = std::chrono::milliseconds(
        static_cast<int64_t>(*flags.idle_limit_seconds * 1000));
  }
  const auto sequence = client.ImportSequence(import);
  if (!sequence.ok()) return sequence.status();
  if (flags.json) {
    PrintJson({{"name", sequence->name},
               {"lengths", sequence->lengths},
               {"incarnation", absl::StrCat(sequence->incarnation)}});
  } else {
    std::cout << Printable(sequence->name) << "\n";
  }
  return absl::OkStatus();
}

// The commands of `sequences`, as they are added to it.
class SequenceCommands {
 public:
  SequenceCommands(CLI::App& parent, const Globals& globals, int& exit_code)
      : parent_(parent), globals_(globals), exit_code_(exit_code) {}

  // The flags live as long as the command.
  std::pair<CLI::App*, SequenceFlags*> Add(const char* name,
                                           const char* description,
                                           const char* footer, Run run) {
    CLI::App* command = parent_.add_subcommand(name, description);
    command->fallthrough();  // so that --server may come after the command
    command->footer(footer);
    auto flags = std::make_shared<SequenceFlags>();
    command->add_flag("--json", flags->json, "Print JSON");
    command->callback(
        [&globals = globals_, &exit_code = exit_code_, flags, run] {
          const absl::StatusOr<client::Client> client = Connect(globals);
          absl::Status status = client.status();
          if (status.ok()) {
            status = run(*client, *flags);
            if (!status.ok()) status = CallError(status, globals.server);
          }
          exit_code = Report(status);
        });
    return {command, flags.get()};
  }

 private:
  CLI::App& parent_;
  const Globals& globals_;
  int& exit_code_;
};

void AddName(CLI::App& command, std::string& name) {
  command.add_option("NAME", name, "The sequence's name")->required();
}

void AddFile(CLI::App& command, std::string& file) {
  command.add_option("FILE", file, "A file's name in the server's folder")
      ->required();
}

}  // namespace

void AddSequenceCommands(CLI::App& app, const Globals& globals,
                         int& exit_code) {
  CLI::App* parent = app.add_subcommand("sequences", kDescription);
  parent->fallthrough();
  parent->footer(kFooter);
  parent->callback([parent, &exit_code] {
    if (!parent->get_subcommands().empty()) return;
    exit_code = Report(UsageError(
        "sequences: no command given: list, describe, delete, export or "
        "import (attention-client sequences --help says more)"));
  });
  SequenceCommands commands(*parent, globals, exit_code);

  const auto [list, listed] = commands.Add(
      "list", "The caller's sequences, with keys, memory and idle time",
      kListFooter, RunList);
  CLI::Option* prefix =
      list->add_option("--label-prefix", listed->label_prefix,
                       "Only those whose label begins with it")
          ->type_name("TEXT");
  list->add_option("--label", listed->label, "Only those of just this label")
      ->type_name("TEXT")
      ->excludes(prefix);

  const auto [describe, described] = commands.Add(
      "describe", "Everything about one sequence", "", RunDescribe);
  AddName(*describe, described->name);

  const auto [erase, erased] =
      commands.Add("delete", "Ends sequences; their memory is free at once",
                   kDeleteFooter, RunDelete);
  erase->add_option("NAME", erased->names, "Names of sequences")->required();

  const auto [write, written] =
      commands.Add("export", "Writes a sequence into a file on the server",
                   kExportFooter, RunExport);
  AddName(*write, written->name);
  AddFile(*write, written->file);

  const auto [read, imported] =
      commands.Add("import", "Makes a sequence from a file on the server",
                   kImportFooter, RunImport);
  AddFile(*read, imported->file);
  read->add_option("--name", imported->name,
                   "The new sequence's name; without it the server makes one")
      ->type_name("NAME");
  read->add_option("--label", imported->label, "A label, for lists")
      ->type_name("TEXT");
  read->add_option("--idle-limit", imported->idle_limit_seconds,
                   "How long it may be unused; without it, the server's "
                   "--resident-idle-limit")
      ->type_name("SECONDS")
      ->check(InRange(0.001, 3.0e9));
}

}  // namespace attention::cli
