#ifndef ATTENTION_SERVER_OPTION_FLAGS_H_
#define ATTENTION_SERVER_OPTION_FLAGS_H_

#include "server/flag_set.h"
#include "server/options.h"

namespace attention::server {

/// A flag for each option, with its default and its help; `options` outlives
/// the flags.
void AddOptionFlags(ServerOptions& options, FlagSet& flags);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTION_FLAGS_H_
