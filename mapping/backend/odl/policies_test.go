package odl_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// withPolicies returns a pod that is isolated for ingress, with a rule for a remote group, and the ID of the list with the rule.
func withPolicies() (m netvirt.Model, list string) {
	m = odltest.PodsOf("web")
	acl := netvirt.ACL{Name: "web:pods:1", Namespace: "web"}
	m.Add(
		acl, netvirt.ACL{Name: "web:isolated", Namespace: "web", Isolates: netvirt.Ingress},
		netvirt.ACE{
			ACL: acl.Name, Namespace: "web", Name: "ingress:db:0:ipv4", Direction: netvirt.Ingress, Family: netvirt.IPv4,
			Remote: "peers:1", Ports: "tcp:80-90",
		},
		netvirt.RemoteGroup{Name: "peers:1", Prefixes: "10.0.0.0/8,fd00::/8"},
		netvirt.InterfaceACL{Interface: "web:pod-1", Namespace: "web", SecurityGroups: "web:isolated,web:pods:1"},
	)
	return m, netvirtjson.GroupID(acl.Key())
}

// TestDamagedPolicies: what an external writer changes in lists, and in the leaves of aclservice, is restored.
func TestDamagedPolicies(t *testing.T) {
	want, list := withPolicies()
	rules := func(e map[string]any, change func([]any) []any) {
		entries := e["access-list-entries"].(map[string]any)
		entries["ace"] = change(entries["ace"].([]any))
	}
	for name, damage := range map[string]func(list, pod map[string]any){
		"port security": func(_, pod map[string]any) { pod["aclservice:port-security-enabled"] = false },
		"groups": func(_, pod map[string]any) {
			pod["aclservice:security-groups"] = pod["aclservice:security-groups"].([]any)[1:]
		},
		"addresses": func(_, pod map[string]any) { delete(pod, "aclservice:allowed-address-pairs") },
		"one more rule": func(list, _ map[string]any) {
			rules(list, func(all []any) []any { return append(all, map[string]any{"rule-name": "all"}) })
		},
		"one less rule": func(list, _ map[string]any) { rules(list, func(all []any) []any { return all[1:] }) },
		"direction": func(list, _ map[string]any) {
			rules(list, func(all []any) []any {
				with(all[0].(map[string]any), "aclservice:direction", "aclservice:direction-egress")
				return all
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, f := start(t, odlfake.Oxygen)
			write(t, b, want)
			const lists = "ietf-access-control-list:access-lists"
			rulesOf, pod := f.Entry(lists, "acl", list), f.Entry("ietf-interfaces:interfaces", "interface", "web:pod-1")
			damage(rulesOf, pod)
			f.Set(lists, "acl", list, rulesOf)
			f.Set("ietf-interfaces:interfaces", "interface", "web:pod-1", pod)
			have, err := b.Read(t.Context())
			require.NoError(t, err)
			require.NotEqual(t, want, have)
			write(t, b, want)
		})
	}
}

// TestOpenListFails: an interface waits for the list that permits everything in the direction in which it is not isolated. If the controller fails
// at the list, the write fails, whatever the answer is, and the next one writes both.
func TestOpenListFails(t *testing.T) {
	const lists, interfaces = "ietf-access-control-list:access-lists", "ietf-interfaces:interfaces"
	open := netvirtjson.GroupID(netvirt.ACL{Name: "open:egress"}.Key())
	for _, status := range []int{http.StatusBadRequest, http.StatusConflict, http.StatusInternalServerError} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			b, f := start(t, odlfake.Oxygen)
			want, list := withPolicies()
			f.Break(refuse(status, `"acl-name":"`+open+`"`))
			for range 4 {
				have, err := b.Read(t.Context())
				require.NoError(t, err)
				err = b.Write(t.Context(), netvirt.Diff(have, want))
				require.Error(t, err)
				require.NotErrorIs(t, err, netvirt.ErrRejected)
				require.NotNil(t, f.Entry(lists, "acl", list))
				require.Nil(t, f.Entry(interfaces, "interface", "web:pod-1"))
			}
			f.Break(nil)
			write(t, b, want)
			require.NotNil(t, f.Entry(lists, "acl", open))
		})
	}
}

