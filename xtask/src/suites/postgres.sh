# (It does not run as root.)
own="setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=$PWD"
programs=/usr/lib/postgresql/15/bin
regress=$SOURCE/upstream/src/test/regress
chown -R nobody:nogroup .
$own $programs/initdb -D data -A trust -U nobody --locale=C > init.log 2>&1 || exit 3
$own $programs/postgres -D data -k $PWD -p 17012 -c listen_addresses= -c fsync=off > server.log 2>&1 &
server=$!
until $programs/pg_isready -q -h $PWD -p 17012; do kill -0 $server || exit 3; sleep 0.1; done
if [ -n "$CALLTAP" ]; then
    while kill -0 $server 2> /dev/null; do
        $CALLTAP record -q -F '*' --max-overhead none --duration 300ms -o /dev/null -p $server && echo attached
    done > sessions.log 2>&1 &
    sessions=$!
fi
$own /usr/lib/postgresql/15/lib/pgxs/src/test/regress/pg_regress --host=$PWD --port=17012 --user=nobody --max-connections=4 \
    --bindir=$programs --inputdir=$regress --outputdir=$PWD --dlpath=$SOURCE/lib --schedule=$regress/parallel_schedule 2>&1 |
    sed -n 's/^\( *\|test \)\([a-z_0-9]*\) *\.\.\. \([A-Za-z]*\).*/\2 \3/p'
kill $server
wait $server
code=$?
[ -z "$sessions" ] || wait $sessions
exit $code
