package vips

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Record is the key of a VIP's record: "10.96.0.1", or "192.0.2.1/tcp/80".
func Record(v coe.VIP) string {
	if v.Port == 0 {
		return v.Address.String()
	}
	return v.Address.String() + "/" + v.Protocol + "/" + strconv.Itoa(int(v.Port))
}

// decode returns the claim of a record.
func decode(key string, value []byte) (coe.VIPFact, error) {
	var f coe.VIPFact
	if err := json.Unmarshal(value, &f); err != nil {
		return f, err
	}
	if !f.Address.IsValid() || f.Namespace == "" || Record(f.VIP) != key {
		return f, fmt.Errorf("it is not a record of %s", key)
	}
	if (f.Protocol == "") != (f.Port == 0) || f.Port != 0 && !f.External {
		return f, fmt.Errorf("protocol %q and port %d do not fit the claim", f.Protocol, f.Port)
	}
	return f, nil
}

// sortFacts sorts claims of records in the order in which one that is before keeps another one from its address.
func sortFacts(facts []coe.VIPFact) {
	slices.SortStableFunc(facts, func(a, b coe.VIPFact) int {
		return cmp.Or(cmp.Compare(boolInt(a.External), boolInt(b.External)), cmp.Compare(boolInt(b.Balanced), boolInt(a.Balanced)))
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
