redis-server --port 17011 --bind 127.0.0.1 --save '' --enable-debug-command yes > server.log 2>&1 &
server=$!
until redis-cli -p 17011 ping > pong 2>&1; do kill -0 $server || exit 3; sleep 0.1; done
if [ -n "$CALLTAP" ]; then
    while kill -0 $server 2> /dev/null; do
        $CALLTAP record -q -F '*' --max-overhead none --duration 300ms -o /dev/null -p $server && echo attached
    done > sessions.log 2>&1 &
    sessions=$!
fi
(cd $SOURCE/upstream && tclsh tests/test_helper.tcl --host 127.0.0.1 --port 17011 --clients 1 $UNITS --tags '-slow -needs:repl') |
    sed 's/\x1b\[[0-9;]*m//g; s/ ([0-9]* ms)$//'
kill $server
wait $server
code=$?
[ -z "$sessions" ] || wait $sessions
exit $code
