#ifndef ATTENTION_TESTS_SUPPORT_ADDRESS_SANITIZER_H_
#define ATTENTION_TESTS_SUPPORT_ADDRESS_SANITIZER_H_

#if defined(__SANITIZE_ADDRESS__)
#define ATTENTION_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATTENTION_ADDRESS_SANITIZER 1
#endif
#endif

namespace attention::test {

/// Whether this program is built with the address sanitizer.
#ifdef ATTENTION_ADDRESS_SANITIZER
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_ADDRESS_SANITIZER_H_