// TestOpenListIsRestored: the list that permits everything in the direction in which an interface is not isolated is restored, if an external
// writer deletes or changes it, and if no pod changes. A Write of something else restores it too.
func TestOpenListIsRestored(t *testing.T) {
	const lists = "ietf-access-control-list:access-lists"
	open := netvirtjson.GroupID(netvirt.ACL{Name: "open:egress"}.Key())
	for name, damage := range map[string]func(f *fake){
		"deleted": func(f *fake) { f.Remove(lists, "acl", open) },
		"changed": func(f *fake) {
			e := f.Entry(lists, "acl", open)
			delete(e, "access-list-entries")
			f.Set(lists, "acl", open, e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, f := start(t, odlfake.Oxygen)
			want, _ := withPolicies()
			write(t, b, want)
			whole := f.Entry(lists, "acl", open)
			damage(f)
			have, err := b.Read(t.Context())
			require.NoError(t, err)
			require.NotEqual(t, want, have)
			write(t, b, want)
			require.Equal(t, whole, f.Entry(lists, "acl", open))

			damage(f)
			_, err = b.Read(t.Context())
			require.NoError(t, err)
			odltest.PodOn(want, "other", "pod-1", 1, 2)
			require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, want)))
			require.Equal(t, whole, f.Entry(lists, "acl", open))
		})
	}
}

// TestRulesOfDeletedLists: aclservice adds a rule of a list to the interfaces with the list when the list gets the rule, not when it gets the
// list. So a list that an external writer has deleted is created without rules, and gets them afterwards. A new list has its rules at once.
func TestRulesOfDeletedLists(t *testing.T) {
	const lists = "ietf-access-control-list:access-lists"
	want, list := withPolicies()
	group, open := netvirtjson.GroupID(netvirt.RemoteGroup{Name: "peers:1"}.Key()), netvirtjson.GroupID(netvirt.ACL{Name: "open:egress"}.Key())
	want.Add(netvirt.InterfaceACL{Interface: "web:pod-1", Namespace: "web", SecurityGroups: "web:isolated,web:pods:1", RemoteGroups: "peers:1"})
	for _, release := range []odlfake.Release{odlfake.Oxygen, without(odlfake.Oxygen), odlfake.Neon, without(odlfake.Neon)} {
		for _, id := range []string{list, group, open} {
			b, f := start(t, release)
			var mu sync.Mutex // requests arrive at the same time
			var wrote []string
			f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if bytes.Contains(body, []byte(`"acl-name":"`+id+`"`)) {
					mu.Lock()
					defer mu.Unlock()
					wrote = append(wrote, fmt.Sprint(r.Method, bytes.Contains(body, []byte("rule-name"))))
				}
				return false
			})
			write(t, b, want)
			require.Equal(t, []string{"POSTtrue"}, wrote)
			whole := f.Entry(lists, "acl", id)
			wrote = nil
			f.Remove(lists, "acl", id)
			write(t, b, want)
			require.Equal(t, []string{"POSTfalse", "PUTtrue"}, wrote)
			require.Equal(t, whole, f.Entry(lists, "acl", id))
		}
	}
}

// TestDependents: a change of a remote group changes the lists that name it, and a change of the direction in which an ACL isolates
// changes its members.
func TestDependents(t *testing.T) {
	want, list := withPolicies()
	b, f := start(t, odlfake.Oxygen)
	write(t, b, want)
	changed := func(o netvirt.Object) (keys []string) {
		var mu sync.Mutex // requests arrive at the same time
		f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				key, err := url.PathUnescape(path.Base(r.URL.EscapedPath()))
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				keys = append(keys, key)
			}
			return false
		})
		want.Add(o)
		write(t, b, want)
		f.Break(nil)
		return keys
	}
	group := netvirt.RemoteGroup{Name: "peers:1", Prefixes: "192.0.2.0/24"}
	require.ElementsMatch(t, []string{list, netvirtjson.GroupID(group.Key())}, changed(group))
	acl := netvirt.ACL{Name: "web:isolated", Namespace: "web", Isolates: netvirt.Egress}
	require.ElementsMatch(t, []string{"web:pod-1", netvirtjson.GroupID(acl.Key())}, changed(acl))
}
