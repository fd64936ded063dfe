#!/usr/bin/env bash
# From nothing to a small GPT that has learnt the characters of a real text: sets up, builds, compiles its training
# step ahead of time, trains it, and prints a sample. The loss curve goes to build/demo/loss.svg.
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/setup.sh --demo
scripts/build.sh trainc trainc-run trainc_runtime

export PATH=$PWD/build/bin:$PATH
demo=build/demo
steps=800
python3 examples/data/make_text.py $demo/text/usr/share/doc/jargon-text/jargon.txt.gz $demo

python3 examples/gpt.py --layers 4 --width 128 --heads 4 --vocab 128 --batch 16 --seq 128 --context 128 \
  --optimizer adamw --lr 3e-3 --schedule warmup_cosine warmup=50 total=$steps --clip 1.0 >$demo/char_gpt.mlir
trainc $demo/char_gpt.mlir -o $demo/char_gpt.so
trainc-run $demo/char_gpt.so --data $demo/train_tokens.npy --eval-data $demo/val_tokens.npy --steps $steps \
  --svg $demo/loss.svg --sample 200
