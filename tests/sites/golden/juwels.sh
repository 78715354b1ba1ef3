##### juwels, nodes: 1
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=48
#SBATCH --gres=gpu:4
#SBATCH --hint=nomultithread
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/p/scratch/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=develbooster
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
module load Stages/2025 GCC OpenMPI CUDA/12 cuDNN MPI-settings/CUDA Python HDF5
} || { echo 'campaign: this line of the set-up failed: module load Stages/2025 GCC OpenMPI CUDA/12 cuDNN MPI-settings/CUDA Python HDF5' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /p/scratch/proj/campaign/submit/c0123456789ab

##### juwels, nodes: 8
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=48
#SBATCH --gres=gpu:4
#SBATCH --hint=nomultithread
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/p/scratch/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=booster
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
module load Stages/2025 GCC OpenMPI CUDA/12 cuDNN MPI-settings/CUDA Python HDF5
} || { echo 'campaign: this line of the set-up failed: module load Stages/2025 GCC OpenMPI CUDA/12 cuDNN MPI-settings/CUDA Python HDF5' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /p/scratch/proj/campaign/submit/c0123456789ab

##### juwels, nodes: 512
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=48
#SBATCH --gres=gpu:4
#SBATCH --hint=nomultithread
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=512
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/p/scratch/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=largebooster
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
module load Stages/2025 GCC OpenMPI CUDA/12 cuDNN MPI-settings/CUDA Python HDF5
} || { echo 'campaign: this line of the set-up failed: module load Stages/2025 GCC OpenMPI CUDA/12 cuDNN MPI-settings/CUDA Python HDF5' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /p/scratch/proj/campaign/submit/c0123456789ab
