# What test and the scripts in bash share; they source it in the top folder.

# modules prints the folders with a go.mod. The root's stands first, and its ./... leaves out the others.
modules() { find . -name node_modules -prune -o -name go.mod -print | sed 's#/go.mod$##' | LC_ALL=C sort; }

# packages prints those of the module here. The dots of go leave out hidden
# folders: the packages of .ci go with .dbtest, which has all drivers.
packages() {
	echo ./...
	if [ -d ../.ci ] && grep -q '^module github.com/sallyport-go/sallyport/dbtest$' go.mod; then
		(cd .. && find .ci -name '*.go' | sed 's#^#github.com/sallyport-go/sallyport/#; s#/[^/]*$##' | sort -u)
	fi
}

# tested runs tests here, shows a line for each package and what fails, and keeps
# the events of go test in the folder $log.
tested() { # arguments of go test
	mkdir -p "${log:?}"
	go run gotest.tools/gotestsum@v1.13.0 --format pkgname --hide-summary skipped --jsonfile "$(mktemp "$log/XXXXXX")" -- "$@"
}
