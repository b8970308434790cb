package codec

import (
	"iter"
	"net/url"
	"strings"
)

// Mark is the first word of the description of every entry of ours that has one.
const Mark = "coe-bridge"

// maxDescription is the maximum length of a description in module elan ("string 1..254").
// Descriptions in l3vpn may be longer.
const maxDescription = 254

// word is a name and a value in a description, for data that Netvirt has no leaf for.
type word struct{ name, value string }

// describe returns a description: the mark, and words with any text as value.
func describe(words ...word) string {
	var out strings.Builder
	out.WriteString(Mark)
	for _, w := range words {
		out.WriteString(" " + w.name + "=" + url.PathEscape(w.value))
	}
	return out.String()
}

// marked reports whether a description begins with our mark.
func marked(description string) bool {
	return description == Mark || strings.HasPrefix(description, Mark+" ")
}

// words returns the words of a description; none if it does not have our mark.
func words(description string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		if !marked(description) {
			return
		}
		for text := range strings.FieldsSeq(description[len(Mark):]) {
			name, value, _ := strings.Cut(text, "=")
			if value, err := url.PathUnescape(value); err == nil && !yield(name, value) {
				return
			}
		}
	}
}

// find returns the value of the first word with a name in a description.
func find(description, name string) (value string, ok bool) {
	for n, value := range words(description) {
		if n == name {
			return value, true
		}
	}
	return "", false
}
