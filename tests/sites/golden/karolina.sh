##### karolina, nodes: 1
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=128
#SBATCH --gres=gpu:8
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/scratch/project/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=qgpu
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /scratch/project/proj/campaign/submit/c0123456789ab

##### karolina, nodes: 32
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=128
#SBATCH --gres=gpu:8
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=32
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/scratch/project/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=qgpu_big
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /scratch/project/proj/campaign/submit/c0123456789ab
