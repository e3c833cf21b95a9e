# What builds leave out, in one place: those with sanitizers run what they can see something in, once,
# and all leave some of what takes long to ATTENTION_TEST_ALL, which is `.ci/run --all`.
# <program>_RUNS is a GoogleTest filter; programs in ATTENTION_TESTS_LEFT_OUT are not built.
set(ATTENTION_TESTS_LEFT_OUT)

# Without ATTENTION_TEST_CUDA, the device's kernels have no tests of their own; emulated devices are not
# sanitized (with unit/cuda), nor watched for races, nor part of the parity tests; nor are there whole
# self checks, and pages of every type and size.
set(cuda_host_test_leaves)
if(NOT ATTENTION_TEST_CUDA)
  list(APPEND ATTENTION_TESTS_LEFT_OUT attention_cuda_kernels_test attention_cuda_races_test)
  if(ATTENTION_SANITIZE)
    list(APPEND ATTENTION_TESTS_LEFT_OUT server_pinned_test cuda_vs_reference_fuzzer)
  endif()
  list(APPEND cuda_host_test_leaves ChildCheckTest.AutoGoesOnWithoutTheKernelsThatFault
       CudaSelfCheckTest.AutoUsesAnExperimental* CudaPagesTest.HaveTheBitsOfOnePiece)
endif()

# The tests of the oracle and of its tolerances are about numbers, not about memory or threads.
set(oracle_tests "OracleTest.*:KappaTest.*:RangeTest.*:*OverflowTest.*:*ToleranceTest.*")

if(ATTENTION_SANITIZE MATCHES "address")
  # Everything of ours, at small size. The rows of the covering array go through the kernels once:
  # through the cpu backend's for this processor (its other instruction sets', which the night's build
  # has, go through all the other tests of cpu_backend_test) and through the CUDA kernels in allocations
  # of exactly the bytes that they may use (attention_cuda_kernels_test), and in slices
  # (cuda_emulated_small).
  set(cpu_backend_test_RUNS "-*PairwiseOnTargetTest.*")
  # Every kernel meets every option with full tiles in CpuTargetsTest, here as well; their pairs are
  # about numbers. Sweeps of values touch the same memory at every value, and what is NaN, infinite
  # or the lowest number lies where other numbers do; sinks go through it in slices.
  string(CONCAT attention_parity_core_test_RUNS
         "-*PairwiseTest.*/cuda_emulated_row*:*ValuesOnBackendTest.*/cuda_emulated*:"
         "*NanPayloadTest.*/cuda_emulated*:*MinusInfinityTest.*/cuda_emulated*:"
         "*LowestBiasTest.*/cuda_emulated*:*PlainFp32Test.*:"
         "*SinksTest.*/cuda_emulated:Kernels/KernelTables*:${oracle_tests}")
  # Slow, and so once a night: such sweeps, and keys of every type, on the reference, whose loops are
  # plain, and the latter on the device, which refuses most of them; values of sinks in slices; packed
  # batches on the device as it is served, beside which the one in slices has them; BF16 near the ends
  # of its range in many places, which HugeNumbers and SubnormalNumbers have in all.
  if(NOT ATTENTION_TEST_ALL)
    string(APPEND attention_parity_core_test_RUNS
           ":*ValuesOnBackendTest.*/reference*:*NanPayloadTest.*/reference*"
           ":*LowestBiasTest.*/reference*:*MinusInfinityTest.*/reference*"
           ":*StoredKeysTest.*/others:*SinksTest.TheLeast*/cuda_emulated_small"
           ":*SinksTest.TheLargest*/cuda_emulated_small:*SinksTest.MinusInfinity*/cuda_emulated_small"
           ":*PackedTest.*/cuda_emulated"
           ":*SinksTest.NanBehindAMask*/cuda_emulated_small:*SinksTest.ARowWithout*/cuda_emulated_small")
    # Pages of every type and size, which PagedKernelTest has in allocations of exactly their bytes.
    list(APPEND cuda_host_test_leaves CudaPagesTest.HaveTheBitsOfOnePiece)
    # NaN behind every mask of the cpu backend, which parity's NanIsolationTest has with this
    # processor's instruction set.
    string(APPEND cpu_backend_test_RUNS
           ":*Bf16ValuesTest.*NearTheEndsOfTheRange*:All/NanBehindMasksTest.*")
  endif()
  # Slow, too: each of these computes all cases of the self check on the reference, as
  # PassesWhatTheReferenceComputes does.
  if(NOT ATTENTION_TEST_ALL)
    string(CONCAT core_test_RUNS "-SelfCheck.TellsOfEachCase*:SelfCheck.FindsElements*:"
           "SelfCheck.NamesTheCase*:SelfCheck.FindsWhatIsWrongOnlyWhileOthersCompute:"
           "SelfCheck.FindsWhatIsWrongOnlyInPages")
  endif()
  # The sanitizer itself maps terabytes: address space cannot be made scarce.
  set(service_test_RUNS "-ScarcityTest.*AddressSpace*:ScarcityTest.MemoryThatCannotBeHad*")
elseif(ATTENTION_SANITIZE MATCHES "thread")
  # What threads share: the worker pool, the engine, blocks of rows and split keys with 1, 2 and 7
  # threads, keys that are masked for some rows of a block, a device's queue and its memory. Files
  # and the kernels themselves have one thread. (An emulated device's threads are fibers of one
  # thread, and every change of fibers is slow here: of them, the layer's own tests.)
  list(APPEND ATTENTION_TESTS_LEFT_OUT cpu_kernels_test formats_test)
  string(CONCAT cpu_backend_test_RUNS "*ThreadsTest.*:*SameBitsTest.*:*.NanInAMasked*_FP32:"
         "CpuTargetsTest.*:-CpuTargetsTest.EveryKernel*")
  set(attention_cuda_kernels_test_RUNS "Emulation*:Portable*:SixteenBits*:Philox*")
  # Self checks that have no threads which FindsWhatIsWrongOnlyWhileOthersCompute has not, and that of
  # the device, which takes a minute; pages that one thread reads.
  if(NOT ATTENTION_TEST_ALL)
    string(CONCAT core_test_RUNS "-SelfCheck.PassesWhatTheReference*:SelfCheck.TellsOfEachCase*:"
           "SelfCheck.FindsWhatIsWrongOnlyInPages:SelfCheck.FindsElements*")
    list(APPEND cuda_host_test_leaves CudaSelfCheckTest.AutoUsesAnExperimental*
         CudaPagesTest.HaveTheBitsOfOnePiece)
  endif()
  set(attention_parity_core_test_RUNS
      "*PairwiseTest.*/cpu_row*:*ThreadsTest.*:*DeterminismTest.*:*SplittingTest.*:*NanTest.*")
elseif(NOT ATTENTION_TEST_ALL)
  # The self check in a process of its own, through to its end: AutoGoesOnWithoutTheKernelsThatFault
  # has it without Hopper's kernels, for which attend_mma stands in the emulation.
  list(APPEND cuda_host_test_leaves ChildCheckTest.ADeviceThatAgreesPasses)
  # Large problems in slices: all pairs of options go through them in PairwiseTest, in smaller ones.
  set(attention_parity_core_test_RUNS "-Kernels/KernelTablesInSlicesTest.*")
endif()

if(cuda_host_test_leaves)
  list(JOIN cuda_host_test_leaves ":" cuda_host_test_RUNS)
  string(PREPEND cuda_host_test_RUNS "-")
endif()
