#ifndef ATTENTION_SERVER_SERVICES_SERVER_INFO_H_
#define ATTENTION_SERVER_SERVICES_SERVER_INFO_H_

#include <string>

#include "attention/v1/attention.pb.h"
#include "core/engine.h"
#include "server/options/options.h"
#include "server/resident/resident_store.h"

namespace attention::server {

/// Fills an empty `info` with what this server is.
void FillServerInfo(const ServerOptions& options, const Engine& engine,
                    v1::GetServerInfoResponse& info);

/// What sequences may take, and what those of `owner` (ResidentStore::OwnerOf)
/// take of it.
void FillSequenceStore(const ResidentStore& resident, const std::string& owner,
                       v1::SequenceStore& info);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_SERVER_INFO_H_
