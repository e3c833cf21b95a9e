# shellcheck shell=bash disable=SC2154  # variables are tests/gpu/run's
# What is on this machine: libraries that are not packed, tools, the device. Sourced by
# tests/gpu/run.

# Folders in which toolkits, distributions and PyTorch put cuBLAS.
cublas_folders() {
  printf '%s\n' "${CUDA_HOME:-/usr/local/cuda}"/lib64 /usr/local/cuda*/lib64 \
    /usr/local/cuda*/targets/*/lib /usr/lib/x86_64-linux-gnu /opt/cuda/lib64
  "${PYTHON:-python3}" -c 'import sys; print("\n".join(filter(None, sys.path)))' 2>/dev/null |
    while IFS= read -r folder; do printf '%s\n' "$folder"/nvidia/*/lib "$folder"/torch/lib; done
  printf '%s\n' /opt/*/.venv/lib/python*/site-packages/nvidia/*/lib \
    /opt/*/lib/python*/site-packages/nvidia/*/lib
}

# find_libraries: puts the folders that the plugin's own libraries lie in, and of the driver where
# it is in a folder of its own, into LD_LIBRARY_PATH; the toolkit's programs into PATH.
find_libraries() {
  local library folder
  PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
  for folder in /usr/local/cuda*/bin /usr/local/cuda*/compute-sanitizer /opt/nvidia/nsight-compute/*; do
    PATH=$PATH:$folder
  done
  for folder in "$here/emulated" /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
    [[ ! -e $folder/libcuda.so.1 ]] || add_library_folder "$folder"
  done
  while IFS= read -r library; do
    while IFS= read -r folder; do
      if [[ -e $folder/$library ]]; then
        add_library_folder "$folder"
        break
      fi
    done < <(cublas_folders)
  done <"$here/libraries"
  export PATH LD_LIBRARY_PATH
}

add_library_folder() {
  case :${LD_LIBRARY_PATH:-}: in
    *":$1:"*) ;;
    *) LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$1 ;;
  esac
}

describe() {
  printf '# %s: the CUDA backend on a device\n\n' "$step"
  printf -- '- %s, build %s\n' "$(date -u +%F)" "$(cat "$here/version")"
  printf -- '- device: %s\n' "$(device_line)"
  printf -- '- libraries of this machine: %s\n' "${LD_LIBRARY_PATH:-those of the system}"
}

device_line() {
  local line
  if [[ -d $here/emulated ]]; then
    echo "emulated"
  elif line=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader \
    2>&1 | head -n 1); then
    echo "$line"
  else
    echo "nvidia-smi does not answer"
  fi
}
