package agentstream

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/egress"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// egressEvent is the notification of a node's part in egress addresses, and egressKey its key on the node's stream.
const (
	egressEvent = "coe-agent:egress-changed"
	egressKey   = "egress"
)

// egressGone is the content of the notification that a node has no part.
var egressGone = []byte(`{"operation":"deleted"}`)

// egressRecords holds the records of egress addresses, and what the streams of nodes have.
type egressRecords struct {
	records map[string][]byte // by name, without the prefix
	changed bool
	told    map[string][]byte // content, by node
	last    egress.Set        // what the records said last
}

// record applies one record, nil for none. It returns false for a record of another kind.
func (e *egressRecords) record(name string, value []byte) bool {
	name, ok := strings.CutPrefix(name, egress.Records+"/")
	if !ok {
		return false
	}
	if e.records == nil {
		e.records = map[string][]byte{}
	}
	if e.records[name] = value; value == nil {
		delete(e.records, name)
	}
	e.changed = true
	return true
}

// tellEgress adds to changes the nodes whose part in egress addresses has changed.
func (h *Hub) tellEgress(changes []stream.Change) []stream.Change {
	e := &h.egress
	if !e.changed {
		return changes
	}
	e.changed = false
	set := e.decode()
	now := map[string][]byte{}
	for _, node := range set.Nodes() {
		now[node.String()] = encodePlace(set, node)
	}
	for _, node := range sortedKeys(now, e.told) {
		if !bytes.Equal(now[node], e.told[node]) {
			changes = appendChange(changes, stream.Change{Stream: node, Key: egressKey, Name: egressEvent}, e.told[node], now[node], egressGone)
		}
	}
	e.told = now
	return changes
}

// decode returns what the records say. A record that cannot be read, nor its copy, says what it said before.
func (e *egressRecords) decode() egress.Set {
	set, damaged := egress.Decode(e.records)
	for _, before := range e.last.EgressIPs {
		if slices.Contains(damaged, before.Name) {
			set.EgressIPs = append(set.EgressIPs, before)
		}
	}
	slices.SortFunc(set.EgressIPs, func(a, b *coe.EgressIP) int { return strings.Compare(a.Name, b.Name) })
	if set.Candidates == nil && len(set.EgressIPs) > 0 {
		set.Candidates = e.last.Candidates
	}
	e.last = set
	return set
}

func encodePlace(set egress.Set, node netip.Addr) []byte {
	content, _ := json.Marshal(set.Place(node)) // strings and addresses always encode
	return content
}
