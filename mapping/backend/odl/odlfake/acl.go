package odlfake

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// accessList finds the access list, or the container, that the parts of a path name. An access list
// has its type as first key.
func (x *exchange) accessList(parts []string) bool {
	x.module, x.container, _ = strings.Cut(parts[0], ":")
	if last := parts[len(parts)-1]; last == "aclservice:deleted" {
		return x.leaf(x.release.rules.marks)
	}
	switch {
	case len(parts) == 1:
		return true
	case x.draft && len(parts) == 4:
		parts = parts[2:]
	case !x.draft && len(parts) == 2:
		parts = strings.Split(strings.TrimPrefix(parts[1], "acl="), ",")
	}
	if len(parts) != 2 {
		return x.fail(http.StatusBadRequest, "invalid-value", "URI has bad format.")
	}
	key, err := url.PathUnescape(parts[1])
	if err != nil {
		return x.fail(http.StatusBadRequest, "invalid-value", err.Error())
	}
	x.list, x.key = "acl", key
	return true
}

// leaf answers a request for a leaf of a list without entries. It returns false.
func (x *exchange) leaf(known bool) bool {
	switch {
	case !known:
		return x.fail(http.StatusBadRequest, "invalid-value", "URI has bad format. Possible reasons: 1. it was not found in parent data node.")
	case x.draft:
		return x.fail(http.StatusBadRequest, "invalid-value", "URI has bad format. Node must be Container or List yang type.")
	}
	x.missing()
	return false
}

// forgetDeleted deletes the rules that are marked as deleted. The caller holds mu.
func (c *Controller) forgetDeleted(container string, e stored) {
	rules, _ := e.value["access-list-entries"].(map[string]any)
	all, _ := rules["ace"].([]any)
	if container != aclModule+":access-lists" || !c.release.rules.marks {
		return
	}
	rules["ace"] = slices.DeleteFunc(all, func(rule any) bool { return rule.(map[string]any)["aclservice:deleted"] == true })
}

// tagPool is the path of the pool with a tag for each access list.
const tagPool = "/id-manager:id-pools/id-pool"

// tags answers a request for the pool.
func (x *exchange) tags() {
	if !x.acceptable() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	entries := []any{}
	for i, e := range x.all(aclModule + ":access-lists") {
		entries = append(entries, map[string]any{"id-key": e.key, "id-value": []int{i + 1}})
	}
	x.show(x.topName("id-manager", "id-pool"), []any{map[string]any{"pool-name": "ACL-TAG-POOL", "id-entries": entries}})
}

// listStates returns the access lists that interfaces have whose ports are plugged in.
func (c *Controller) listStates() (all []map[string]any) {
	members := map[string][]any{}
	for _, e := range c.all("ietf-interfaces:interfaces") {
		groups, _ := e.value["aclservice:security-groups"].([]any)
		for _, g := range groups {
			if id, ok := g.(string); ok && c.status(e.key) != "" {
				members[id] = append(members[id], map[string]any{"port-id": e.key})
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		prefix := map[string]any{"ip-prefix": "192.0.2.1", "port-ids": members[id]}
		all = append(all, map[string]any{"acl-name": id, "acl-ip-prefixes": []any{prefix}})
	}
	return all
}
