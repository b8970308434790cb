package odl

import (
	"net/url"
	"strings"
)

// mark is the first word of the description of every entry of ours that has one.
const mark = "coe-bridge"

// maxDescription is the longest description that elan takes ("string 1..254"); l3vpn's may
// be as long as what is written there needs.
const maxDescription = 254

// word is what a description of ours says beyond the mark, for what Netvirt has no leaf for.
type word struct{ name, value string }

// describe writes a description: the mark, and words with a value, which may hold any text.
func describe(words ...word) string {
	var out strings.Builder
	out.WriteString(mark)
	for _, w := range words {
		out.WriteString(" " + w.name + "=" + url.PathEscape(w.value))
	}
	return out.String()
}

// marked tells whether a description is one of ours.
func marked(description string) bool {
	return description == mark || strings.HasPrefix(description, mark+" ")
}

// said reads what a description of ours says; nothing of one that is not.
func said(description string) []word {
	if !marked(description) {
		return nil
	}
	var words []word
	for text := range strings.FieldsSeq(description[len(mark):]) {
		name, value, _ := strings.Cut(text, "=")
		if value, err := url.PathUnescape(value); err == nil {
			words = append(words, word{name, value})
		}
	}
	return words
}

// find returns the value of the first word of a name.
func find(words []word, name string) (value string, ok bool) {
	for _, w := range words {
		if w.name == name {
			return w.value, true
		}
	}
	return "", false
}
