#ifndef ATTENTION_SERVER_SCHEDULING_LEDGER_H_
#define ATTENTION_SERVER_SCHEDULING_LEDGER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "server/base/token_bucket.h"

namespace attention::server {

/// What the server keeps for those who call it.
enum class Kept : uint8_t {
  kConnections,          // over gRPC
  kCalls,                // open over gRPC; a hold is those of a connection
  kHttpConnections,      // but for the next two
  kReservedConnections,  // over HTTP, in places that are left for probes
  kClosingConnections,   // over HTTP, closed for others and still there
  kHandshakes,           // over HTTP, that wait for their turn to begin
  kBodies,               // over HTTP, that are being read: bytes
  kRequests,             // admitted: bytes
};
inline constexpr size_t kKeptKinds = 8;

/// Counts what is kept for all, for each address, and for each of an address'
/// connections or each caller by name. It is asked before anything is kept:
/// who asks says what the counts may be, and the check and the count are one
/// step. May be used from several threads at once, and outlives its holds.
class Ledger {
 public:
  using Clock = TokenBucket::Clock;

  /// Of one kind.
  struct Sum {
    int64_t holds = 0;
    int64_t amount = 0;  // of all holds together
  };

  /// What is kept for all, an address, a connection or a caller.
  class Account {
   public:
    const Sum& of(Kept kind) const { return sums_[static_cast<size_t>(kind)]; }
    /// A connection's address; null for others.
    Account* address() { return address_; }

    // Of a second, used up by what is admitted.
    TokenBucket requests_quota = {};
    TokenBucket bytes_quota = {};

   private:
    friend class Ledger;
    void Add(Kept kind, const Sum& more);
    bool IsIdle(Clock::time_point now) const;

    std::array<Sum, kKeptKinds> sums_{};
    int64_t holds_ = 0;        // of every kind
    int64_t connections_ = 0;  // accounts that this is the address of
    Account* address_ = nullptr;
  };

  /// Who holds something: a caller or a connection by its name; without a name,
  /// the address.
  struct Holder {
    std::string name = {};
    std::string address = {};  // "": none
  };

  /// Something that is kept, counted until it is destroyed.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() {
      if (ledger_ != nullptr) Return();  // most have been moved from
    }
    /// False where it holds nothing.
    explicit operator bool() const { return ledger_ != nullptr; }
    int64_t amount() const { return amount_; }

   private:
    friend class Ledger;
    Hold(Ledger& ledger, Kept kind, Account& account, int64_t amount)
        : ledger_(&ledger), account_(&account), kind_(kind), amount_(amount) {}
    void Return();

    Ledger* ledger_ = nullptr;
    Account* account_ = nullptr;
    Kept kind_ = Kept::kConnections;
    int64_t amount_ = 0;
  };

  /// Called with the ledger locked: whether `own` may have it, beside what it
  /// and `all` hold without it.
  using Check = absl::FunctionRef<bool(const Account& all, Account& own)>;
  static bool Always(const Account& /*all*/, Account& /*own*/) { return true; }

  /// Counts `amount` >= 0 of a kind; nothing where `check` says no.
  Hold Take(Kept kind, const Holder& holder, int64_t amount = 0,
            Check check = Always, Clock::time_point now = Clock::now());

  /// Has a hold be of `amount` >= 0, as if it were taken anew. It stays as it
  /// was where `check` says no: false.
  bool Resize(Hold& hold, int64_t amount, Check check = Always);

  /// Of all, and of an address.
  Sum Of(Kept kind) const;
  Sum Of(Kept kind, const std::string& address) const;
  /// The address with the largest amount; "" where there is none.
  std::string Largest(Kept kind) const;

 private:
  using Accounts = std::unordered_map<std::string, Account>;  // nodes stay

  // mutex_ is held for all.
  Account& Find(const Holder& holder);
  void Add(Kept kind, Account& account, const Sum& more);
  void ForgetIdle(Clock::time_point now);

  mutable std::mutex mutex_;
  Account all_;
  Accounts named_;  // callers and connections
  Accounts addresses_;
  Clock::time_point next_sweep_{};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_LEDGER_H_
