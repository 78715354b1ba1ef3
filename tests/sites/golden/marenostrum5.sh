##### marenostrum5, nodes: 1
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=80
#SBATCH --exclusive
#SBATCH --gres=gpu:4
#SBATCH --hint=nomultithread
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/gpfs/scratch/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=acc
#SBATCH --qos=acc_ehpc
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /gpfs/scratch/proj/campaign/submit/c0123456789ab

##### marenostrum5, nodes: 64
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=80
#SBATCH --exclusive
#SBATCH --gres=gpu:4
#SBATCH --hint=nomultithread
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/gpfs/scratch/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=acc
#SBATCH --qos=acc_ehpc
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /gpfs/scratch/proj/campaign/submit/c0123456789ab
