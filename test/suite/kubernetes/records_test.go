package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/agents"
)

// checkRecords returns an error if the records of the nodes' agents differ from the leases of
// existing pods. All leases must be confirmed: the database has all rows when it is called.
func checkRecords(records []agents.Record, leases []lease) error {
	want := map[string]int{}
	for _, l := range leases {
		if l.Released != "" {
			continue
		}
		r := agents.Record{
			PodUID: l.PodUID, InterfaceUID: l.InterfaceUID, Namespace: l.Namespace, Pod: l.Pod,
			Name: l.Name, Node: l.Node, MAC: l.MAC, Confirmed: true,
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
	return errors.Join(differ("agents lack records", want, got), differ("agents have unexpected records", got, want))
}

// differ returns an error with some keys of a that occur less often in b.
func differ(what string, a, b map[string]int) error {
	const some = 5
	var names []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] > b[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s %d: %s", what, len(names), strings.Join(names[:min(some, len(names))], "; "))
}
