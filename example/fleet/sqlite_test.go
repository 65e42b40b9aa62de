package main

import _ "modernc.org/sqlite" // so that tests have it without the tag
