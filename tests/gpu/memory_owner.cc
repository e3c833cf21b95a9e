// A process that shares memory of a CUDA device: fills it with a file's bytes,
// prints "handle" and its cudaIpcMemHandle_t in hexadecimal digits, waits for
// SIGTERM, and writes what the memory holds then to the file. For tests.

#include <cuda_runtime_api.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

void Check(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
  std::exit(1);
}

std::vector<char> ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void PrintHandle(void* memory) {
  cudaIpcMemHandle_t handle;
  Check("cudaIpcGetMemHandle", cudaIpcGetMemHandle(&handle, memory));
  std::printf("handle ");
  for (const char byte : handle.reserved) {
    std::printf("%02x",
                static_cast<unsigned>(static_cast<unsigned char>(byte)));
  }
  std::printf("\n");
  std::fflush(stdout);
}

void WaitForEnd() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  int received = 0;
  sigwait(&signals, &received);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: attention-gpu-memory-owner FILE\n");
    return 2;
  }
  // Before CUDA starts its threads: none of them is to end by the signal.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  std::vector<char> bytes = ReadFile(argv[1]);
  void* memory = nullptr;
  Check("cudaMalloc", cudaMalloc(&memory, bytes.size()));
  Check("cudaMemcpy",
        cudaMemcpy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  PrintHandle(memory);
  WaitForEnd();
  Check("cudaMemcpy",
        cudaMemcpy(bytes.data(), memory, bytes.size(), cudaMemcpyDeviceToHost));
  std::ofstream(argv[1], std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  Check("cudaFree", cudaFree(memory));
  return 0;
}
