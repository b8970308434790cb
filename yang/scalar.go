package yang

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// form is the form in which a value is written.
type form uint8

const (
	asText   form = iota // outside of JSON, or in lenient JSON: the value may have any type
	asString             // a JSON string
	asNumber             // a JSON number
	asBool               // true or false
	asEmpty              // [null]
)

// scalar is a value as it was written.
type scalar struct {
	text string
	form form
}

// canonical returns the canonical form of a value of type t; ok is false if the value is
// invalid.
func (t *valueType) canonical(s scalar) (value string, ok bool) {
	if t.kind == goyang.Yunion {
		return t.anyMember(s)
	}
	if s.form != asText && s.form != t.written {
		return "", false
	}
	switch t.kind {
	case goyang.Ystring:
		return t.canonicalString(s.text)
	case goyang.Ybool:
		return s.text, s.text == "true" || s.text == "false"
	case goyang.Yempty:
		return "", s.text == ""
	case goyang.Yenum:
		return s.text, t.enums[s.text]
	case goyang.Yidentityref:
		return t.canonicalIdentity(s)
	default:
		return t.canonicalInteger(s)
	}
}

func (t *valueType) anyMember(s scalar) (string, bool) {
	for _, member := range t.members {
		if value, ok := member.canonical(s); ok {
			return value, true
		}
	}
	return "", false
}

func (t *valueType) canonicalString(text string) (string, bool) {
	canonical, ok := text, false
	if t.known != nil {
		canonical, ok = t.known(text)
	} else {
		ok = isYANGString(text)
	}
	if !ok || !t.hasLength(text) {
		return "", false
	}
	for _, pattern := range t.patterns {
		if !pattern.MatchString(text) {
			return "", false
		}
	}
	return canonical, true
}

func (t *valueType) hasLength(text string) bool {
	return len(t.bounds) == 0 || within(t.bounds, goyang.FromUint(uint64(utf8.RuneCountInString(text))))
}

func (t *valueType) canonicalIdentity(s scalar) (string, bool) {
	if canonical, ok := t.identities[s.text]; ok {
		return canonical, true
	}
	if s.form != asText {
		return "", false
	}
	canonical := t.loose[s.text]
	return canonical, canonical != ""
}

// canonicalInteger ignores white space around text, like libyang: people indent XML.
func (t *valueType) canonicalInteger(s scalar) (string, bool) {
	text := strings.Trim(s.text, " \t\r\n")
	number, ok := parseInteger(text, s.form != asNumber)
	if !ok || !within(t.bounds, number) {
		return "", false
	}
	if number.Value == 0 {
		return "0", true
	}
	if '1' <= text[0] && text[0] <= '9' {
		return text, true
	}
	return number.String(), true
}

// parseInteger parses an integer as in JSON or, if lexical is set, as in RFC 7950 section
// 9.2.1, with a sign. It does not accept hexadecimal and octal numbers, which are only for
// defaults in modules.
func parseInteger(text string, lexical bool) (goyang.Number, bool) {
	digits, negative := strings.CutPrefix(text, "-")
	if !negative && lexical {
		digits = strings.TrimPrefix(text, "+")
	}
	value, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return goyang.Number{}, false
	}
	return goyang.Number{Value: value, Negative: negative && value != 0}, true
}

func within(bounds goyang.YangRange, number goyang.Number) bool {
	return slices.ContainsFunc(bounds, func(r goyang.YRange) bool { return !number.Less(r.Min) && !r.Max.Less(number) })
}

// isYANGString reports whether text has only characters of YANG's string (RFC 7950 section
// 9.4): no control characters except tab and line ends, and no noncharacters.
func isYANGString(text string) bool {
	for i := 0; i < len(text); i++ {
		if c := text[i]; c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		} else if c >= utf8.RuneSelf {
			return isYANGRunes(text[i:])
		}
	}
	return true
}

func isYANGRunes(text string) bool {
	for _, r := range text {
		switch {
		case r < ' ' && r != '\t' && r != '\n' && r != '\r':
			return false
		case r&0xfffe == 0xfffe, 0xfdd0 <= r && r <= 0xfdef:
			return false
		}
	}
	return utf8.ValidString(text)
}

// shown returns the value as in messages.
func (s scalar) shown() string {
	if s.form == asString || s.form == asText {
		return quote(s.text)
	}
	return s.text[:min(len(s.text), maxQuoted)]
}
