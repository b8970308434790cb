package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

// exchange is a request to OpenDaylight Oxygen with its own COE renderer, and the answer.
type exchange struct {
	Name   string          `json:"name"` // phase/number-what
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body"`
	Status int             `json:"status"`
	Answer json.RawMessage `json:"answer"`
}

// mappedTrees are the trees that Oxygen renders pods into.
var mappedTrees = []string{
	"elan:elan-instances", "elan:elan-interfaces", "l3vpn:vpn-instances", "l3vpn:vpn-interfaces", "ietf-interfaces:interfaces",
}

// TestMappingAsOxygen sends the requests of a recording of a real OpenDaylight to a bridge. It compares
// the resulting trees with the recorded ones, leaf by leaf. Only the differences in the table are
// allowed, and each of them must occur.
func TestMappingAsOxygen(t *testing.T) {
	t.Parallel()
	b := bridgetest.Start(t)
	o := &oracle{t: t, rest: rest{b.Client()}, pods: map[string]string{}, used: map[int]bool{}}
	phase := ""
	for _, x := range readExchanges(t, "testdata/oxygen-mapping.jsonl") {
		before := phase
		phase, _, _ = strings.Cut(x.Name, "/")
		if phase != before && strings.HasSuffix(phase, "after-restart") {
			b.Restart()
			o.rest = rest{b.Client()}
		}
		if x.Method != http.MethodGet {
			o.change(x)
		} else if tree, isConfig := strings.CutPrefix(x.Path, "/restconf/config/"); isConfig && slices.Contains(mappedTrees, tree) {
			o.compare(x, tree)
		}
	}
	for i, d := range differences {
		require.True(t, o.used[i], "this difference never occurs: remove it: %+v", d)
	}
}

func readExchanges(t *testing.T, file string) (all []exchange) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var x exchange
		require.NoError(t, json.Unmarshal(lines.Bytes(), &x))
		all = append(all, x)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, all)
	return all
}

// oracle compares a bridge with the answers of Oxygen.
type oracle struct {
	t    *testing.T
	rest rest
	pods map[string]string // addresses of pods that have a node and an address
	used map[int]bool      // the differences that occurred
}

// change sends a request of the recording, and waits until the bridge has processed it.
func (o *oracle) change(x exchange) {
	o.t.Helper()
	status, answer, err := o.rest.do(o.t.Context(), x.Method, strings.TrimPrefix(x.Path, "/restconf/"), string(x.Body))
	require.NoError(o.t, err)
	require.Equal(o.t, x.Status, status, "%s: %s", x.Name, answer)
	o.note(x)
	await(o.t, converge, x.Name+" followed", func() error {
		got := map[string]string{}
		for uid, l := range o.rest.living(o.t) {
			got[uid] = l.Addresses[0].String()
		}
		if !maps.Equal(o.pods, got) {
			return fmt.Errorf("want %v, got %v", o.pods, got)
		}
		return nil
	})
	o.rest.awaitSync(o.t, converge)
}

func (o *oracle) note(x exchange) {
	if x.Method == http.MethodDelete {
		delete(o.pods, x.Path[strings.LastIndexByte(x.Path, '/')+1:])
		return
	}
	var body struct {
		Pods []struct {
			UID        string `json:"uid"`
			Node       string `json:"host-ip-address"`
			Interfaces []struct {
				Address string `json:"ip-address"`
			} `json:"interface"`
		} `json:"pods"`
	}
	require.NoError(o.t, json.Unmarshal(x.Body, &body))
	for _, p := range body.Pods {
		if p.Node != "" && p.Interfaces[0].Address != "" {
			o.pods[p.UID] = p.Interfaces[0].Address
		}
	}
}

// compare compares a tree with the recorded tree of Oxygen.
func (o *oracle) compare(x exchange, tree string) {
	o.t.Helper()
	status, answer, err := o.rest.do(o.t.Context(), http.MethodGet, "config/"+tree, nil)
	require.NoError(o.t, err)
	require.Contains(o.t, []int{http.StatusOK, http.StatusNotFound}, status, answer)
	theirs, ours := leaves(o.t, x.Status, x.Answer), leaves(o.t, status, []byte(answer))
	paths := maps.Clone(theirs)
	maps.Copy(paths, ours)
	var wrong []error
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if a, b := leafOr(theirs, path), leafOr(ours, path); a != b && !o.deliberate(x.Name, path, a, b) {
			wrong = append(wrong, fmt.Errorf("%s: %s: Oxygen has %s, we have %s", x.Name, path, a, b))
		}
	}
	require.NoError(o.t, errors.Join(wrong...))
}

func (o *oracle) deliberate(name, path, theirs, ours string) bool {
	for i, d := range differences {
		if d.matches(name, path, theirs, ours) {
			o.used[i] = true
			return true
		}
	}
	return false
}

func leafOr(leaves map[string]string, path string) string {
	if value, found := leaves[path]; found {
		return value
	}
	return nothing
}

// leaves returns the values of the leaves of an answer, by path. The path has the keys of entries.
func leaves(t *testing.T, status int, answer []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	if status == http.StatusNotFound {
		return out
	}
	var top map[string]any
	require.NoError(t, json.Unmarshal(answer, &top))
	for name, content := range top {
		flatten(out, name, content)
	}
	return out
}

// listKeys has the names of keys in the trees. The key of an entry is the first of these leaves that
// the entry has.
var listKeys = []string{"name", "elan-instance-name", "vpn-instance-name", "mac-address", "vpn-name", "ip_address", "vrfRTValue"}

func flatten(out map[string]string, path string, content any) {
	switch c := content.(type) {
	case map[string]any:
		for name, child := range c {
			flatten(out, path+"/"+name, child)
		}
	case []any:
		for _, entry := range c {
			flatten(out, path+"["+entryKey(entry)+"]", entry)
		}
	default:
		out[path] = fmt.Sprint(c)
	}
}

// entryKey returns the key of an entry, or the value of an entry of a leaf-list.
func entryKey(entry any) string {
	leaves, isEntry := entry.(map[string]any)
	if !isEntry {
		return fmt.Sprint(entry)
	}
	i := slices.IndexFunc(listKeys, func(k string) bool { return leaves[k] != nil })
	if i < 0 {
		return ""
	}
	return fmt.Sprint(leaves[listKeys[i]])
}
