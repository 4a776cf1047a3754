#!/usr/bin/env bash
# Unpacks NVIDIA's CUPTI releases from PyPI, headers and libcupti each, for the tests that hold the probe and
# the simulated node against them (e2e.real_cupti). Nothing of it comes into the tree.
#
#   scripts/cupti-env.sh              all releases that are not there yet
#   scripts/cupti-env.sh 12.9.79 ...  these only
#
# The folder is $GPUPROBE_TEST_CUPTI, else gpuprobe/cupti under $XDG_CACHE_HOME or ~/.cache; one folder a release.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# All final releases. A wheel has 6 to 14 MB, and leaves 6 to 11 MB.
RELEASES=(
  11.8.87
  12.0.90 12.0.146 12.1.62 12.1.105 12.2.60 12.2.131 12.2.142 12.3.52 12.3.101 12.4.99 12.4.127 12.5.39 12.5.82
  12.6.37 12.6.68 12.6.80 12.8.57 12.8.90 12.9.19 12.9.79
  13.0.48 13.0.85 13.1.75 13.1.115 13.2.23 13.2.75 13.2.86 13.3.35 13.3.75 13.4.58 13.4.92 13.5.25
)
FOLDER=${GPUPROBE_TEST_CUPTI:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/cupti}

package_of() {
  case $1 in
    11.*) echo nvidia-cuda-cupti-cu11 ;;
    12.*) echo nvidia-cuda-cupti-cu12 ;;
    *) echo nvidia-cuda-cupti ;;
  esac
}

# unpack WHEEL FOLDER: include/ and lib/libcupti.so.*, whatever the wheel calls the folder above them.
unpack() {
  python3 - "$1" "$2" <<'PYTHON'
import pathlib, sys, zipfile
wheel, folder = zipfile.ZipFile(sys.argv[1]), pathlib.Path(sys.argv[2])
for name in wheel.namelist():
    part = name.partition('/include/')[2]
    target = folder / 'include' / part if part else folder / 'lib' / pathlib.PurePath(name).name
    if (part.endswith('.h') and '..' not in part) or '/lib/libcupti.so.' in name:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(wheel.read(name))
PYTHON
}

fetch() {
  local release=$1 work
  work=$(mktemp -d "$FOLDER/.fetch.XXXXXX")
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" \
    "$(package_of "$release")==$release"
  local wheel=("$work"/*.whl)
  unpack "${wheel[0]}" "$work/$release"
  printf '%-9s %s downloaded, %s kept\n' "$release" "$(du -h "${wheel[0]}" | cut -f1)" "$(du -sh "$work/$release" | cut -f1)"
  mv "$work/$release" "$FOLDER/$release"
  rm -r "$work"
}

python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip. Remedy: apt-get install python3-pip"
mkdir -p "$FOLDER"
missing=()
for release in "${@:-${RELEASES[@]}}"; do
  [ -d "$FOLDER/$release" ] || missing+=("$release")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "All releases are in $FOLDER ($(du -sh "$FOLDER" | cut -f1))."
  exit 0
fi
say "CUPTI from PyPI into $FOLDER: ${#missing[@]} releases, about $((${#missing[@]} * 11)) MB to download"
for release in "${missing[@]}"; do fetch "$release"; done
echo "$FOLDER now takes $(du -sh "$FOLDER" | cut -f1)."
