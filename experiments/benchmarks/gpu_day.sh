#!/usr/bin/env bash
# Everything that is to be measured on a GPU, in under 30 minutes, on a machine that has one and nothing but Python, JAX for CUDA, Flax,
# Optax, Orbax, sacreBLEU and sentencepiece: no TensorFlow, no corpus, no network.
#
#     GPU_DAY_WHEELS=wheels bash experiments/benchmarks/gpu_day.sh results/gpu_day
#     GPU_DAY_REHEARSAL=1 bash experiments/benchmarks/gpu_day.sh /tmp/rehearsal      # the same on a CPU, tiny
#
# Each step writes NAME.json and NAME.log and is not repeated when that is there: started again, the script goes on with what is missing.
# A step that fails or takes too long is told at the end, and the others run. GPU_DAY_WHEELS: wheels of small packages that are missing
# there, by pip download --no-deps ml-collections and the like. GPU_DAY_MINUTES: no step begins later (26).
set -uo pipefail

OUT=$(mkdir -p "${1:-results/gpu_day}" && cd "${1:-results/gpu_day}" && pwd)
cd "$(dirname "$0")/../.."
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1
export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$OUT/compiled} JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=1
PYTHON=${PYTHON:-python3}
HERE=experiments/benchmarks
DEADLINE=$((SECONDS + 60 * ${GPU_DAY_MINUTES:-26}))
FAILED=()

BASE=configs/transformer_base.py BIG=configs/transformer_base.py:big LM=configs/language_model.py:base
BUCKETS=(--config.batching.kind=buckets --config.batching.count=positions)
# Rows of the most frequent length.
SHORT=(--config.data.max_source_tokens=127 --config.data.max_target_tokens=127)
PACKED=(--config.batching.kind=packed --config.batching.packed_length=512)
ON_ONE=(--config.batching.accumulation_steps=1 --config.batching.tokens_per_update=32768 --config.batching.row_multiple=8)
REPEATED=(--config.batching.tokens_per_update=8192)
BACKEND=cudnn LENGTHS=128,256,512,1024 POSITIONS=8192 STEPS=20
TINY=() TINY_LM=()
if [ -n "${GPU_DAY_REHEARSAL:-}" ]; then
    export JAX_PLATFORMS=cpu
    BACKEND=blockwise LENGTHS=32 POSITIONS=64 STEPS=2
    WIDTHS=(--config.model.d_model=16 --config.model.d_ff=32 --config.model.num_heads=2 --config.tokenizer.vocabulary_size=64)
    TINY=("${WIDTHS[@]}" --config.model.num_encoder_layers=1 --config.model.num_decoder_layers=1
        --config.batching.tokens_per_update=256 --config.batching.row_multiple=1
        --config.data.max_source_tokens=31 --config.data.max_target_tokens=31)
    TINY_LM=("${WIDTHS[@]}" --config.model.num_layers=1 --config.model.max_positions=64 --config.batching.context_length=64
        --config.batching.tokens_per_update=128 --config.batching.row_multiple=1 --config.batching.accumulation_steps=1
        --config.decoding.max_new_tokens=8)
    PACKED=(--config.batching.kind=packed --config.batching.packed_length=64)
    SHORT=(--config.data.max_source_tokens=15 --config.data.max_target_tokens=15)
fi

# step NAME SECONDS COMMAND ...: the command prints JSON.
step() {
    local name=$1 limit=$2
    shift 2
    if [ -e "$OUT/$name.json" ]; then
        echo "$name: done before"
        return
    fi
    if [ $SECONDS -ge $DEADLINE ]; then
        FAILED+=("$name: not begun, out of time")
        return
    fi
    local began=$SECONDS
    timeout "$limit" "$@" > "$OUT/$name.out" 2> "$OUT/$name.log"
    local status=$?
    if [ $status -eq 0 ]; then
        mv "$OUT/$name.out" "$OUT/$name.json"
        echo "$name: $((SECONDS - began)) s"
    else
        FAILED+=("$name: status $status after $((SECONDS - began)) s; $(tail -n 1 "$OUT/$name.log")")
        echo "$name: FAILED"
    fi
}

install_missing() {
    local pair
    for pair in ml_collections:ml-collections jaxtyping:jaxtyping absl:absl-py yaml:pyyaml rich:rich matplotlib:matplotlib \
        tensorboardX:tensorboardX orbax.checkpoint:orbax-checkpoint sacrebleu:sacrebleu sentencepiece:sentencepiece; do
        "$PYTHON" -c "import ${pair%:*}" 2> /dev/null && continue
        "$PYTHON" -m pip install --quiet --no-index --no-deps --find-links="${GPU_DAY_WHEELS:-.}" "${pair#*:}" >&2
    done
    "$PYTHON" -c "import json, jax; print(json.dumps([jax.__version__, *map(str, jax.devices())]))"
}

export PYTHON GPU_DAY_WHEELS=${GPU_DAY_WHEELS:-}
export -f install_missing
step devices 120 bash -c install_missing
step calibration 120 "$PYTHON" -m transformer_jax calibrate --output=/dev/null
CALIBRATION=--calibration=$OUT/calibration.json
bound() {
    local name=$1 limit=$2
    shift 2
    step "$name" "$limit" "$PYTHON" $HERE/step_bound.py "$CALIBRATION" --steps=$STEPS --recipe="$@"
}
step attention 180 "$PYTHON" $HERE/attention_parity.py --backend=$BACKEND --lengths=$LENGTHS --positions=$POSITIONS
bound base_256 240 $BASE "${TINY[@]}"
bound base_128 240 $BASE "${TINY[@]}" "${SHORT[@]}"
bound base_256_buckets 240 $BASE "${TINY[@]}" "${BUCKETS[@]}"
bound base_512_packed 240 $BASE "${TINY[@]}" "${PACKED[@]}"
bound base_256_scanned 240 $BASE "${TINY[@]}" --config.model.scan_layers=True
step decoding 240 "$PYTHON" $HERE/decoding_bound.py "$CALIBRATION" --recipe=$BASE "${TINY[@]}"
XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_deterministic_ops=true" \
    step repeated_deterministic 240 "$PYTHON" $HERE/repeatability.py --recipe=$BASE "${REPEATED[@]}" "${TINY[@]}"
bound big_256 240 $BIG "${TINY[@]}"
bound big_512_packed 240 $BIG "${TINY[@]}" "${PACKED[@]}"
bound lm_packed 240 $LM "${ON_ONE[@]}" --config.batching.kind=packed "${TINY_LM[@]}"
bound lm_split 240 $LM "${ON_ONE[@]}" --config.batching.kind=split "${TINY_LM[@]}"
step repeated_as_it_comes 240 "$PYTHON" $HERE/repeatability.py --recipe=$BASE "${REPEATED[@]}" "${TINY[@]}"
step lm_decoding 180 "$PYTHON" $HERE/decoding_bound.py "$CALIBRATION" --recipe=$LM "${TINY_LM[@]}"

"$PYTHON" $HERE/gpu_day_table.py "$OUT" | tee "$OUT/summary.md"
echo "$SECONDS s in all"
if [ ${#FAILED[@]} -gt 0 ]; then
    printf 'FAILED %s\n' "${FAILED[@]}"
    exit 1
fi
