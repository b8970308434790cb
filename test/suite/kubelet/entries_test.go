package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// podNamespaces are the namespaces of the pods whose ports hasOnly compares.
var podNamespaces = []string{namespace, dual, "kube-system"}

// hasOnly fails unless the backend has exactly the ports of the running pods. living has their names by node.
func (c *cluster) hasOnly(ctx context.Context, living map[string]map[string]string) error {
	var want []string
	for _, pods := range living {
		for name := range pods {
			want = append(want, name)
		}
	}
	want = ofPods(want)
	entries := c.rows
	if c.OpenDaylight != nil {
		entries = c.entries
	}
	lists, err := entries(ctx)
	if err != nil {
		return err
	}
	for list, has := range lists {
		if has = ofPods(has); !slices.Equal(has, want) {
			return fmt.Errorf("%s has %v: expected %v", list, has, want)
		}
	}
	return nil
}

// ofPods returns the names of pods among names of ports, sorted.
func ofPods(names []string) (pods []string) {
	for _, name := range names {
		if namespace, _, _ := strings.Cut(name, ":"); slices.Contains(podNamespaces, namespace) {
			pods = append(pods, name)
		}
	}
	slices.Sort(pods)
	return pods
}

// rows returns the names of the ports in OVN.
func (c *cluster) rows(ctx context.Context) (map[string][]string, error) {
	const table = "Logical_Switch_Port"
	out, err := c.OVN.NBCtl(ctx, "--bare", "--columns=name", "list", table)
	return map[string][]string{table: strings.Fields(out)}, err
}

// entries returns the names of the entries of ports in OpenDaylight.
func (c *cluster) entries(ctx context.Context) (map[string][]string, error) {
	lists := map[string][]string{}
	for path, list := range map[string]string{
		"ietf-interfaces:interfaces": "interface", "elan:elan-interfaces": "elan-interface", "l3vpn:vpn-interfaces": "vpn-interface",
	} {
		status, answer, err := c.OpenDaylight.Request(ctx, http.MethodGet, "/restconf/config/"+path, "")
		if err != nil {
			return nil, err
		}
		lists[list] = nil
		if status == http.StatusNotFound {
			continue
		}
		var all map[string]map[string][]struct{ Name string }
		if err := json.Unmarshal(answer, &all); err != nil || status != http.StatusOK {
			return nil, fmt.Errorf("read %s of OpenDaylight: %d: %s", path, status, answer)
		}
		for _, container := range all {
			for _, entry := range container[list] {
				lists[list] = append(lists[list], entry.Name)
			}
		}
	}
	return lists, nil
}

// hasTunnels fails unless the switch of each node has one tunnel to each other node.
func (c *cluster) hasTunnels(ctx context.Context) error {
	tunnel := "geneve"
	if c.OpenDaylight != nil {
		tunnel = "vxlan"
	}
	for _, host := range c.OVN.Hosts {
		out, err := host.VSCtl(ctx, "--bare", "--columns=name", "find", "Interface", "type="+tunnel)
		if err != nil {
			return err
		}
		if names := strings.Fields(out); len(names) != len(c.OVN.Hosts)-1 {
			return fmt.Errorf("node %s has the tunnels %v: expected %d", host.Name, names, len(c.OVN.Hosts)-1)
		}
	}
	return nil
}
