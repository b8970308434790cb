package odl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"
)

// renewWait bounds how long the controller is given to take vpn-interfaces apart that are to
// be written anew, and renewPoll is between two looks at one.
const (
	renewWait = 10 * time.Second
	renewPoll = 50 * time.Millisecond
)

// renewed tells whether an entry is a vpn-interface that gets other vpn-instances or
// addresses. To write it over what is there changes what the controller has stored, and not
// the flows it has made: it has to go, and to come again (docs/decisions/0025).
func renewed(there, wanted entry) bool {
	was, ok := there.(*vpnInterface)
	if !ok {
		return false
	}
	now := wanted.(*vpnInterface)
	return !reflect.DeepEqual(was.VPNs, now.VPNs) || !reflect.DeepEqual(was.own().(*vpnInterface).Adjacencies, now.Adjacencies)
}

// takeApart deletes the entries that are to be written anew, and waits until the controller
// has taken apart what it made of them.
func (w *write) takeApart(ctx context.Context, all []*operation, found map[string]entry) error {
	var going []*operation
	for _, o := range all {
		there := found[o.key()]
		if there != nil && (o.there || mayTake(there)) && renewed(there, o.entry) {
			going = append(going, o)
		}
	}
	if err := w.each(ctx, going, w.detach); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, renewWait, errors.New("OpenDaylight has not taken apart what it is to make anew"))
	defer cancel()
	for _, o := range going {
		for _, vpn := range found[o.key()].(*vpnInterface).VPNs {
			if err := w.awaitGone(ctx, o.key(), vpn.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// detach deletes an entry that comes again.
func (w *write) detach(ctx context.Context, o *operation) error {
	err := w.send(ctx, w.request(http.MethodDelete, w.dialect.entry(&w.lists[o.list], o.key()), nil), nil)
	if isRefusal(err) || isAbsent(err) { // what can't go shows when it is written
		return nil
	}
	return err
}

// isAbsent tells whether an error is the answer that something is not there.
func isAbsent(err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && isNotFound(answer)
}

// awaitGone waits until the controller has nothing in operation for an interface in a
// vpn-instance.
func (w *write) awaitGone(ctx context.Context, name, vpn string) error {
	poll := time.NewTicker(renewPoll)
	defer poll.Stop()
	for {
		err := w.send(ctx, w.stateOf(name, vpn), nil)
		if isAbsent(err) || isRefusal(err) {
			return nil // RFC 8040 there says 500 of what is not there
		}
		if err != nil {
			return fmt.Errorf("look whether vpn-interface %s is gone: %w", name, err)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("write vpn-interface %s anew: %w", name, context.Cause(ctx))
		}
	}
}

// stateOf asks for what the controller has made of an interface in a vpn-instance.
func (w *write) stateOf(name, vpn string) request {
	first, second := "/", "/"
	if w.dialect.equal {
		first, second = "=", ","
	}
	url := w.base + w.dialect.operational + "/odl-l3vpn:vpn-interface-op-data/vpn-interface-op-data-entry" + first + escape(name) + second + escape(vpn)
	if w.dialect.state != "" {
		url += "?" + w.dialect.state
	}
	return request{method: http.MethodGet, url: url, media: w.dialect.media, timeout: w.cfg.Timeout}
}
