package policy_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// TestTables compares the answers with truth tables: the recipes of the documentation of
// Kubernetes, and the cases that other networks get wrong. A line has who connects, to what, and
// the answer with the reason of both sides; a rule is its policy and its index. NAME@4 and NAME@6
// choose an address of a pod that has both families.
func TestTables(t *testing.T) {
	cluster, err := os.ReadFile("testdata/cluster.yaml")
	require.NoError(t, err)
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			table, err := txtar.ParseFile(file)
			require.NoError(t, err)
			require.Len(t, table.Files, 2)
			c := compile(t, string(cluster), string(table.Files[0].Data))
			for line := range strings.Lines(string(table.Files[1].Data)) {
				fields := strings.Fields(line)
				from, to, port := connection(t, c, fields[0], fields[1])
				require.Equal(t, strings.Join(fields[2:], " "), answerText(c.Judge(from, to, port)), line)
			}
		})
	}
}

func compile(t testing.TB, manifests ...string) *policy.Cluster {
	var set manifest.Set
	for _, text := range manifests {
		require.NoError(t, set.Read("manifest", strings.NewReader(text)))
	}
	require.Empty(t, set.Skipped)
	w, err := set.World()
	require.NoError(t, err)
	return policy.Compile(w)
}

// connection returns the connection that a line of a table names, to TARGET:PORT[/PROTOCOL].
func connection(t *testing.T, c *policy.Cluster, source, target string) (from, to policy.End, port policy.Port) {
	colon := strings.LastIndexByte(target, ':')
	number, protocol, _ := strings.Cut(target[colon+1:], "/")
	n, err := strconv.ParseUint(number, 10, 16)
	require.NoError(t, err)
	port = policy.Port{Protocol: cmp.Or(protocol, "tcp"), Number: uint16(n)}
	from, to = endOf(t, c, source), endOf(t, c, target[:colon])
	if !policy.SameFamily(from, to) {
		to = endOf(t, c, target[:colon]+"@6")
	}
	return from, to, port
}

// endOf returns the end that a table names.
func endOf(t *testing.T, c *policy.Cluster, text string) policy.End {
	namespace, name, isPod := strings.Cut(text, "/")
	if !isPod {
		ends := c.At(netip.MustParseAddr(text))
		require.Len(t, ends, 1)
		return ends[0]
	}
	name, family, _ := strings.Cut(name, "@")
	ends, found := c.Pod(namespace, name)
	require.True(t, found, text)
	for _, e := range ends {
		if e.Addr().Is4() == (family != "6") {
			return e
		}
	}
	t.Fatalf("%s has no such address", text)
	return policy.End{}
}

func answerText(v policy.Verdict) string {
	text := "denied"
	if v.Allowed {
		text = "allowed"
	}
	return fmt.Sprintf("%s egress: %s ingress: %s", text, sideText(v.Egress), sideText(v.Ingress))
}

func sideText(s policy.Side) string {
	if s.Reason == policy.ByRule {
		return fmt.Sprintf("%s/%s %d", s.Policy.Namespace, s.Policy.Name, s.Rule)
	}
	return string(s.Reason)
}
