# The servers that tests need; scripts source it. work is a directory.
#
# Each server has a port, a directory and a folder for temporary files of its
# own: a MariaDB that starts removes the files of others from a shared one. What
# they keep goes with them, so that they do not wait for the disk.

# start starts a server and exports its address, unless the environment has one.
# A server that finds its port taken ends, and the next port is tried.
# NAME_answers asks on a socket in the server's directory, where no other server
# can answer.
start() { # name variable address-with-PORT
	[ -z "${!2:-}" ] || return 0
	local port pid deadline=$((SECONDS + 300))
	rm -rf "${work:?}/$1" # of the step before
	mkdir "$work/$1"
	[ "$(id -u)" != 0 ] || chown "$(owner "$1")" "$work/$1"
	if ("$1_data") >"$work/$1.log" 2>&1; then
		for port in $(shuf -i 20000-32000 -n 20); do
			"$1_server" "$port" >>"$work/$1.log" 2>&1 &
			pid=$!
			while kill -0 "$pid" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ]; do
				if "$1_answers" "$port" >/dev/null 2>&1; then
					echo "$1: a server of our own on port $port"
					export "$2=${3/PORT/$port}"
					return
				fi
				sleep 0.1
			done
		done
	fi
	cat "$work/$1.log"
	echo "$1 does not start; what it said stands above"
	return 1
}

owner() { case $1 in mariadb) echo mysql ;; postgres) echo postgres ;; *) echo root ;; esac; }

# as becomes a program that refuses to be root.
as() { # user program argument…
	if [ "$(id -u)" = 0 ]; then
		cd "$work" && exec setpriv --reuid="$1" --regid="$1" --clear-groups "${@:2}"
	fi
	exec "${@:2}"
}

postgres_programs() {
	{ ls /usr/lib/postgresql/*/bin/initdb; command -v initdb; } 2>/dev/null | sort -V | tail -n 1 | xargs -r dirname
}

postgres_data() {
	as postgres "$(postgres_programs)/initdb" -D "$work/postgres/data" -U postgres -A trust -E UTF8 --locale=C --no-sync
}

# No test waits for a lock, or leaves a transaction idle, for as long as these
# timeouts. They let a test clean up that failed with a transaction open.
postgres_server() {
	as postgres "$(postgres_programs)/postgres" -D "$work/postgres/data" -p "$1" -k "$work/postgres" -c listen_addresses=127.0.0.1 \
		-c fsync=off -c max_connections=400 -c lock_timeout=2min -c idle_in_transaction_session_timeout=5min
}

postgres_answers() { psql -X -w -h "$work/postgres" -p "$1" -U postgres -d postgres -c 'select 1'; }

redis_data() { :; }

redis_server() {
	exec redis-server --port "$1" --bind 127.0.0.1 --unixsocket "$work/redis/socket" --dir "$work/redis" --save '' --appendonly no \
		--maxmemory-policy noeviction
}

redis_answers() { [ "$(redis-cli -s "$work/redis/socket" ping)" = PONG ]; }

mariadb_data() { as mysql mariadb-install-db --no-defaults --datadir="$work/mariadb/data" --tmpdir="$work/mariadb"; }

mariadb_server() {
	as mysql mariadbd --no-defaults --datadir="$work/mariadb/data" --tmpdir="$work/mariadb" --socket="$work/mariadb/socket" \
		--pid-file="$work/mariadb/pid" --port="$1" --bind-address=127.0.0.1 --skip-grant-tables --max-connections=300 --lock-wait-timeout=120 \
		--innodb-flush-log-at-trx-commit=2
}

mariadb_answers() { mariadb --no-defaults --socket="$work/mariadb/socket" -u root -e 'select 1' test; }

# programs installs what tests start.
programs() {
	local program
	[ -n "$(postgres_programs)" ] || installed initdb postgresql || return 1
	for program in redis-server mariadbd:mariadb-server pgbouncer promtool:prometheus nginx caddy 'gcc:gcc libc6-dev' python3 shellcheck curl node:nodejs npm; do
		# shellcheck disable=SC2086 # it may be two packages
		installed "${program%:*}" ${program#*:} || return 1
	done
	for program in kitservers/express sdks/node; do
		npm ci --prefix ".newest/$program" --no-audit --no-fund --loglevel error || return 1
	done
}

# start_servers starts what the environment does not name.
start_servers() {
	start postgres SALLYPORT_POSTGRES 'postgres://postgres@127.0.0.1:PORT/postgres?sslmode=disable' &&
		start redis SALLYPORT_REDIS redis://127.0.0.1:PORT/0 &&
		start mariadb SALLYPORT_MARIADB 'root@tcp(127.0.0.1:PORT)/test'
}

# stop_servers ends what this shell has started. Postgres and MariaDB take QUIT
# for at once, Redis heeds only TERM.
stop_servers() {
	local pids
	mapfile -t pids < <(jobs -pr)
	[ "${#pids[@]}" -gt 0 ] || return 0
	kill -QUIT "${pids[@]}" 2>/dev/null || true
	kill "${pids[@]}" 2>/dev/null || true
	wait 2>/dev/null
}
