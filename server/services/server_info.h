#ifndef ATTENTION_SERVER_SERVICES_SERVER_INFO_H_
#define ATTENTION_SERVER_SERVICES_SERVER_INFO_H_

#include "attention/v1/attention.pb.h"
#include "core/engine.h"
#include "server/options.h"

namespace attention::server {

/// Fills an empty `info` with what this server is.
void FillServerInfo(const ServerOptions& options, const Engine& engine,
                    v1::GetServerInfoResponse& info);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_SERVER_INFO_H_
