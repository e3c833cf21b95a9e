#include "server/scheduling/sequence_order.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

namespace attention::server {

bool SequenceOrder::Add(int64_t request, SequenceStep step) {
  // A layer that is named twice has one place.
  absl::c_sort(step.layers);
  step.layers.erase(std::unique(step.layers.begin(), step.layers.end()),
                    step.layers.end());
  Request& added = requests_[request];
  added.step = std::move(step);
  std::vector<int64_t> begin;
  for (const std::string& layer : added.step.layers) {
    std::vector<Waiter>& queue = layers_[layer];
    queue.push_back({request, added.step.appends, false});
    GiveTurns(queue, begin);
  }
  return added.turns == added.step.layers.size();
}

std::vector<int64_t> SequenceOrder::Remove(int64_t request) {
  std::vector<int64_t> begin;
  const auto found = requests_.find(request);
  if (found == requests_.end()) return begin;
  const std::vector<std::string> layers = std::move(found->second.step.layers);
  requests_.erase(found);
  for (const std::string& layer : layers) {
    const auto place = layers_.find(layer);
    // Where memory ran out while it was added, it waits in some of them.
    if (place == layers_.end()) continue;
    std::vector<Waiter>& queue = place->second;
    std::erase_if(queue, [request](const Waiter& waiter) {
      return waiter.request == request;
    });
    GiveTurns(queue, begin);
    if (queue.empty()) layers_.erase(place);
  }
  absl::c_sort(begin);
  return begin;
}

void SequenceOrder::GiveTurns(std::vector<Waiter>& queue,
                              std::vector<int64_t>& begin) {
  for (size_t n = 0; n < queue.size(); ++n) {
    Waiter& waiter = queue[n];
    if (waiter.appends && n > 0) return;
    if (!waiter.has_turn) {
      waiter.has_turn = true;
      Request& of = requests_.at(waiter.request);
      if (++of.turns == of.step.layers.size()) begin.push_back(waiter.request);
    }
    if (waiter.appends) return;
  }
}

}  // namespace attention::server
