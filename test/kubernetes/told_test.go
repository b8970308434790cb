package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/agents"
)

// told tells in what the records that the nodes' agents were told differ from the
// living leases. Those are confirmed whose pods are among the mapped, by uid: the
// database has all that it is to have.
func told(records []agents.Record, leases []lease, mapped map[string]bool) error {
	want := map[string]int{}
	for _, l := range leases {
		if l.Released != "" {
			continue
		}
		r := agents.Record{
			PodUID: l.PodUID, InterfaceUID: l.InterfaceUID, Namespace: l.Namespace, Pod: l.Pod,
			Name: l.Name, Node: l.Node, MAC: l.MAC, Confirmed: mapped[l.PodUID],
		}
		for _, ip := range l.Addresses {
			r.Addresses = append(r.Addresses, agents.Address{IP: ip})
		}
		want[fmt.Sprintf("%+v", r)]++
	}
	got := map[string]int{}
	for _, r := range records {
		got[fmt.Sprintf("%+v", r)]++
	}
	if maps.Equal(want, got) {
		return nil
	}
	var lines []string
	for _, record := range slices.Sorted(maps.Keys(want)) {
		if got[record] != want[record] {
			lines = append(lines, "not told: "+record)
		}
	}
	for _, record := range slices.Sorted(maps.Keys(got)) {
		if got[record] != want[record] {
			lines = append(lines, "told: "+record)
		}
	}
	return fmt.Errorf("agents: %s", strings.Join(lines, "; "))
}
