# shellcheck shell=bash
# What docker/check and tests/packages/run share: Podman with a storage of its own, and base images
# from Debian's archive, so that no image registry is needed. To be sourced after deploy/lib.sh,
# from the project's root.
scratch=$PWD/build/container

# use_podman: settings for the narrow machines that CI runs on, in files of our own.
use_podman() {
  deploy/setup deploy/packages-container
  mkdir -p "$scratch"
  [[ $(id -u) -eq 0 ]] || return 0  # without root, the user's own settings serve
  printf '[storage]\ndriver = "overlay"\nrunroot = "%s"\ngraphroot = "%s"\n' \
    "$scratch/run" "$scratch/store" >"$scratch/storage.conf"
  # runc and cgroupfs work without systemd; limits that need no CAP_SYS_RESOURCE.
  cat >"$scratch/containers.conf" <<'TOML'
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
TOML
  export CONTAINERS_STORAGE_CONF=$scratch/storage.conf
  export CONTAINERS_CONF=$scratch/containers.conf
}

# make_base IMAGE RELEASE [PACKAGE...]: an equal of debian:RELEASE-slim with the packages, or of
# ubuntu:RELEASE.
make_base() {
  local image=$1 release=$2
  # Merged /usr by the hook and not by the package usrmerge, which brings all of Perl.
  local options=(--components=main --include=usr-is-merged
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr)
  shift 2
  podman image exists "$image" && return
  if [[ $release == noble ]]; then
    # Debian 13 has the keys of Ubuntu's archive, Debian 12 has not.
    local keys=$scratch/ubuntu-keys
    rm -rf "$keys"
    mmdebstrap --quiet --variant=extract --include=ubuntu-archive-keyring trixie "$keys"
    # Its /usr is merged by itself.
    options=("--components=main,universe" --keyring="$keys/usr/share/keyrings")
  fi
  say "image $image, from the archive of $release"
  local tar=$scratch/base.tar
  mmdebstrap --quiet --variant=minbase "${options[@]}" "${@/#/--include=}" \
    --aptopt='Acquire::Languages "none"' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    "$release" "$tar" >"$scratch/base.log" 2>&1 || { cat "$scratch/base.log" >&2; return 1; }
  podman import --quiet --change 'CMD ["bash"]' "$tar" "$image" >/dev/null
  rm -f "$tar"
}

# remove_storage: everything that use_podman and make_base left.
remove_storage() {
  [[ -n ${CONTAINERS_STORAGE_CONF:-} ]] || return 0
  podman rmi --all --force >/dev/null || true
  umount --recursive "$scratch/store/overlay" 2>/dev/null || true
  rm -rf "$scratch"
}
