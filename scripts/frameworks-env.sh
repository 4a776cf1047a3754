#!/usr/bin/env bash
# Makes a virtual environment with transformers, accelerate, Lightning and DeepSpeed from PyPI, for the tests that run
# programs in these frameworks' style (e2e.frameworks). It lies beside PyTorch's environment, which it makes first and
# uses as it is; nothing of it comes into the tree. About 60 MB to download, 280 MB kept.
#
#   scripts/frameworks-env.sh
#
# DeepSpeed comes as source and is installed without its CUDA operators: programs take PyTorch's optimizers. What is there
# already is left alone; an environment of other versions is made anew.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

RELEASE=2.11.0
FRAMEWORKS=(transformers==5.24.0 accelerate==1.15.0 lightning==2.6.6 pytorch-lightning==2.6.6)
SOURCES=(deepspeed==0.19.8)
# What these import.
PACKAGES=(
  huggingface_hub==2.4.0 tokenizers==0.23.3 safetensors==0.8.0 regex==2026.11.19 pyyaml==6.0.4 tqdm==4.70.1 packaging==26.4 psutil==7.2.2
  httpx2==2.16.2 httpcore2==2.16.2 truststore==0.10.5 anyio==4.16.0 h11==0.16.0 idna==3.20 hf-xet==1.8.0
  typer==0.29.2 click==8.5.1 rich==15.0.0 shellingham==1.5.4 annotated-doc==0.0.7 markdown-it-py==4.3.0 mdurl==0.1.2 pygments==2.21.0
  torchmetrics==1.9.0 lightning-utilities==0.15.3
  aiohttp==3.14.5 aiohappyeyeballs==2.7.1 aiosignal==1.4.0 attrs==26.1.0 frozenlist==1.8.0 multidict==7.2.1 propcache==0.5.4 yarl==1.25.1
  pydantic==2.14.4 pydantic_core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5
  einops==0.8.2 hjson==3.1.0 msgpack==1.2.4 ninja==1.13.2 py-cpuinfo==9.0.0
  setuptools==84.2.1 wheel==0.48.0
)
FOLDER=${GPUPROBE_TEST_PYTORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/pytorch}
TARGET=$FOLDER/frameworks-$RELEASE

"$ROOT/scripts/pytorch-env.sh" "$RELEASE"
wanted=$(printf '%s\n' "${FRAMEWORKS[@]}" "${SOURCES[@]}" "${PACKAGES[@]}")
if [ "$(cat "$TARGET/complete" 2>/dev/null)" != "$wanted" ]; then
  say "transformers, accelerate, Lightning and DeepSpeed from PyPI into $TARGET"
  rm -rf "$TARGET"
  python3 -m venv "$TARGET"
  (cd "$FOLDER/torch-$RELEASE" && realpath lib/python3*/site-packages) >"$(echo "$TARGET"/lib/python3*/site-packages)/torch.pth"
  install=("$TARGET/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps)
  "${install[@]}" --only-binary=:all: "${PACKAGES[@]}" "${FRAMEWORKS[@]}"
  DS_BUILD_OPS=0 "${install[@]}" --no-build-isolation "${SOURCES[@]}"
  echo "$wanted" >"$TARGET/complete"
fi
echo "The frameworks are in $TARGET ($(du -sh "$TARGET" | cut -f1))."
