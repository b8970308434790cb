package yang

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// shapes holds values of every JSON type, for every place.
var shapes = []any{
	nil, true, json.Number("0"), json.Number("7"), "", "x", []any{}, []any{nil}, map[string]any{}, []any{map[string]any{}}, []any{[]any{}},
}

// deep is nested far deeper than any schema.
var deep = func() any {
	var value any = map[string]any{}
	for range 100 {
		value = map[string]any{"x": []any{value}}
	}
	return value
}()

// edges returns values at the edges of a type, valid and invalid. value has the type.
func (t *valueType) edges(value any) []any {
	var out []any
	text, isString := value.(string)
	if number, ok := value.(json.Number); ok {
		text = number.String()
		out = append(out, text)
	}
	if isString && (t.written == asString && len(t.bounds) == 0 || t.kind == goyang.Ystring) {
		out = append(out, alike(text)...)
	}
	switch t.kind {
	case goyang.Ystring:
		for _, n := range lengths(t.bounds) {
			out = append(out, strings.Repeat("a", n), strings.Repeat("é", n))
		}
		out = append(out, texts(t.typedef, t.want)...)
	case goyang.Ybool:
		out = append(out, false, "true", "True", json.Number("1"))
	case goyang.Yempty:
		out = append(out, []any{nil, nil}, []any{nil}, []any{false}, "null")
	case goyang.Yenum:
		out = append(out, anys(slices.Sorted(maps.Keys(t.enums)))...)
	case goyang.Yidentityref:
		out = append(out, t.identityEdges()...)
	case goyang.Yunion:
		for _, member := range t.members {
			out = append(out, member.edges(value)...)
		}
	default:
		out = append(out, t.integerEdges()...)
	}
	if t.target != nil {
		out = append(out, "nothing-has-this", text+"x")
	}
	return out
}

// alike returns texts that differ little from another.
func alike(s string) []any {
	return anys([]string{
		strings.ToUpper(s), strings.ToLower(s), s + "x", "x" + s, "0" + s, s + s, s[:len(s)/2], s + "\n", "\n" + s, " " + s, s + " ",
		strings.Repeat(s, 40), strings.ReplaceAll(s, ":", "::"), strings.ReplaceAll(s, ".", ""), strings.ReplaceAll(s, "0", "00"),
		s + "é", "^" + s + "$", s + "|", s + "\u2028", s + "\x01", s + "\x00", s + "\uffff", s + "\U0001F600",
	})
}

func anys(values []string) []any {
	out := make([]any, len(values))
	for i, value := range values {
		out[i] = value
	}
	return out
}

// lengths returns the lengths at the ends of ranges, and one beyond.
func lengths(bounds goyang.YangRange) []int {
	var out []int
	for _, r := range bounds {
		for _, n := range []int{int(r.Min.Value) - 1, int(r.Min.Value), int(r.Max.Value), int(r.Max.Value) + 1} {
			if 0 <= n && n < 1000 {
				out = append(out, n)
			}
		}
	}
	return out
}

// integerEdges returns numbers at the ends of ranges and one beyond, as JSON numbers and as
// text, and numbers in other notations.
func (t *valueType) integerEdges() []any {
	written := []string{
		"-0", "1.0", "1.5", "1e1", "10e-1", "-1", "99999999999999999999", "18446744073709551615", "18446744073709551616", "1E400",
	}
	for _, r := range t.bounds {
		for _, n := range []goyang.Number{r.Min, r.Max} {
			written = append(written, n.String(), beside(n, false), beside(n, true))
		}
	}
	var out []any
	for _, one := range written {
		out = append(out, json.Number(one), one)
	}
	return append(out, anys([]string{"+5", "05", "0x1F", "0X1f", " 5", "5 ", "5x", "5é", "5\n", "--5", "+-5", "1_0", "0b1", "0o7", "0x", "٥"})...)
}

// beside returns the number before or after n.
func beside(n goyang.Number, after bool) string {
	if n.Negative == after { // towards zero
		if n.Value == 0 {
			return "-1"
		}
		n.Value--
		return n.String()
	}
	n.Value++
	if n.Value == 0 {
		return "18446744073709551616"
	}
	return n.String()
}

func (t *valueType) identityEdges() []any {
	out := []string{"none:none", ":", "iana-if-type:", ":l2vlan", "s:leaf-id", "base-id", "sample:base-id", "ianaift:l2vlan"}
	for _, canonical := range slices.Sorted(maps.Values(t.identities)) {
		module, name, _ := strings.Cut(canonical, ":")
		out = append(out, canonical, name, "pod:"+name, t.spaces[module].prefix+":"+name, canonical+":x", " "+canonical)
	}
	return anys(slices.Compact(out))
}

// texts returns values of well-known types, and invalid values that are similar.
func texts(typedef, want string) []any {
	switch {
	case strings.Contains(typedef, "ip"):
		return anys(addresses)
	case typedef == "uuid":
		return anys([]string{
			"AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C", "ac092d9be9ebbae2eed874aca2b7fa9c", "gc092d9b-e9eb-bae2-eed8-74aca2b7fa9c",
			"0c092d9b-e9eb-bae2-eed8-74aca2b7fa9c", "{ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c}", "ac092d9b-e9eb-bae2-eed8-74aca2b7fa9",
		})
	case typedef == "mac-address" || typedef == "phys-address" || typedef == "hex-string":
		return anys([]string{"0A:58:0a:0b:02:1C", "0a-58-0a-0b-02-1c", "0a:58:0a:0b:02", "0a:58:0a:0b:02:1c:1d", "0a", ":", "0a:", "a:b"})
	case strings.Contains(want, "date-and-time"):
		return anys([]string{
			"2026-11-21T07:00:00.5Z", "2026-11-21 07:00:00Z", "2026-11-21T07:00:00", "2026-11-21T07:00:00-00:00", "2026-11-21t07:00:00z",
			"2026-02-28T23:59:59.123456789+14:00", "2026-11-21T07:00:00.Z",
		})
	}
	return nil
}

var addresses = []string{
	"0.0.0.0", "255.255.255.255", "256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.04", "1.2.3.4%1", "1.2.3.4/0", "1.2.3.4/32",
	"1.2.3.4/33", "1.2.3.4/08", "1.2.3.4/", "10.1.2.3/8", "::", "::1", "0::1", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9",
	"1::2::3", "2001:DB8::1", "2001:db8:0:0:1:0:0:1", "12345::", "::ffff:1.2.3.4", "::1.2.3.4", "1:2:3:4:5:6:1.2.3.4", "::1.2.3.256",
	"fe80::1%eth0", "fe80::1%", "fe80::1%é", "fe80::1%e-0", "::/0", "2001:DB8::1/32", "::/128", "::/129", "fe80::%1/64", ":1", "1:",
	"::g", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8",
}
