# shellcheck shell=bash
# rxe devices on veths that a bridge joins, all in one network namespace. For
# scripts in the guest, sourced.
#
# Device rxeN lies on vethN with address 10.0.0.(N+1); the other end of vethN is
# portN of the bridge br0. What one of these addresses sends to another goes
# over the wire, whatever the protocol: tcpdump, tc and links act on it. (What
# is sent from no address in particular stays inside the machine.)

# The index of device rxe$1's GID that is its IPv4 address (RoCE version 2).
rxe_gid_index() {
    local index gid wanted
    printf -v wanted '0000:0000:0000:0000:0000:ffff:0a00:%04x' $(($1 + 1))
    for index in {0..15}; do
        { read -r gid <"/sys/class/infiniband/rxe$1/ports/1/gids/$index"; } 2>/dev/null || continue
        if [[ $gid == "$wanted" ]]; then
            echo "$index"
            return
        fi
    done
    return 1
}

# Whether device rxe$1's link is up.
rxe_active() {
    local state
    read -r state <"/sys/class/infiniband/rxe$1/ports/1/state"
    [[ $state == *ACTIVE ]]
}

# Waits up to 60 s until a command succeeds: the machine may be a busy one.
rxe_wait() {
    local until=$((SECONDS + 60))
    while ((SECONDS <= until)); do
        "$@" >/dev/null && return
        sleep 0.1
    done
    echo "net: waited 60 s in vain for: $*" >&2
    return 1
}

# Makes $1 devices: rxe0, rxe1, ... (In batches, as starting a program takes
# long in the guest.)
rxe_up() {
    local one other mac
    rxe_count=$1
    echo 0 | tee /proc/sys/net/ipv4/conf/{all,default}/rp_filter >/dev/null
    echo 1 >/proc/sys/net/ipv4/conf/default/accept_local
    {
        echo "link add br0 type bridge"
        echo "link set br0 up"
        for ((one = 0; one < rxe_count; one++)); do
            echo "link add veth$one type veth peer name port$one"
            echo "link set port$one master br0 up"
            echo "addr add 10.0.0.$((one + 1))/24 dev veth$one"
            echo "link set veth$one up"
            # What comes in by a veth is for this machine. What one address
            # sends to another leaves by its veth, as the table of local
            # addresses, which would keep it inside, is asked last.
            echo "rule add pref 10 iif veth$one lookup local"
            echo "rule add pref 20 from 10.0.0.$((one + 1)) lookup $((100 + one))"
        done
        echo "rule add pref 1000 lookup local"
        echo "rule del pref 0"
    } | ip -batch - || return
    for ((other = 0; other < rxe_count; other++)); do
        read -r mac <"/sys/class/net/veth$other/address"
        for ((one = 0; one < rxe_count; one++)); do
            ((one != other)) || continue
            echo "route add 10.0.0.$((other + 1)) dev veth$one src 10.0.0.$((one + 1)) table $((100 + one))"
            echo "neigh replace 10.0.0.$((other + 1)) dev veth$one lladdr $mac nud permanent"
        done
    done | ip -batch - || return
    for ((one = 0; one < rxe_count; one++)); do
        echo "link add rxe$one type rxe netdev veth$one"
    done | rdma -b - || return
    for ((one = 0; one < rxe_count; one++)); do
        rxe_wait rxe_gid_index "$one" || return
        rxe_wait rxe_active "$one" || return
    done
}

# Removes all that rxe_up made.
rxe_down() {
    local one
    for ((one = 0; one < rxe_count; one++)); do
        echo "link del rxe$one"
    done | rdma -b - || return
    {
        echo "rule add pref 0 lookup local"
        echo "rule del pref 1000"
        for ((one = 0; one < rxe_count; one++)); do
            echo "rule del pref 10"
            echo "rule del pref 20"
            echo "link del veth$one"
        done
        echo "link del br0"
    } | ip -batch -
}

# Pulls device rxe$1's cable, and puts it in again.
rxe_unplug() {
    ip link set "port$1" down
    rxe_wait eval "! rxe_active $1" # the news takes its time
}
rxe_plug() {
    ip link set "port$1" up
    rxe_wait rxe_active "$1"
}

# From now on $1 % of the packets that any device sends are lost; 0 for none.
rxe_loss() {
    local one
    for ((one = 0; one < rxe_count; one++)); do
        if [[ $1 == 0 ]]; then
            tc qdisc del dev "veth$one" root
        else
            tc qdisc replace dev "veth$one" root netem loss "$1%"
        fi
    done
}

# From now on packets that any device sends are under way for $1 ms; `rxe_loss 0`
# ends it, and may lose those that are.
rxe_delay() {
    local one
    for ((one = 0; one < rxe_count; one++)); do
        tc qdisc replace dev "veth$one" root netem delay "$1ms"
    done
}

# How many packets were lost since rxe_loss began.
rxe_lost() {
    local one
    for ((one = 0; one < rxe_count; one++)); do
        tc -s qdisc show dev "veth$one"
    done | awk '{ for (i = 1; i < NF; i++) if ($i == "(dropped") sum += $(i + 1) } END { print sum + 0 }'
}

# Begins a capture of what device rxe$1 sends and receives, in the file $2.
capture_start() {
    tcpdump -i "veth$1" -w "$2" -U --immediate-mode -B 8192 -s 128 -Z root \
        'udp port 4791' 2>"$2.log" &
    capture=$!
    rxe_wait grep -q 'listening on' "$2.log"
}

# Ends it, and fails if packets are missing in it.
capture_stop() {
    sleep 0.5 # for packets on their way
    kill -INT "$capture"
    wait "$capture"
    grep -q '^0 packets dropped by kernel' "$1.log" || { cat "$1.log" >&2 && return 1; }
}

# How many RDMA READ requests are in the capture $1 (BTH opcode 12). One that
# was sent again is counted once: it has the same source, queue pair and
# sequence number. Two nibbles a byte: IP header 40, UDP 16, BTH. Only those
# for which the condition $2 of tcpdump holds, if there is one.
count_reads() {
    tcpdump -r "$1" -n -t -x "udp port 4791 and udp[8] = 12 ${2:+and $2}" 2>/dev/null |
        awk '/^IP/ { take() }
            /^\t0x/ { for (i = 2; i <= NF; i++) hex = hex $i }
            function take() {
                if (hex != "" && !seen[substr(hex, 25, 8) substr(hex, 67, 6) substr(hex, 75, 6)]++) count++
                hex = ""
            }
            END { take(); print count + 0 }'
}
