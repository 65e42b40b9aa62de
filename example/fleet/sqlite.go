//go:build sqlite

package main

import _ "modernc.org/sqlite" // the driver "sqlite", which takes long to compile for the first time
