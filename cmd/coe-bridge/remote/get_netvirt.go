package remote

import (
	"context"
	"fmt"
	"strings"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

type elanInstances struct {
	List []struct {
		Name    string `json:"elan-instance-name"`
		Segment string `json:"segment-type"`
		ID      uint32 `json:"segmentation-id"`
		// Confirmed reports whether the backend has it; it is not in the tree.
		Confirmed bool `json:"confirmed"`
	} `json:"elan-instance"`
}

func readELANInstances(ctx context.Context, c *client.Client) (output.Table, any, error) {
	const top = "elan:elan-instances"
	var want, have elanInstances
	if err := getBoth(ctx, c, top, &want, &have); err != nil {
		return output.Table{}, nil, err
	}
	there := map[string]bool{}
	for _, e := range have.List {
		there[e.Name] = true
	}
	t := output.Table{Columns: []string{"NAME", "SEGMENT", "ID", "CONFIRMED"}, Empty: "no elan-instances: no pod is mapped"}
	for i := range want.List {
		e := &want.List[i]
		e.Confirmed = there[e.Name]
		segment := e.Segment[strings.LastIndexByte(e.Segment, '-')+1:]
		t.Rows = append(t.Rows, []string{e.Name, segment, fmt.Sprint(e.ID), yes(e.Confirmed)})
	}
	return t, output.Listed(want.List), nil
}

type vpnInstances struct {
	List []struct {
		Name   string `json:"vpn-instance-name"`
		Family struct {
			RD      []string `json:"route-distinguisher"`
			Targets struct {
				List []struct {
					Value string `json:"vrfRTValue"`
					Type  string `json:"vrfRTType"`
				} `json:"vpnTarget"`
			} `json:"vpnTargets"`
		} `json:"ipv4-family"`
		Confirmed bool `json:"confirmed"`
	} `json:"vpn-instance"`
}

func readVPNInstances(ctx context.Context, c *client.Client) (output.Table, any, error) {
	const top = "l3vpn:vpn-instances"
	var want, have vpnInstances
	if err := getBoth(ctx, c, top, &want, &have); err != nil {
		return output.Table{}, nil, err
	}
	there := map[string]bool{}
	for _, v := range have.List {
		there[v.Name] = true
	}
	t := output.Table{Columns: []string{"NAME", "RD", "TARGETS", "CONFIRMED"}, Empty: "no vpn-instances: no pod is mapped"}
	for i := range want.List {
		v := &want.List[i]
		v.Confirmed = there[v.Name]
		var targets []string
		for _, target := range v.Family.Targets.List {
			targets = append(targets, target.Value)
		}
		t.Rows = append(t.Rows, []string{
			v.Name, strings.Join(v.Family.RD, ","), strings.Join(targets, ","), yes(v.Confirmed),
		})
	}
	return t, output.Listed(want.List), nil
}

type interfaces struct {
	List []struct {
		Name   string `json:"name"`
		Parent string `json:"odl-interface:parent-interface"`
	} `json:"interface"`
}

type elanInterfaces struct {
	List []struct {
		Name string `json:"name"`
		ELAN string `json:"elan-instance-name"`
		MACs []struct {
			MAC     string `json:"mac-address"`
			Address string `json:"ip-prefix"`
		} `json:"static-mac-entries"`
	} `json:"elan-interface"`
}

// shownInterface is a row of coe-bridge get interfaces.
type shownInterface struct {
	Name      string   `json:"name"`
	ELAN      string   `json:"elan-instance-name"`
	MAC       string   `json:"mac-address"`
	Addresses []string `json:"addresses"`
	Port      string   `json:"parent-interface"`
	Confirmed bool     `json:"confirmed"`
}

func readInterfaces(ctx context.Context, c *client.Client) (output.Table, any, error) {
	var want interfaces
	var elan, have elanInterfaces
	if err := c.Get(ctx, client.Wanted, "ietf-interfaces:interfaces", &want); err != nil {
		return output.Table{}, nil, err
	}
	if err := getBoth(ctx, c, "elan:elan-interfaces", &elan, &have); err != nil {
		return output.Table{}, nil, err
	}
	ports := map[string]string{}
	for _, i := range want.List {
		ports[i.Name] = i.Parent
	}
	there := map[string]bool{}
	for _, i := range have.List {
		there[i.Name] = true
	}
	shown := []shownInterface{}
	t := output.Table{
		Columns: []string{"NAME", "ELAN", "MAC", "ADDRESSES", "PORT", "CONFIRMED"},
		Empty:   "no interfaces: no pod is mapped",
	}
	for _, i := range elan.List {
		one := shownInterface{Name: i.Name, ELAN: i.ELAN, Port: ports[i.Name], Confirmed: there[i.Name]}
		for _, m := range i.MACs {
			one.MAC = m.MAC
			one.Addresses = append(one.Addresses, m.Address)
		}
		shown = append(shown, one)
		t.Rows = append(t.Rows, []string{
			one.Name, one.ELAN, one.MAC, strings.Join(one.Addresses, ","), one.Port, yes(one.Confirmed),
		})
	}
	return t, shown, nil
}

// getBoth reads a tree as it is wanted, and as the backend has confirmed it.
func getBoth(ctx context.Context, c *client.Client, top string, want, have any) error {
	if err := c.Get(ctx, client.Wanted, top, want); err != nil {
		return err
	}
	return c.Get(ctx, client.Confirmed, top, have)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
