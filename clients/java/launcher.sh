#!/bin/sh
# The archive holds classes as they are in memory, for a start in half the time. Words are UTF-8 in every locale.
[ -t 0 ] && [ -t 1 ] && terminal=true
LC_ALL=C.UTF-8 exec java @OPTIONS@ -Xlog:disable -Djava.util.logging.config.file=/dev/null -XX:SharedArchiveFile=@BUILD@/classes.jsa \
  -Dquire.terminal=${terminal:-false} -cp '@BUILD@/lib/*' @MAIN@ "$@"
