package odle2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

// profile is the name of an access list. Members of a remote group name a UUID.
const profile = "5f0c1d5e-0000-4000-8000-000000000001"

// testProfiles creates a pod that names a security profile before the list exists. It has no connections, and a
// problem says so. Then the list permits a port for one of the other pods, and later for members of the profile.
func (w *world) testProfiles(others []*pod) {
	guarded := &pod{namespace: "shop", name: "guarded", number: 50, profiles: []string{profile}}
	member := &pod{namespace: "bank", name: "member", number: 51, profiles: []string{profile}}
	w.putPods(guarded, member)
	w.plug(guarded, member)
	w.awaitConfirmed(true, guarded, member)
	w.awaitProblem("ProfileUnknown", guarded.name)
	w.judged(false, others[0], guarded, 80)

	w.putProfile(object{
		"source-ipv4-network": others[0].port.Address.Addr().String() + "/32", "protocol": 6, "destination-port-range": object{"lower-port": 80, "upper-port": 80},
	})
	w.judged(true, others[0], guarded, 80)
	w.judged(false, others[0], guarded, 81)
	w.judged(false, others[1], guarded, 80)
	w.judged(true, guarded, others[1], 81) // the profile has no entry for egress

	w.putProfile(object{"aclservice:remote-group-id": profile, "protocol": 6, "destination-port-range": object{"lower-port": 443, "upper-port": 443}})
	w.judged(true, member, guarded, 443)
	w.judged(false, others[1], guarded, 443)

	w.putProfile(object{"source-ipv4-network": "0.0.0.0/0", "protocol": 132, "destination-port-range": object{"lower-port": 7, "upper-port": 7}})
	w.awaitProblem("NotEnforced", profile)
	w.change(http.MethodDelete, profilePath, nil)
	for _, p := range []*pod{guarded, member} {
		w.change(http.MethodDelete, "pod:coe/pods/"+p.uid(), nil)
		require.NoError(w.t, w.c.Lab.Unplug(w.t.Context(), p.port))
	}
	w.awaitSync(patience)
}

const profilePath = "ietf-access-control-list:access-lists/acl/ietf-access-control-list:ipv4-acl/" + profile

// putProfile writes the profile with one entry, which permits ingress.
func (w *world) putProfile(matches object) {
	w.t.Helper()
	entry := object{"rule-name": "rule", "aclservice:direction": "aclservice:direction-ingress", "actions": object{"permit": []any{nil}}}
	if group, has := matches["aclservice:remote-group-id"]; has {
		entry["aclservice:remote-group-id"] = group
		delete(matches, "aclservice:remote-group-id")
	}
	entry["matches"] = matches
	w.put(profilePath, object{"acl": []object{{
		"acl-type": "ietf-access-control-list:ipv4-acl", "acl-name": profile, "access-list-entries": object{"ace": []object{entry}},
	}}})
}

// awaitProblem waits until the status has a problem with a reason about an object.
func (w *world) awaitProblem(reason, name string) {
	w.t.Helper()
	await(w.t, patience, "the problem "+reason, func() error {
		var st bridgetest.Status
		if _, err := w.bridge.Client().Read(w.t.Context(), "operational/coe-status:status", &st); err != nil {
			return err
		}
		for _, p := range st.Problems {
			if p.Reason == reason && p.Name == name {
				return nil
			}
		}
		return fmt.Errorf("the problems are %+v", st.Problems)
	})
}

// judged waits until a connection passes, or does not. One that finds no listener is refused if it passes.
func (w *world) judged(want bool, from, to *pod, port int) {
	w.t.Helper()
	await(w.t, patience, fmt.Sprintf("%s to port %d of %s: %t", from, port, to, want), func() error {
		out, err := w.c.Lab.Exec(w.t.Context(), from.String(), "nc", "-v", "-z", "-w", "2", to.port.Address.Addr().String(), fmt.Sprint(port))
		passes := err == nil || strings.Contains(out+err.Error(), "refused")
		if passes != want {
			return errors.New(out)
		}
		return nil
	})
}
