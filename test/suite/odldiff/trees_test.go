package odldiff

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// trees has the trees that a renderer writes for pods: the container, its list and the list's key.
var trees = map[string]struct{ list, key string }{
	"elan:elan-instances":        {"elan-instance", "elan-instance-name"},
	"elan:elan-interfaces":       {"elan-interface", "name"},
	"l3vpn:vpn-instances":        {"vpn-instance", "vpn-instance-name"},
	"l3vpn:vpn-interfaces":       {"vpn-interface", "name"},
	"ietf-interfaces:interfaces": {"interface", "name"},
	"odl-nat:floating-ip-info":   {"router-ports", "router-id"},
}

// place is the place of an entry in a tree.
type place struct{ tree, entry string }

// namespace returns the namespace of an entry, from its name.
func (p place) namespace() string {
	if p.tree == "elan:elan-instances" {
		return p.entry[strings.LastIndexByte(p.entry, ':')+1:]
	}
	namespace, _, _ := strings.Cut(p.entry, ":")
	return namespace
}

// object has the leaves of an entry as text, by path.
type object map[string]string

// objects adds the entries of a tree, in the form of draft-02, to all.
func objects(all map[place]object, tree string, status int, answer []byte) error {
	if status == http.StatusNotFound {
		return nil
	}
	if status != http.StatusOK {
		return fmt.Errorf("read %s: %d %s", tree, status, answer)
	}
	var top map[string]map[string][]map[string]any
	if err := json.Unmarshal(answer, &top); err != nil {
		return fmt.Errorf("read %s: %w", tree, err)
	}
	_, container, _ := strings.Cut(tree, ":")
	for _, entry := range top[container][trees[tree].list] {
		o := object{}
		flatten(o, "", entry)
		all[place{tree, fmt.Sprint(entry[trees[tree].key])}] = o
	}
	return nil
}

// listKeys has the names of keys in entries. The key of an entry is the first of these leaves that the
// entry has.
var listKeys = []string{"mac-address", "vpn-name", "ip_address", "vrfRTValue", "port-name", "internal-ip"}

func flatten(out object, path string, content any) {
	switch c := content.(type) {
	case map[string]any:
		for name, child := range c {
			flatten(out, strings.TrimPrefix(path+"/"+name, "/"), child)
		}
	case []any:
		for _, entry := range c {
			flatten(out, path+"["+entryKey(entry)+"]", entry)
		}
	default:
		out[path] = fmt.Sprint(c)
	}
}

// entryKey returns the key of an entry, or the value of an entry of a leaf-list.
func entryKey(entry any) string {
	leaves, isEntry := entry.(map[string]any)
	if !isEntry {
		return fmt.Sprint(entry)
	}
	i := slices.IndexFunc(listKeys, func(k string) bool { return leaves[k] != nil })
	if i < 0 {
		return ""
	}
	return fmt.Sprint(leaves[listKeys[i]])
}
