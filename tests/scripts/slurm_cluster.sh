#!/usr/bin/env bash
# A Slurm of one machine, for `slurm_faults.py`: munge, a controller and a node of two CPUs, with a partition that preempts
# another. As root, on Debian: apt-get install --no-install-recommends slurm-wlm munge.
#   slurm_cluster.sh start FOLDER    configuration, state and logs are below the folder; prints `export SLURM_CONF=…`
#   slurm_cluster.sh stop FOLDER
set -euo pipefail
folder=$(realpath -m "$2")
pids=(slurmd slurmctld munged)

start() {
    mkdir -p "$folder"/{state,spool,log,run}
    head --bytes 1024 /dev/urandom >"$folder/munge.key"
    chmod 600 "$folder/munge.key"
    munged --key-file "$folder/munge.key" --socket "$folder/run/munge" --pid-file "$folder/run/munged.pid" \
        --log-file "$folder/log/munged.log" --seed-file "$folder/run/munge.seed" --force
    local host
    host=$(hostname --short)
    cat >"$folder/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=1,sched_interval=5
SlurmdTimeout=20
KillWait=20
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=scavenge Nodes=$host Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=patient Nodes=$host PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=urgent Nodes=$host PriorityTier=10 PreemptMode=OFF
CONF
    export SLURM_CONF="$folder/slurm.conf"
    slurmctld
    slurmd
    for _ in $(seq 60); do
        [ "$(sinfo --noheader --partition scavenge --format %t 2>/dev/null)" = idle ] && break
        sleep 0.5
    done
    sinfo >&2
    echo "export SLURM_CONF=$SLURM_CONF"
}

stop() {
    for name in "${pids[@]}"; do
        [ -f "$folder/run/$name.pid" ] && kill "$(cat "$folder/run/$name.pid")" || true
    done
}

"$1"
