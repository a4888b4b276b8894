#!/bin/bash
# Train and certify with several processes on one machine, on GPUs or CPU cores.
#   examples/several_processes.sh [PROCESSES [FOLDER]]
set -euo pipefail

processes=${1:-2}
runs=${2:-runs}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}   # on CPUs: one core per process

torchrun --nproc-per-node "$processes" --max-restarts 3 -m -- smoothcert train \
    --dataset mnist-mini --method consistency --sigma 0.5 --epochs 2 --batch 64 --name several --runs "$runs"
torchrun --nproc-per-node "$processes" --max-restarts 3 -m -- smoothcert certify \
    "$runs/several" --n 1000 --skip 50
