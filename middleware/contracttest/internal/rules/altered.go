package rules

import (
	"crypto/rand"
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
func sum(text string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	n := crc32.ChecksumIEEE([]byte(text))
	var b [6]byte
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = digits[n%62]
		n /= 62
	}
	return string(b[:])
}

// swapped exchanges the environment that a key names.
func swapped(key string) string {
	if other := strings.Replace(key, "_live_", "_test_", 1); other != key {
		return other
	}
	return strings.Replace(key, "_test_", "_live_", 1)
}
