package acl

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// verdict is what an ACL decides about packets.
type verdict string

const (
	dropped verdict = "drop"
	allowed verdict = "allow"
)

// logRate is the number of packets with one verdict that a node logs in a second for a direction of a
// namespace.
const logRate = 100

// log lets ovn-controller log the packets that match an ACL, as far as a Meter allows it.
func log(acl *nb.ACL, name string, severity nb.ACLSeverity, meter string) {
	acl.Log, acl.Name, acl.Severity, acl.Meter = true, new(logName(name)), &severity, &meter
}

// meter adds a Meter for the ACLs of a namespace with a direction and a verdict. They share its rate, so
// that a tenant cannot multiply it by policies. It belongs to the ACL that isolates in this direction: without that
// one there are no ACLs for it.
func (g portGroup) meter(v verdict) {
	role := roleMeter + string(v)
	band := &nb.MeterBand{
		UUID: g.UUID(nb.MeterBandTable, g.key, role), Action: nb.MeterBandActionDrop, Rate: logRate, ExternalIDs: g.Mark(g.key, role),
	}
	g.set.Add(band)
	g.set.Add(&nb.Meter{
		UUID: g.UUID(nb.MeterTable, g.key, role), Name: meterName(g.Owner, g.key.Name, v), Unit: nb.MeterUnitPktps, Bands: []string{band.UUID},
		ExternalIDs: g.Mark(g.key, role),
	})
}

// meterName returns the name of a Meter of the ACL that isolates.
func meterName(owner identity.Owner, isolating string, v verdict) string {
	return matchName(owner, isolating+":"+string(v))
}

// maxLogName is the maximum length of ACL.name.
const maxLogName = 63

// logName returns a name for ACL.name. A name that is too long is cut, and ends with a hash. OVN
// puts the name between quotes in its flows, so the result has no quotes and no backslash.
func logName(name string) string {
	plain := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '"' || r == '\\' {
			return '_'
		}
		return r
	}, name)
	if len(plain) <= maxLogName {
		return plain
	}
	hash := sha256.Sum256([]byte(name))
	end := fmt.Sprintf("~%x", hash[:4])
	return plain[:maxLogName-len(end)] + end
}
