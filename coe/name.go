package coe

import (
	"fmt"
	"strings"
	"unicode"
)

// MaxNamespace is the maximum length of the name of a namespace, as of a DNS label.
const MaxNamespace = 63

// CheckName rejects a name that is longer than most, and characters that would make the names of Netvirt objects
// ("namespace:pod-name") or of scopes in the status ambiguous.
func CheckName(name string, most int) error {
	switch {
	case len(name) > most:
		return fmt.Errorf("the value has %d characters; want at most %d", len(name), most)
	case strings.Contains(name, ":"):
		return fmt.Errorf("%q contains a colon, which separates the parts of interface names; choose another value", name)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%q contains a character that cannot be printed; choose another value", name)
	case strings.HasPrefix(name, "("):
		return fmt.Errorf("%q starts with a parenthesis, which is reserved for \"(cluster)\"; choose another value", name)
	}
	return nil
}
