mkdir -p site/files logs temp
i=0
while [ $i -lt 40 ]; do
    head -c $((i * i * 37)) /usr/sbin/nginx | base64 > site/files/$i.txt
    i=$((i + 1))
done
echo 'before <!--#include virtual="/files/3.txt" --> <!--#if expr="$arg_a = 1" -->one<!--#else -->other<!--#endif --> behind' > site/page.shtml
cat > nginx.conf << END
daemon off; worker_processes 2; pid nginx.pid; error_log logs/error.log; user root;
events { worker_connections 256; }
http {
    access_log logs/access.log; default_type text/plain; server_tokens off; etag off;
    client_body_temp_path temp/a; proxy_temp_path temp/b; fastcgi_temp_path temp/c; uwsgi_temp_path temp/d; scgi_temp_path temp/e;
    map \$arg_name \$who { default nobody; ~^a anna; b bert; }
    server {
        listen 127.0.0.1:17013; root $PWD/site;
        location /files/ { gzip on; gzip_types text/plain; gzip_min_length 10; }
        location /page { ssi on; ssi_types text/plain; }
        location /who { return 200 "\$who \$arg_name\n"; }
        location /moved { return 302 /files/1.txt; }
        location ~ ^/again/ { rewrite ^/again/(.*)\$ /files/\$1.txt break; }
        location /through/ { proxy_pass http://127.0.0.1:17013/files/; proxy_set_header Accept-Encoding ""; }
        location /list/ { alias $PWD/site/; autoindex on; }
        location /denied { deny all; }
    }
}
END
/usr/sbin/nginx -p $PWD -c nginx.conf > server.log 2>&1 &
server=$!
until curl -s -o answer http://127.0.0.1:17013/who; do kill -0 $server || exit 3; sleep 0.1; done
if [ -n "$CALLTAP" ]; then
    while kill -0 $server 2> /dev/null; do
        for process in $server $(cat /proc/$server/task/$server/children); do
            $CALLTAP record -q -F '*' --max-overhead none --duration 300ms -o /dev/null -p $process && echo attached
        done
    done > sessions.log 2>&1 &
    sessions=$!
fi
wrk -t1 -c16 -d30s http://127.0.0.1:17013/page.shtml > wrk.log &
load=$!
for round in 1 2 3 4 5 6 7 8 9 10; do
    for n in 0 1 5 17 39; do
        for place in files/$n.txt again/$n through/$n.txt; do curl -s --compressed http://127.0.0.1:17013/$place | md5sum; done
        curl -s -r 10-99 http://127.0.0.1:17013/files/$n.txt | md5sum
    done
    for place in 'page.shtml?a=1' page.shtml 'who?name=abc' 'who?name=b' moved denied nothing list/files/ 'files/../../etc'; do
        curl -s -i --path-as-is "http://127.0.0.1:17013/$place" | sed '/^Date:/d; /^Last-Modified:/d; s/[0-9][0-9]-[A-Z][a-z][a-z]-20.*//'
    done
    sleep 2
done
wait $load
grep -e 'Socket errors' -e 'Non-2xx' wrk.log
kill -QUIT $server
wait $server
code=$?
[ -z "$sessions" ] || wait $sessions
grep -c -e emerg -e alert logs/error.log
exit $code
