##### lumi, nodes: 1
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=56
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --hint=nomultithread
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/scratch/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=standard-g
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
module use /appl/local/containers/ai-modules
} || { echo 'campaign: this line of the set-up failed: module use /appl/local/containers/ai-modules' >&2; exit 3; }
{
module load singularity-AI-bindings
} || { echo 'campaign: this line of the set-up failed: module load singularity-AI-bindings' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /scratch/proj/campaign/submit/c0123456789ab

##### lumi, nodes: 8
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=56
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --hint=nomultithread
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/scratch/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=standard-g
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0
{
module use /appl/local/containers/ai-modules
} || { echo 'campaign: this line of the set-up failed: module use /appl/local/containers/ai-modules' >&2; exit 3; }
{
module load singularity-AI-bindings
} || { echo 'campaign: this line of the set-up failed: module load singularity-AI-bindings' >&2; exit 3; }

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /scratch/proj/campaign/submit/c0123456789ab
