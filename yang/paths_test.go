package yang

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pathsOf returns the error-paths of errors.
func pathsOf(t *testing.T, err error) []string {
	t.Helper()
	var errs Errors
	require.ErrorAs(t, err, &errs)
	var out []string
	for _, one := range errs {
		out = append(out, one.Path)
	}
	return out
}

// TestPathsNameEntries: an error-path names an entry by its keys, or by its position (RFC 7950
// section 9.13) if a key is missing, invalid or as long as a body.
func TestPathsNameEntries(t *testing.T) {
	schema := sample(t)
	long := strings.Repeat("n", maxKeys+1)
	for _, test := range []struct{ name, in, body, path string }{
		{"keys", "/sample:wants", `{"pair":[{"a":"x","b":1,"values":[1]}]}`, "/sample:wants/pair[a='x'][b='1']/values"},
		{"a wrong key", "/sample:wants", `{"pair":[{"a":"x","b":1},{"a":"x","b":"y"}]}`, "/sample:wants/pair[2]/b"},
		{"no keys in the schema", "", `{"sample:state":{"entry":[{"value":"v"},{"value":1}]}}`, "/sample:state/entry[2]/value"},
		{"a long key", "/sample:wants", `{"server":[{"name":"a"},{"name":"` + long + `","port":70000}]}`, "/sample:wants/server[2]/port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := decodeIn(t, schema, test.in, test.body, Strict)
			require.Equal(t, []string{test.path}, pathsOf(t, err))
		})
	}
	d := decoded(t, schema, "", `{"sample:wants":{"name":"n","implied":{"deeper":{"must-be":"x"}},"rail":"x",`+
		`"server":[{"name":"a"},{"name":"`+long+`","peer":"b"}]}}`)[0]
	err := schema.Validate(d, "", func(*Node, string) bool { return false })
	require.Equal(t, []string{"/sample:wants/server[2]/peer"}, pathsOf(t, err))
}

// TestValidateMakesNoPathsOfValidData checks that a long key costs no memory for the valid
// data below it.
func TestValidateMakesNoPathsOfValidData(t *testing.T) {
	schema := load(t)
	var pools strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&pools, `{"subnet":"10.%d.%d.0/24"},`, i/256, i%256)
	}
	body := `{"network":[{"network-id":"` + strings.Repeat("n", 1<<20) + `","allocation-pool":[` + strings.TrimSuffix(pools.String(), ",") + `]}]}`
	const in = "/dhcp_allocation_pool:dhcp_allocation_pool"
	got := decoded(t, schema, in, body)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, schema.Validate(got[0], in, nil))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}
