package yang

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTypes decodes values as strict JSON: for each leaf of sample:types, the accepted values
// with their canonical form, and the refused values.
func TestTypes(t *testing.T) {
	schema := sample(t)
	types := find(t, schema, "sample:types")
	for _, test := range []struct {
		leaf   string
		takes  map[string]string
		refuse []string
	}{
		{"string", map[string]string{`""`: "", `"a\tb\n"`: "a\tb\n", `"\u00e9\ud83d\ude00"`: "é😀", `" x "`: " x "},
			[]string{`1`, `true`, `null`, `[null]`, `{}`, `"\u0000"`, `"\u001f"`, `"\uffff"`, `"é\u0001"`, `"\ufdd0"`}},
		{"short", map[string]string{`"abcd"`: "abcd", `"abcdefgh"`: "abcdefgh"},
			[]string{`""`, `"abcde"`, `"abcz"`, `"Abcd"`, `"abcdefghi"`}},
		{"int8", map[string]string{`-128`: "-128", `127`: "127", `-0`: "0", `0`: "0"},
			[]string{`128`, `-129`, `"5"`, `1.0`, `1e1`, `true`, `null`}},
		{"int16", map[string]string{`-5`: "-5", `10`: "10", `32767`: "32767"}, []string{`0`, `9`, `-6`, `32768`}},
		{"int32", map[string]string{`-2147483648`: "-2147483648"}, []string{`2147483648`}},
		{"int64", map[string]string{`"-9223372036854775808"`: "-9223372036854775808", `"+5"`: "5", `" 5\n"`: "5"},
			[]string{`5`, `"9223372036854775808"`, `"x"`, `""`}},
		{"uint8", map[string]string{`255`: "255"}, []string{`256`, `-1`, `99999999999999999999999`}},
		{"uint16", map[string]string{`65535`: "65535"}, []string{`65536`}},
		{"uint32", map[string]string{`4294967295`: "4294967295"}, []string{`4294967296`}},
		{"uint64", map[string]string{`"18446744073709551615"`: "18446744073709551615"},
			[]string{`18446744073709551615`, `"18446744073709551616"`, `"-1"`}},
		{"boolean", map[string]string{`true`: "true", `false`: "false"}, []string{`"true"`, `1`, `null`}},
		{"empty", map[string]string{`[null]`: "", `[ null ]`: ""}, []string{`null`, `[]`, `[null,null]`, `""`, `true`, `{}`}},
		{"enum", map[string]string{`"one"`: "one"}, []string{`"ONE"`, `""`, `1`, `"three"`}},
		{"identity", map[string]string{`"leaf-id"`: "sample:leaf-id", `"sample:middle"`: "sample:middle"},
			[]string{`"base-id"`, `"s:middle"`, `"iana-if-type:l2vlan"`, `""`, `"own-type"`}},
		{"interface-type", map[string]string{`"iana-if-type:l2vlan"`: "iana-if-type:l2vlan", `"own-type"`: "sample:own-type"},
			[]string{`"l2vlan"`, `"interface-type"`}},
		{"address", map[string]string{`"10.0.0.1"`: "10.0.0.1", `"2001:DB8::0:1"`: "2001:db8::1", `"::ffff:1.2.3.4"`: "::ffff:1.2.3.4",
			`"fe80::1%eth0"`: "fe80::1%eth0", `"1:2:3:4:5:6:7:8"`: "1:2:3:4:5:6:7:8"},
			[]string{`"300.1.2.3"`, `"10.0.0.01"`, `"10.0.0"`, `""`, `"::1%"`, `"::1%e-0"`, `"10.0.0.1%1"`, `":1"`, `"1::2::3"`,
				`"10.0.0.1/8"`, `" 10.0.0.1"`, `1`, `"12345::"`}},
		{"ipv4", map[string]string{`"0.0.0.0"`: "0.0.0.0"}, []string{`"::1"`, `"256.0.0.1"`}},
		{"ipv6", map[string]string{`"::"`: "::", `"0:0:0:0:0:0:0:1"`: "::1"}, []string{`"1.2.3.4"`}},
		{"ipv6-no-zone", map[string]string{`"FE80::1"`: "fe80::1"}, []string{`"fe80::1%1"`}},
		{"prefix", map[string]string{`"10.1.2.3/8"`: "10.0.0.0/8", `"2001:DB8::1/32"`: "2001:db8::/32", `"0.0.0.0/0"`: "0.0.0.0/0"},
			[]string{`"10.0.0.0"`, `"10.0.0.0/33"`, `"::/129"`, `"10.0.0.0/08"`, `""`, `"fe80::%1/64"`}},
		{"domain", map[string]string{`"a.example"`: "a.example", `"."`: "."}, []string{`""`, `"-a"`, `"` + strings.Repeat("a", 64) + `"`}},
		{"uuid", map[string]string{`"AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C"`: "ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c"},
			[]string{`""`, `"x"`, `"ac092d9b-e9eb-bae2-eed8-74aca2b7fa9"`, `"ac092d9bxe9eb-bae2-eed8-74aca2b7fa9c"`, `"gc092d9b-e9eb-bae2-eed8-74aca2b7fa9c"`}},
		{"zero-uuid", map[string]string{`"0C092D9B-E9EB-BAE2-EED8-74ACA2B7FA9C"`: "0c092d9b-e9eb-bae2-eed8-74aca2b7fa9c"},
			[]string{`"1c092d9b-e9eb-bae2-eed8-74aca2b7fa9c"`, `"0"`}},
		{"mac", map[string]string{`"0A:58:0a:0b:02:1C"`: "0a:58:0a:0b:02:1c"}, []string{`""`, `"0a:58"`, `"0a-58-0a-0b-02-1c"`, `"0a:58:0a:0b:02:1"`}},
		{"phys", map[string]string{`""`: "", `"0A"`: "0a", `"0A:0b"`: "0a:0b"}, []string{`"0"`, `"0a:"`, `"0a0b"`, `":"`}},
		{"time", map[string]string{`"2026-11-21T07:00:00.5Z"`: "2026-11-21T07:00:00.5Z", `"2026-11-21T07:00:00+01:00"`: "2026-11-21T07:00:00+01:00"},
			[]string{`"2026-11-21 07:00:00Z"`, `"2026-11-21T07:00:00"`}},
		{"caret", map[string]string{`"^12$"`: "^12$", `"axb"`: "axb"}, []string{`"12"`, `"a\nb"`, `"axbc"`}},
		{"union", map[string]string{`"any"`: "any", `"10.1.1.1/8"`: "10.0.0.0/8", `"AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C"`: "ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c"},
			[]string{`"none"`, `""`, `1`}},
		{"counter-ref", map[string]string{`7`: "7"}, []string{`256`, `"7"`}},
	} {
		t.Run(test.leaf, func(t *testing.T) {
			for value, want := range test.takes {
				got, err := schema.DecodeJSON([]byte(`{"`+test.leaf+`":`+value+`}`), types, "/sample:types", Strict)
				require.NoError(t, err, value)
				require.Equal(t, want, got[0].Value, value)
			}
			for _, value := range test.refuse {
				_, err := schema.DecodeJSON([]byte(`{"`+test.leaf+`":`+value+`}`), types, "/sample:types", Strict)
				var errs Errors
				require.ErrorAs(t, err, &errs, value)
				require.Equal(t, "invalid-value", errs[0].Tag, value)
				require.Equal(t, "/sample:types/"+test.leaf, errs[0].Path, value)
				require.Contains(t, errs[0].Message, test.leaf+": ", value)
				require.Contains(t, errs[0].Message, ": want ", value)
			}
		})
	}
}

