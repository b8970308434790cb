package odl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// stateList is a list of the operational datastore.
type stateList struct{ module, container, list string }

// The lists with the operational state of our entries. Netvirt adds an interface to the first
// when its port is plugged in, and then to the others.
var (
	interfaceStates = stateList{"ietf-interfaces", "interfaces-state", "interface"}
	elanStates      = stateList{"elan", "elan-state", "elan"}
	vpnStates       = stateList{"odl-l3vpn", "vpn-instance-op-data", "vpn-instance-op-data-entry"}
	vpnMemberStates = stateList{"odl-l3vpn", "vpn-interface-op-data", "vpn-interface-op-data-entry"}
)

type interfaceState struct {
	Name   string   `json:"name"`
	Status string   `json:"oper-status"`
	Tag    uint64   `json:"if-index"`
	MAC    string   `json:"phys-address"` // of its port on the switch
	Below  []string `json:"lower-layer-if"`
}

// link returns what an interface's port has of the state.
func (e *interfaceState) link() link {
	l := link{status: e.Status, tag: e.Tag, mac: e.MAC}
	if len(e.Below) > 0 {
		if i := strings.LastIndexByte(e.Below[0], ':'); i > 0 { // openflow:SWITCH:PORT
			l.node = e.Below[0][:i]
		}
	}
	return l
}

type elanState struct {
	Name       string   `json:"name"`
	Interfaces []string `json:"elan-interfaces"`
}

type vpnState struct {
	Name     string `json:"vpn-instance-name"`
	ID       uint64 `json:"vpn-id"`
	RD       string `json:"vrf-id"`
	Switches []struct {
		ID         jsontext.Value `json:"dpnId"` // a number, or text with one
		Interfaces []struct {
			Name string `json:"interface-name"`
		} `json:"vpn-interfaces"`
	} `json:"vpn-to-dpn-list"`
}

type vpnMemberState struct {
	Name        string `json:"name"`
	VPN         string `json:"vpn-instance-name"`
	Going       bool   `json:"scheduled-for-remove"`
	Adjacencies []struct {
		Address string `json:"ip_address"`
		MAC     string `json:"mac_address"`
	} `json:"adjacency"`
}

// stateRequest returns the request for a list of the operational datastore, or for the
// entry with these keys.
func (s *session) stateRequest(l stateList, keys ...string) controller.Request {
	first, next := "/", "/"
	if s.dialect.Equal {
		first, next = "=", ","
	}
	url := s.base + s.dialect.Operational + "/" + l.module + ":" + l.container
	if len(keys) > 0 {
		url += "/" + l.list
	}
	for i, key := range keys {
		if i == 0 {
			url += first + controller.Escape(key)
		} else {
			url += next + controller.Escape(key)
		}
	}
	if s.dialect.State != "" {
		url += "?" + s.dialect.State
	}
	q := controller.Request{Method: http.MethodGet, URL: url, Media: s.dialect.Media, Timeout: s.cfg.Timeout, Small: true}
	if len(keys) == 0 {
		q.Timeout, q.Small = s.cfg.ReadTimeout, false
	}
	return q
}

// readState reads a list, or the entry with these keys; there is false if it does not exist.
func readState[E any](ctx context.Context, s *session, l stateList, add func(E), keys ...string) (there bool, err error) {
	return readStateBy(ctx, s, s.stateRequest(l, keys...), l, add, keys...)
}

// readStateBy is readState with a request.
func readStateBy[E any](ctx context.Context, s *session, q controller.Request, l stateList, add func(E), keys ...string) (there bool, err error) {
	err = s.Send(ctx, q, func(body io.Reader) error {
		if err := decodeState(body, l, len(keys) == 0, add); err != nil {
			return fmt.Errorf("read %s:%s: %w", l.module, l.container, err)
		}
		return nil
	})
	var answer *controller.AnswerError
	if errors.As(err, &answer) && (s.dialect.Missing(answer) || s.dialect.Opaque && answer.Status == http.StatusInternalServerError) {
		return false, nil
	}
	return err == nil, err
}

// decodeState reads an answer with a list in its container, or with a single entry.
func decodeState[E any](body io.Reader, l stateList, inContainer bool, add func(E)) error {
	d := controller.NewDecoder(body)
	found := false
	list := func(name string) error {
		if !named(name, l.module, l.list) {
			return d.SkipValue()
		}
		found = true
		return eachState(d, add)
	}
	err := members(d, func(name string) error {
		switch {
		case !inContainer:
			return list(name)
		case named(name, l.module, l.container):
			found = true
			return members(d, list)
		}
		return d.SkipValue()
	})
	return finish(d, err, found, l.module+":"+l.container)
}

func eachState[E any](d *jsontext.Decoder, add func(E)) error {
	if err := open(d, '['); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		var e E
		if err := json.UnmarshalDecode(d, &e); err != nil {
			return err
		}
		add(e)
	}
	_, err := d.ReadToken()
	return err
}

// addresses returns the interface's addresses, each in the form of addressOf.
func (e *vpnMemberState) addresses() string {
	var all []string
	for _, a := range e.Adjacencies {
		if prefix, err := netip.ParsePrefix(a.Address); err == nil {
			all = append(all, addressOf(prefix.Addr(), a.MAC))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// addressOf returns an address and its MAC address as text that is never part of another
// such text.
func addressOf(a netip.Addr, mac string) string {
	return a.String() + " " + strings.ToLower(mac) + "\n"
}
