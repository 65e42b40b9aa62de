package keyed

import (
	"slices"
	"strings"
)

// Streams returns a function that reports whether a Content-Type is of a media
// type whose responses are sent as they are flushed. more adds to the types.
func Streams(more []string) func(contentType string) bool {
	types := append([]string{"text/event-stream", "application/x-ndjson", "application/json-seq", "multipart/x-mixed-replace"}, more...)
	return func(contentType string) bool {
		mediaType, _, _ := strings.Cut(contentType, ";")
		mediaType = strings.TrimSpace(mediaType)
		return slices.ContainsFunc(types, func(t string) bool { return strings.EqualFold(t, mediaType) })
	}
}
