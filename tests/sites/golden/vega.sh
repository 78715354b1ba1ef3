##### vega, nodes: 1
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=256
#SBATCH --exclusive
#SBATCH --gres=gpu:4
#SBATCH --job-name=c0123456789ab
#SBATCH --mem=393216M
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/exa5/scratch/user/alice/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=gpu
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
module load CMake/3.29.3-GCCcore-13.3.0 OpenMPI/4.1.6-GCC-13.2.0 cuDNN/8.9.7.29-CUDA-12.3.0 CUDA/12.6.0 NCCL/2.22.3-GCCcore-13.3.0-CUDA-12.6.0 Python/3.12.3-GCCcore-13.3.0
} || { echo 'campaign: this line of the set-up failed: module load CMake/3.29.3-GCCcore-13.3.0 OpenMPI/4.1.6-GCC-13.2.0 cuDNN/8.9.7.29-CUDA-12.3.0 CUDA/12.6.0 NCCL/2.22.3-GCCcore-13.3.0-CUDA-12.6.0 Python/3.12.3-GCCcore-13.3.0' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /exa5/scratch/user/alice/campaign/submit/c0123456789ab

##### vega, nodes: 4
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=256
#SBATCH --exclusive
#SBATCH --gres=gpu:4
#SBATCH --job-name=c0123456789ab
#SBATCH --mem=393216M
#SBATCH --no-requeue
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/exa5/scratch/user/alice/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=gpu
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
module load CMake/3.29.3-GCCcore-13.3.0 OpenMPI/4.1.6-GCC-13.2.0 cuDNN/8.9.7.29-CUDA-12.3.0 CUDA/12.6.0 NCCL/2.22.3-GCCcore-13.3.0-CUDA-12.6.0 Python/3.12.3-GCCcore-13.3.0
} || { echo 'campaign: this line of the set-up failed: module load CMake/3.29.3-GCCcore-13.3.0 OpenMPI/4.1.6-GCC-13.2.0 cuDNN/8.9.7.29-CUDA-12.3.0 CUDA/12.6.0 NCCL/2.22.3-GCCcore-13.3.0-CUDA-12.6.0 Python/3.12.3-GCCcore-13.3.0' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /exa5/scratch/user/alice/campaign/submit/c0123456789ab
