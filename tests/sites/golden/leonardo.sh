##### leonardo, nodes: 1
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --gres=gpu:4
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/leonardo_work/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=boost_usr_prod
#SBATCH --qos=normal
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /leonardo_work/proj/campaign/submit/c0123456789ab

##### leonardo, nodes: 128
#!/bin/bash

# Parameters
#SBATCH --account=budget
#SBATCH --array=0-0%1
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --gres=gpu:4
#SBATCH --job-name=c0123456789ab
#SBATCH --no-requeue
#SBATCH --nodes=128
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/leonardo_work/proj/campaign/submit/c0123456789ab/%A_%a_0_log.out
#SBATCH --partition=boost_usr_prod
#SBATCH --qos=boost_qos_bprod
#SBATCH --signal=B:USR2@90
#SBATCH --time=30

# setup
ulimit -c 0

# command
export SUBMITIT_EXECUTOR=slurm
exec /group/venv/bin/python -P -m campaign.job.head /leonardo_work/proj/campaign/submit/c0123456789ab
