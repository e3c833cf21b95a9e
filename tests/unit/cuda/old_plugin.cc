// A plugin of another build, which must be refused before anything else of it
// is looked at.
#include "core/cuda/plugin.h"

extern "C" const attention::cuda::Plugin* AttentionCudaPlugin();

const attention::cuda::Plugin* AttentionCudaPlugin() {
  static constexpr attention::cuda::Plugin kPlugin = {"0.0.1-old", nullptr};
  return &kPlugin;
}
