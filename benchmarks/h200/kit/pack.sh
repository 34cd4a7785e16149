#!/usr/bin/env bash
# What a GPU machine without a network needs, as parts that can be carried one by one: wheels for Python 3.12 on x86-64 Linux,
# the prompt sets, and any GGUF files.
#   pack.sh OUT_DIR DATA_DIR [NAME=FILE.gguf …]      PART_BYTES=60000000
# OUT_DIR/kit/p00 … and OUT_DIR/NAME/p00 … hold one file `part` each; setup.sh and models.sh put them together again.
set -euo pipefail
out=$1 data=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
bytes=${PART_BYTES:-60000000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
platforms=()
for tag in 2_39 2_35 2_34 2_31 2_28 2_27 2_26 2_24 2_18 2_17 2_12 2_5; do platforms+=(--platform "manylinux_${tag}_x86_64"); done
for tag in 2014 2010 1; do platforms+=(--platform "manylinux${tag}_x86_64"); done

parts() {  # NAME: split standard input into OUT_DIR/NAME/pNN/part
  rm -rf "${out:?}/$1" && mkdir -p "$out/$1"
  split --bytes="$bytes" --numeric-suffixes --suffix-length=2 - "$work/part."
  for part in "$work"/part.*; do
    mkdir -p "$out/$1/p${part##*.}" && mv "$part" "$out/$1/p${part##*.}/part"
  done
}

for what in vllm train aiperf; do
  python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    --abi cp312 --abi abi3 --abi none "${platforms[@]}" --dest "$work/$what" --requirement "$here/wheels-$what.txt"
done
mkdir "$work/data" && cp -r "$data"/. "$work/data/"
tar -C "$work" -cf - vllm train aiperf data | parts kit
for model in "$@"; do parts "${model%%=*}" <"${model#*=}"; done
cp "$here"/{setup.sh,models.sh,unzip.py} "$out/"
du -sh "$out"/*
