package rules

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"maps"
	"strings"
)

// altered returns keys that are close to a live one, by what was done to it.
func altered(key string) map[string]string {
	if key == "" {
		return nil
	}
	random := secretPart(key)
	prefix := strings.TrimSuffix(key, random)
	middle := len(random) / 2
	keys := map[string]string{
		"another last byte":            flipLast(key),
		"another first byte":           prefix + flip(random[0]) + random[1:],
		"another byte in the middle":   prefix + random[:middle] + flip(random[middle]) + random[middle+1:],
		"its last byte missing":        key[:len(key)-1],
		"its last two bytes missing":   key[:len(key)-2],
		"its second half missing":      prefix + random[:middle],
		"a byte too many":              key + "0",
		"a second key behind it":       key + key,
		"its random part twice":        key + random,
		"another random part":          another(key),
		"capitals":                     strings.ToUpper(key),
		"small letters":                strings.ToLower(key),
		"a random part in capitals":    prefix + strings.ToUpper(random),
		"another environment":          swapped(key),
		"another prefix":               "x" + key,
		"its prefix missing":           random,
		"the letter case of one other": flipCase(key, prefix),
		"its second half another":      prefix + random[:middle] + secretPart(another(key))[middle:],
		"two bytes exchanged":          exchanged(key, prefix),
		"the same hash in Java":        sameHash(key, prefix),
		"dashes for underscores":       strings.ReplaceAll(key, "_", "-"),
		"its hash in its place":        fmt.Sprintf("%x", sha256.Sum256([]byte(key))),
		"its base64 in its place":      base64.StdEncoding.EncodeToString([]byte(key)),
	}
	maps.DeleteFunc(keys, func(_, other string) bool { return other == key || other == "" })
	return keys
}

// flip returns another letter or digit.
func flip(c byte) string {
	if c == 'a' {
		return "b"
	}
	return "a"
}

func flipLast(key string) string { return key[:len(key)-1] + flip(key[len(key)-1]) }

func flipCase(key, prefix string) string {
	for i := len(key) - 1; i >= len(prefix); i-- {
		c := key[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return key[:i] + string(c^0x20) + key[i+1:]
		}
	}
	return ""
}

// exchanged exchanges two neighbours.
func exchanged(key, prefix string) string {
	for i := len(prefix) + 1; i < len(key); i++ {
		if key[i-1] != key[i] {
			return key[:i-1] + string(key[i]) + string(key[i-1]) + key[i+1:]
		}
	}
	return ""
}

// sameHash returns a key with the same sum of 31*h + c, as Java's hashCode has.
func sameHash(key, prefix string) string {
	for i := len(prefix) + 1; i < len(key); i++ {
		if c := key[i]; c >= 'a' && c < 'z' && !strings.ContainsRune("9Zz", rune(key[i-1])) {
			return key[:i-1] + string(key[i-1]+1) + string(key[i]-31) + key[i+1:]
		}
	}
	return ""
}

// another returns a key of the same shape that nobody issued. Where a key ends
// in a checksum of what stands before, so does this one: a server that checks
// no more than that accepts it.
func another(key string) string {
	random := secretPart(key)
	prefix := strings.TrimSuffix(key, random)
	var b strings.Builder
	for b.Len() < len(random) {
		b.WriteString(rand.Text())
	}
	other := prefix + b.String()[:len(random)]
	const checksum = 6
	if len(random) > checksum && sum(key[:len(key)-checksum]) == key[len(key)-checksum:] {
		other = other[:len(other)-checksum]
		other += sum(other)
	}
	return other
}

// sum is a CRC-32 as six digits of base 62.
func sum(text string) (sum string) {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	n := crc32.ChecksumIEEE([]byte(text))
	for range 6 {
		sum, n = digits[n%62:n%62+1]+sum, n/62
	}
	return sum
}

// swapped exchanges the environment that a key names.
func swapped(key string) string {
	if other := strings.Replace(key, "_live_", "_test_", 1); other != key {
		return other
	}
	return strings.Replace(key, "_test_", "_live_", 1)
}
