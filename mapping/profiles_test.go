package mapping_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// A profile that does not exist, one that nobody names, and one that is not enforced, are problems.
func TestProfileProblems(t *testing.T) {
	enforcing, without := mapping.Settings{}, mapping.Settings{Limits: netvirt.Limits{NoACLs: true}}
	store := state.NewStore(nil, coe.Kubernetes)
	problems := func(s mapping.Settings) (all []string) {
		for _, scope := range []netvirt.Scope{netvirt.Cluster, "shop"} {
			_, found := mapping.Scope(store, scope, s)
			for _, p := range found {
				if p.Reason != coe.NoNode {
					all = append(all, fmt.Sprintf("%s %s %s: %s", p.Kind, p.Name, p.Reason, p.Message))
				}
			}
		}
		return all
	}
	list := coe.UnknownProfile("locked")
	list.UID = "l"
	list.Ingress.Rules = []coe.PolicyRule{{Peers: []coe.PolicyPeer{{Namespaces: &coe.Selector{}, Pods: coe.ProfileSelector("peers")}}}}
	store.Update(func(tx *state.Tx) {
		tx.SetComplete(coe.Kubernetes)
		tx.PutPolicy(coe.Kubernetes, list)
	})
	requireContains(t, problems(enforcing), `access-list locked NotEnforced: the access list has no effect, because no pod and no namespace names it`,
		`access-list locked ProfileUnknown: entries with the remote-group-id "peers" permit nothing`)
	requireContains(t, problems(without), `access-list locked NotEnforced: access lists are not enforced`)

	pod := func(profiles ...string) {
		store.Update(func(tx *state.Tx) {
			tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "p", Namespace: "shop", Name: "web", Labels: coe.Labels{}.WithProfiles(profiles...)})
		})
	}
	pod("locked", "b", "a")
	remote := `access-list locked ProfileUnknown`
	requireContains(t, problems(enforcing), remote, `pod web ProfileUnknown: the pod has no connections, because no access list has the name of the security profile "a", "b": create`)
	requireContains(t, problems(without), `access-list locked NotEnforced`, `pod web NotEnforced: security profiles are not enforced`)
	pod()
	store.Update(func(tx *state.Tx) {
		tx.PutNamespace(coe.Kubernetes, &coe.Namespace{UID: "n", Name: "shop", Labels: coe.Labels{}.WithProfiles("locked", "b")})
		tx.PutPolicy(coe.Kubernetes, coe.UnknownProfile("peers"))
	})
	requireContains(t, problems(enforcing), `access-list peers NotEnforced: the access list has no effect`,
		`namespace shop ProfileUnknown: its pods have no connections, because no access list has the name of the security profile "b"`)
}

func requireContains(t *testing.T, problems []string, parts ...string) {
	t.Helper()
	require.Len(t, problems, len(parts), "%q", problems)
	for i, part := range parts {
		require.Contains(t, problems[i], part)
	}
}

// A message about profiles that do not exist is short, because each pod can have one.
func TestMessageAboutManyProfiles(t *testing.T) {
	var names []string
	for i := range 16 {
		names = append(names, fmt.Sprintf("%02d%s", i, strings.Repeat("\u00e9", 120)))
	}
	store := state.NewStore(nil, coe.Kubernetes)
	store.Update(func(tx *state.Tx) {
		tx.SetComplete(coe.Kubernetes)
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "p", Namespace: "shop", Name: "web", NoNetwork: true, Labels: coe.Labels{}.WithProfiles(names...)})
	})
	_, problems := mapping.Scope(store, "shop", mapping.Settings{})
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].Message, `profile "00é`)
	require.Contains(t, problems[0].Message, `, and 13 more: create`)
	require.Less(t, len(problems[0].Message), 512)
}

// If the backend cannot match ports of SCTP, a list that pods name and that allows some is a problem.
func TestProfileWithPortsOfSCTP(t *testing.T) {
	list := coe.UnknownProfile("ports")
	list.UID = "l"
	list.Ingress.Rules = []coe.PolicyRule{{Ports: []coe.PolicyPort{{Protocol: "sctp", First: 7, Last: 7}}}}
	store := state.NewStore(nil, coe.Kubernetes)
	store.Update(func(tx *state.Tx) {
		tx.SetComplete(coe.Kubernetes)
		tx.PutPolicy(coe.Kubernetes, list)
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "p", Namespace: "shop", Name: "web", Labels: coe.Labels{}.WithProfiles("ports")})
	})
	_, problems := mapping.Scope(store, netvirt.Cluster, mapping.Settings{})
	require.Empty(t, problems)
	_, problems = mapping.Scope(store, netvirt.Cluster, mapping.Settings{Limits: netvirt.Limits{NoSCTPPorts: true}})
	require.Len(t, problems, 1)
	require.Equal(t, coe.NotEnforced, problems[0].Reason)
	require.Contains(t, problems[0].Message, "ports of SCTP")
}
