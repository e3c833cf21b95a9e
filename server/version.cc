#include "server/version.h"

namespace attention::server {

const char* Version() { return ATTENTION_VERSION; }

}  // namespace attention::server
