##### meluxina, nodes: 1
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=64
#SBATCH --gpus-per-node=4
#SBATCH --hint=nomultithread
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/project/home/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=gpu
#SBATCH --qos=default
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
. /etc/profile || true
} || { echo 'campaign: this line of the set-up failed: . /etc/profile || true' >&2; exit 3; }
{
module load env/release/2024.1
} || { echo 'campaign: this line of the set-up failed: module load env/release/2024.1' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /project/home/proj/campaign/submit/c0123456789ab

##### meluxina, nodes: 8
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=64
#SBATCH --gpus-per-node=4
#SBATCH --hint=nomultithread
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/project/home/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=gpu
#SBATCH --qos=default
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
. /etc/profile || true
} || { echo 'campaign: this line of the set-up failed: . /etc/profile || true' >&2; exit 3; }
{
module load env/release/2024.1
} || { echo 'campaign: this line of the set-up failed: module load env/release/2024.1' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /project/home/proj/campaign/submit/c0123456789ab
