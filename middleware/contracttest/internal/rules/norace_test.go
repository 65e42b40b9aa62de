//go:build !race

package rules_test

// stride is how many defects there are to each one that is planted.
const stride = 1
