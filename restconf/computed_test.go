package restconf

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// computedLists computes one access list, whose name says what it was asked for. Names that begin
// with "computed" are reserved.
type computedLists struct{}

func (computedLists) Get(_ context.Context, asked tree.Asked) (*yang.Data, error) {
	name := map[tree.Content]string{tree.ContentConfig: "computed wanted", tree.ContentOperational: "computed confirmed"}[asked.Content]
	return yang.DecodeObject([]byte(`{"acl":[`+accessList(name)+`]}`), asked.Top)
}

func accessList(name string) string {
	return fmt.Sprintf(`{"acl-type":"ietf-access-control-list:ipv4-acl","acl-name":%q}`, name)
}

func newComputedBed(t *testing.T) *bed {
	return newBed(t, func(c *Config) {
		c.Computed = map[string]tree.Computed{"ietf-access-control-list:access-lists/acl": {
			Source: computedLists{}, Says: "they are computed",
			Reserved: func(key []string) bool { return strings.HasPrefix(key[1], "computed ") },
		}}
	})
}

const (
	computedDraft = "/restconf/%s/ietf-access-control-list:access-lists"
	computedRFC   = "/rests/data/ietf-access-control-list:access-lists"
	ipv4List      = "/acl=ietf-access-control-list:ipv4-acl,"
)

func TestComputedEntriesAreShown(t *testing.T) {
	b := newComputedBed(t)
	config, operational := fmt.Sprintf(computedDraft, "config"), fmt.Sprintf(computedDraft, "operational")
	shows := func(path string, names ...string) {
		t.Helper()
		got := b.do("GET", path, "")
		require.Equal(t, 200, got.status, got.body)
		require.NotContains(t, got.body, "null")
		for _, name := range []string{"computed wanted", "computed confirmed", "own"} {
			require.Equal(t, slices.Contains(names, name), strings.Contains(got.body, `"acl-name":"`+name+`"`), "%s in %s", name, got.body)
		}
	}
	shows(config, "computed wanted")
	shows(operational, "computed confirmed")
	require.Equal(t, 201, b.do("PUT", computedRFC+ipv4List+"own", `{"ietf-access-control-list:acl":[`+accessList("own")+`]}`).status)
	shows(config, "computed wanted", "own")
	shows(operational, "computed confirmed", "own")
	shows(computedRFC, "computed wanted", "own")
	shows(computedRFC+"?content=config", "computed wanted", "own")
	shows("/rests/data", "computed wanted", "own")
	shows(computedRFC+ipv4List+"computed%20wanted", "computed wanted")
	require.Equal(t, 404, b.do("GET", computedRFC+ipv4List+"computed%20confirmed", "").status)
	shows(computedRFC+ipv4List+"own", "own")
}

func TestComputedEntriesAreNotWritten(t *testing.T) {
	b := newComputedBed(t)
	require.Equal(t, 201, b.do("PUT", computedRFC+ipv4List+"own", `{"ietf-access-control-list:acl":[`+accessList("own")+`]}`).status)
	reserved, at := accessList("computed wanted"), computedRFC+ipv4List+"computed%20wanted"
	for _, c := range []struct{ method, path, body string }{
		{"PUT", at, `{"ietf-access-control-list:acl":[` + reserved + `]}`},
		{"PATCH", at, `{"ietf-access-control-list:acl":[` + reserved + `]}`},
		{"DELETE", at, ""},
		{"DELETE", at + "/access-list-entries", ""},
		{"POST", computedRFC, `{"ietf-access-control-list:acl":[` + accessList("refused") + `,` + reserved + `]}`},
		{"PUT", computedRFC, `{"ietf-access-control-list:access-lists":{"acl":[` + reserved + `]}}`},
		{"PATCH", computedRFC, `{"ietf-access-control-list:access-lists":{"acl":[` + reserved + `]}}`},
		{"POST", computedRFC, `{"ietf-access-control-list:acl":[` + accessList("computed too") + `]}`},
	} {
		got := b.do(c.method, c.path, c.body)
		require.Equal(t, 409, got.status, "%s %s: %s", c.method, c.path, got.body)
		require.Contains(t, got.body, "they are computed")
	}
	require.NotContains(t, b.do("GET", computedRFC, "").body, "refused", "of a refused request nothing is written")
	require.Equal(t, 204, b.do("DELETE", computedRFC, "").status)
	left := b.do("GET", computedRFC, "")
	require.NotContains(t, left.body, `"own"`)
	require.Contains(t, left.body, "computed wanted")
	require.Equal(t, 404, b.do("DELETE", computedRFC, "").status, "clients have written nothing of it")
}

// The version of a resource is for its writers, so a computed entry does not change it; and no
// answer with a computed entry is "not modified".
func TestComputedEntriesHaveNoVersion(t *testing.T) {
	b := newComputedBed(t)
	got := b.do("GET", computedRFC, "")
	require.Equal(t, 200, got.status)
	again := b.do("GET", computedRFC, "", header("If-None-Match", got.header.Get("ETag")))
	require.Equal(t, 200, again.status)
}

func TestComputedListsAreKnown(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	for name, message := range map[string]string{
		"pod:coe/nobody": "no node",
		"pod:coe":        "/pod:coe cannot have computed entries",
		"k8s:k8s/network-policies/network-policy": "cannot have computed entries",
	} {
		_, err := New(Config{Config: tree.Config{Schema: schema, Computed: map[string]tree.Computed{name: {}}}, Auth: FixedUsers{}})
		require.ErrorContains(t, err, message, name)
	}
}
