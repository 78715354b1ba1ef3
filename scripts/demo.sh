#!/bin/sh
# The demo of the README: a project folder, its data, and the whole small local campaign. Needs `campaign` on PATH.
# Safe to repeat: what is measured stays measured, after Ctrl-C it goes on where it was.
# Usage: scripts/demo.sh FOLDER
set -eu
folder=$1
if [ ! -d "$folder/.campaign" ]; then
    campaign init "$folder"
fi
cd "$folder"
campaign data prepare hydrology
campaign run sites/local.yaml
cat <<END

The project folder is $folder. Go on there, with the environment that was made:
  cd $folder && . $(dirname "$(command -v campaign)")/activate
  campaign sql "SELECT site, world_size, n, epoch_time_s, speedup, efficiency FROM scaling"
  campaign run sites/local.yaml --study weak_scaling

The same on a supercomputer, after naming account and project in $folder/campaign.yaml:
  campaign plan sites/juwels.yaml
END
