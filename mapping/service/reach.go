package service

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Reach says where clients reach a service.
type Reach struct {
	Service *coe.Service
	// Cluster are the addresses that answer pods and nodes alone.
	Cluster []netip.Addr
	// Exposed are the ports at which clients outside reach the service through nodes. Gateways lead to its node ports too.
	Exposed  []Exposure
	Gateways []*coe.Gateway
	// Ready and Draining are how many endpoints there are of the family that has more.
	Ready, Draining int
}

// Reaches returns where clients reach the services of a namespace, in the order of the View.
func Reaches(v coe.View, s Settings) []Reach {
	b := alone(v, s)
	targets, exposed := b.acceptedTargets(), map[*coe.Service][]Exposure{}
	for _, e := range b.allExposures(targets) {
		exposed[e.Service] = append(exposed[e.Service], e)
	}
	var all []Reach
	for _, s := range b.Services {
		one := Reach{Service: s, Exposed: exposed[s]}
		for _, a := range b.clusterAddresses(s) {
			if b.holds(s, a, "", 0) {
				one.Cluster = append(one.Cluster, a)
			}
		}
		if slices.ContainsFunc(one.Exposed, func(e Exposure) bool { return !e.Address.IsValid() || e.Address.IsUnspecified() }) {
			one.Gateways = b.serving()
		}
		for _, is4 := range families {
			ready, draining := countEndpoints(targets[s], is4)
			one.Ready, one.Draining = max(one.Ready, ready), max(one.Draining, draining)
		}
		all = append(all, one)
	}
	return all
}

// countEndpoints returns how many addresses of a family are ready and draining.
func countEndpoints(targets []target, is4 bool) (ready, draining int) {
	seen := map[netip.Addr]bool{}
	for _, t := range targets {
		switch {
		case t.addr.Is4() != is4 || seen[t.addr]:
			continue
		case t.draining:
			draining++
		default:
			ready++
		}
		seen[t.addr] = true
	}
	return ready, draining
}
