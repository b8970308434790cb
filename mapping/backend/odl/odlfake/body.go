package odlfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// These modules have no YANG here. The fake checks only the names of the nodes that are
// written.
const movedModule, topologyModule, aclModule = "l3vpn-instances-interfaces", "network-topology", "ietf-access-control-list"

// looseList is a list of such a module.
type looseList struct {
	name  string
	nodes []string // of an entry; the first is the key
}

var (
	movedInstances = looseList{"vpn-instance", []string{"vpn-instance-name", "type", "l3vni", "description", "ipv4-family", "ipv6-family"}}
	flatInstances  = looseList{"vpn-instance", []string{
		"vpn-instance-name", "route-distinguisher", "vpnTargets", "l2vpn", "bgpvpn-type", "ip-address-family-configured", "l3vni",
	}}
	accessLists     = looseList{"acl", []string{"acl-name", "acl-type", "access-list-entries"}}
	topologies      = looseList{"topology", []string{"topology-id", "node"}}
	movedInterfaces = looseList{"vpn-interface", []string{"name", "vpn-instance-names", "dpn-id", "router-interface", "adjacency"}}
)

// looseLists holds the lists of these modules, by container.
func (c *Controller) looseLists(module string) map[string]looseList {
	switch {
	case module == topologyModule:
		return map[string]looseList{topologyModule: topologies}
	case module == aclModule:
		return map[string]looseList{"access-lists": accessLists}
	case module != movedModule:
		return nil
	case c.release.L3VPN == Flat:
		return map[string]looseList{"vpn-instances": flatInstances, "vpn-interfaces": movedInterfaces}
	}
	return map[string]looseList{"vpn-instances": movedInstances, "vpn-interfaces": movedInterfaces}
}

// The errors of a body.
var (
	errMalformed = errors.New("malformed-message")
	errMandatory = errors.New("operation-failed") // found by the commit
)

// decode reads a body with entries of lists of a container. It returns them in canonical
// form, by the path of their list.
func (c *Controller) decode(module, container string, body []byte) ([]stored, error) {
	if err := noNulls(body); err != nil {
		return nil, err
	}
	if loose := c.looseLists(module); loose != nil {
		return decodeLoose(loose, container, body)
	}
	parent := c.schema.Module(module).Child(container)
	data, err := c.schema.DecodeJSON(body, parent, "", yang.Lenient)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: input is required", errMalformed)
	}
	var out []stored
	for _, d := range data {
		if d.Node.Kind != yang.List || len(d.Node.Keys) != 1 {
			return nil, fmt.Errorf("%w: %s is not a list with one key", errMalformed, d.Node.Name)
		}
		if err := c.schema.Validate(d, "", nil); err != nil {
			return nil, fmt.Errorf("%w: %w", errMandatory, err)
		}
		var text bytes.Buffer
		yang.EncodeObject(&text, d)
		value := map[string]any{}
		if err := json.Unmarshal(text.Bytes(), &value); err != nil {
			return nil, err
		}
		out = append(out, stored{d.Node.Name, d.Key()[0], value})
	}
	return out, emptied(body, out)
}

// noNulls returns an error if the body contains null, which OpenDaylight refuses, except in an
// array: [null] is the value of an empty leaf.
func noNulls(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	var before json.Token
	for {
		token, err := d.Token()
		switch {
		case err != nil:
			return nil //nolint:nilerr // what is wrong else is found by who reads it
		case token == nil && before != json.Delim('['):
			return fmt.Errorf("%w: null", errMalformed)
		}
		before = token
	}
}

// emptied returns an error for an empty string as address, which OpenDaylight refuses and the
// lenient decoder accepts.
func emptied(body []byte, read []stored) error {
	var text bytes.Buffer
	for _, s := range read {
		if err := json.NewEncoder(&text).Encode(s.value); err != nil {
			return err
		}
	}
	compact := &bytes.Buffer{}
	if err := json.Compact(compact, body); err != nil {
		return err
	}
	if strings.Count(compact.String(), `:""`) > strings.Count(text.String(), `:""`) {
		return fmt.Errorf("%w: invalid value \"\" for union type", errMalformed)
	}
	return nil
}

func decodeLoose(lists map[string]looseList, container string, body []byte) ([]stored, error) {
	of, found := lists[container]
	var members map[string][]map[string]any
	if err := json.Unmarshal(body, &members); err != nil || !found {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	var out []stored
	for member, list := range members {
		if _, name, _ := strings.Cut(member, ":"); name != of.name {
			return nil, fmt.Errorf("%w: %s is not a list of %s", errMalformed, member, container)
		}
		for _, value := range list {
			key, ok := value[of.nodes[0]].(string)
			if !ok {
				return nil, fmt.Errorf("%w: Input is missing some of the keys", errMalformed)
			}
			for node := range value {
				if !slices.Contains(of.nodes, node) {
					return nil, fmt.Errorf("%w: Schema node with name %s was not found", errMalformed, node)
				}
			}
			out = append(out, stored{of.name, key, value})
		}
	}
	return out, nil
}
