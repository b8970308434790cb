package odl

import (
	"context"
	"errors"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// A controller with both modules has Netvirt's own COE renderer and its northbound.
const rendererModule, northboundModule = "pod-meta", "pod"

// connected returns the session, or a new one with the first controller that is ready. The
// caller holds the lock.
func (b *Backend) connected(ctx context.Context) (*controller.Session, error) {
	if b.session != nil {
		return b.session, nil
	}
	b.mirror = nil
	var failures []error
	for range b.urls {
		s, err := b.client.Open(ctx, b.urls[b.next])
		if err == nil {
			b.setSession(s)
			b.logConnected(s)
			b.warn(s)
			return s, nil
		}
		b.logged = ""
		failures = append(failures, err)
		b.next = (b.next + 1) % len(b.urls)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failures...)
}

// logConnected logs the controller if it is another one than before, or if none was ready.
func (b *Backend) logConnected(s *controller.Session) {
	if now := s.URL + " " + s.Dialect.Name; now != b.logged {
		b.logged = now
		b.log.Info("connected to OpenDaylight", "url", s.URL, "dialect", s.Dialect.Name, "l3vpn", s.Lists[codec.VPNInstances].Module)
	}
}

// warn logs once that the controller has a program for the same task.
func (b *Backend) warn(s *controller.Session) {
	if !b.warned && s.Serves(rendererModule) && s.Serves(northboundModule) {
		b.warned = true
		b.log.Warn("this OpenDaylight has a COE renderer of its own; do not let a COE watcher write pods to it, because both would write entries for the same pods",
			"module", rendererModule)
	}
}

// setSession sets the session. The caller holds the lock.
func (b *Backend) setSession(s *controller.Session) {
	b.session = s
	b.network.Use(s)
	if s != nil {
		b.shards.Use(s)
	}
}

// mayLeave reports whether an error of a session can be one of this controller alone. With several, another one is tried even if
// the controller answers each request: a member that is separated from its cluster answers 500, or has no data.
func (b *Backend) mayLeave(err error) bool {
	return !errors.Is(err, netvirt.ErrRejected) && (len(b.urls) > 1 || !controller.IsRefusal(err))
}

// discard drops the session; the next one is tried at the next URL. The caller holds the
// lock.
func (b *Backend) discard() {
	if b.session != nil {
		b.setSession(nil)
		b.next = (b.next + 1) % len(b.urls)
	}
	b.mirror = nil
}
