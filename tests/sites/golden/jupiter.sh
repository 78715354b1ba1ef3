##### jupiter, nodes: 1
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=288
#SBATCH --gres=gpu:4
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/e/scratch/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=booster
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
module load Stages/2026 GCC/14.3.0 ParaStationMPI/5.13.0-1 Python
} || { echo 'campaign: this line of the set-up failed: module load Stages/2026 GCC/14.3.0 ParaStationMPI/5.13.0-1 Python' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /e/scratch/proj/campaign/submit/c0123456789ab

##### jupiter, nodes: 8
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=288
#SBATCH --gres=gpu:4
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/e/scratch/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=booster
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
module load Stages/2026 GCC/14.3.0 ParaStationMPI/5.13.0-1 Python
} || { echo 'campaign: this line of the set-up failed: module load Stages/2026 GCC/14.3.0 ParaStationMPI/5.13.0-1 Python' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /e/scratch/proj/campaign/submit/c0123456789ab
