package yang

import (
	"fmt"
	"regexp"
	"strings"
)

// compilePattern compiles a pattern statement, which is a regular expression of XML Schema. It
// must match the whole value, "^" and "$" are ordinary characters, and "." matches no line
// ends. It refuses a pattern that Go cannot express.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	translated, err := translatePattern(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	compiled, err := regexp.Compile("^(?:" + translated + ")$")
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return compiled, nil
}

func translatePattern(pattern string) (string, error) {
	var out strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern):
			i++
			escape, err := translateEscape(pattern[i])
			if err != nil {
				return "", err
			}
			out.WriteString(escape)
		case inClass && c == '[':
			return "", fmt.Errorf("subtraction of character classes is not supported")
		case inClass:
			inClass = c != ']'
			out.WriteByte(c)
		case c == '[':
			inClass = true
			out.WriteByte(c)
		case c == '^' || c == '$':
			out.WriteString(`\` + string(c))
		case c == '.':
			out.WriteString(`[^\n\r]`)
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), nil
}

// translateEscape translates the escape of the character c.
func translateEscape(c byte) (string, error) {
	switch c {
	case 'd':
		return `\p{Nd}`, nil
	case 'D':
		return `\P{Nd}`, nil
	case 's', 'S', 'w', 'W', 'i', 'I', 'c', 'C':
		return "", fmt.Errorf(`\%c is not supported`, c)
	}
	return `\` + string(c), nil
}