// TestCanonical decodes values as text, as in a URL or a lenient body.
func TestCanonical(t *testing.T) {
	schema := sample(t)
	types := find(t, schema, "sample:types")
	for _, test := range []struct{ leaf, value, want string }{
		{"uint32", "70000", "70000"},
		{"uint32", "+7", "7"},
		{"uint32", "010", "10"},
		{"uint32", " 7\n", "7"},
		{"int16", "-05", "-5"},
		{"uint64", "18446744073709551615", "18446744073709551615"},
		{"boolean", "true", "true"},
		{"identity", "leaf-id", "sample:leaf-id"},
		{"interface-type", "l2vlan", "iana-if-type:l2vlan"},
		{"uuid", "AC092D9B-E9EB-BAE2-EED8-74ACA2B7FA9C", "ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c"},
		{"prefix", "10.1.1.1/24", "10.1.1.0/24"},
		{"ids", "7", "7"},
	} {
		got, err := types.Child("", test.leaf).Canonical(test.value)
		require.NoError(t, err, test)
		require.Equal(t, test.want, got, test)
	}
	for _, test := range []struct{ leaf, value, message string }{
		{"uint32", "five", `uint32: "five" is not a valid value: want an integer in 0..4294967295`},
		{"uint32", "0x1F", `uint32: "0x1F" is not a valid value: want an integer in 0..4294967295`},
		{"uint32", "1_0", `uint32: "1_0" is not a valid value: want an integer in 0..4294967295`},
		{"uint32", "0x", `uint32: "0x" is not a valid value: want an integer in 0..4294967295`},
		{"uint32", "--1", `uint32: "--1" is not a valid value: want an integer in 0..4294967295`},
		{"address", "300.1.2.3", `address: "300.1.2.3" is not a valid value: want an IPv4 or IPv6 address`},
		{"enum", "three", `enum: "three" is not a valid value: want one or two`},
		{"string", "x" + strings.Repeat("é", 40) + "\x00", `string: "x` + strings.Repeat("é", 31) + `"… is not a valid value: want a string`},
	} {
		_, err := types.Child("", test.leaf).Canonical(test.value)
		var one *Error
		require.ErrorAs(t, err, &one, test)
		require.Equal(t, "invalid-value", one.Tag)
		require.Equal(t, test.message, one.Message)
	}
	_, err := types.Canonical("x")
	require.ErrorContains(t, err, "types is not a leaf")
}

// TestKnownTypesAreTheirPatterns compares the Go code of known types with their patterns: it
// accepts only values that the patterns match.
func TestKnownTypesAreTheirPatterns(t *testing.T) {
	for name, typedef := range typedefs(t) {
		known, ok := knownTypes[name]
		if !ok {
			continue
		}
		require.Len(t, typedef, known.patterns, name)
		for _, value := range append(addressSeeds, "", "0a", "0a:58:0a:0b:02:1c", "ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c") {
			requireWithinPatterns(t, name, value)
		}
	}
}

func FuzzKnownTypes(f *testing.F) {
	for _, seed := range addressSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for name := range knownTypes {
			requireWithinPatterns(t, name, value)
		}
	})
}

var addressSeeds = []string{
	"10.0.0.1", "::", "::1", "1:2:3:4:5:6:7:8", "1::8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "::ffff:1.2.3.4",
	"1:2:3:4:5:6:1.2.3.4", "fe80::1%eth0", "64:ff9b::192.0.2.33", "10.0.0.0/8", "::/0", "1:2:3:4:5:6:7::/128", "fe80::%é",
}
