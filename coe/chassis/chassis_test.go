package chassis_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/chassis"
)

var first, second = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")

func nodes() map[netip.Addr]*coe.Node {
	return map[netip.Addr]*coe.Node{first: {UID: "1", HostName: "one"}, second: {UID: "2", HostName: "two"}}
}

func TestClaim(t *testing.T) {
	type held = map[netip.Addr]chassis.Chassis
	for name, c := range map[string]struct {
		facts   chassis.Facts
		want    held
		reason  coe.Reason // of the only problem; empty for none
		message string
	}{
		"two nodes": {
			facts: chassis.Facts{Reported: map[netip.Addr]string{first: "a", second: "b"}, Complete: true},
			want:  held{first: {Name: "a"}, second: {Name: "b"}},
		},
		"one chassis of two nodes": {
			facts:  chassis.Facts{Reported: map[netip.Addr]string{first: "a", second: "a"}, Complete: true},
			want:   held{first: {Name: "a"}},
			reason: coe.NameTaken, message: `its chassis "a" (its name in OVN) is the chassis of node one`,
		},
		"the recorded one comes first": {
			facts: chassis.Facts{
				Reported: map[netip.Addr]string{first: "a", second: "a"}, Complete: true,
				Recorded: map[netip.Addr]*coe.NodeFact{second: {Node: second, Chassis: "a"}},
			},
			want:   held{second: {Name: "a"}},
			reason: coe.NameTaken, message: "is the chassis of node two",
		},
		"the name of another node": {
			facts:  chassis.Facts{Reported: map[netip.Addr]string{first: "two"}, Complete: true},
			want:   held{},
			reason: coe.NameTaken, message: "is the name of node two",
		},
		"another one is reported now": {
			facts: chassis.Facts{
				Reported: map[netip.Addr]string{first: "b"}, Complete: true,
				Recorded: map[netip.Addr]*coe.NodeFact{first: {Node: first, Chassis: "a"}},
			},
			want:   held{first: {Name: "a", Changed: true}},
			reason: coe.NotEnforced, message: `was "a" before`,
		},
		"OVN has it by another name": {
			facts:  chassis.Facts{Reported: map[netip.Addr]string{first: "a"}, InOVN: map[string]string{"z": "one"}, Follows: true, Complete: true},
			want:   held{first: {Name: "a", Changed: true}},
			reason: coe.NotEnforced, message: `which has the node by the name "z"`,
		},
		"OVN has it": {
			facts: chassis.Facts{Reported: map[netip.Addr]string{first: "a"}, InOVN: map[string]string{"a": "one"}, Follows: true, Complete: true},
			want:  held{first: {Name: "a"}},
		},
		"not all is reported yet": {
			facts: chassis.Facts{Recorded: map[netip.Addr]*coe.NodeFact{first: {Node: first, Chassis: "a"}}},
			want:  held{first: {Name: "a"}},
		},
		"no longer reported": {
			facts: chassis.Facts{Recorded: map[netip.Addr]*coe.NodeFact{first: {Node: first, Chassis: "a"}}, Complete: true},
			want:  held{},
		},
		"marked until OVN is known": {
			facts: chassis.Facts{
				Reported: map[netip.Addr]string{first: "a"}, Follows: true, Complete: true,
				Recorded: map[netip.Addr]*coe.NodeFact{first: {Node: first, Chassis: "a", ChassisChanged: true}},
			},
			want: held{first: {Name: "a", Changed: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.facts.Nodes = nodes()
			all, problems := chassis.Claim(c.facts)
			require.Equal(t, c.want, all)
			if c.reason == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Equal(t, c.reason, problems[0].Reason)
			require.Contains(t, problems[0].Message, c.message)
		})
	}
}
