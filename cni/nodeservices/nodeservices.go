// Package nodeservices leads packets from a node to services and pods, and answers the health checks of load balancers.
// It makes ports of the node from the ports of services that the bridge reports and the host ports of its pods in the switch:
// for clients of the node, for its own programs and, if the pod network does not balance, for its pods. Package nodeports writes
// these ports on the node, package podservices in the network namespaces of its pods, and package healthchecks answers.
//
// It knows where the node is in the pod network, but not how the node is connected: package node makes the link and the rules
// that these ports need, and says in each check whether they are in place.
package nodeservices

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/healthchecks"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/podservices"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// Config configures Services.
type Config struct {
	Switch *ovs.Switch    // run by the caller
	Uplink *uplink.Uplink // run by the caller
	// Netns is the node's network namespace.
	Netns    netns.NsHandle
	Settings links.Settings
	// Link is the link to the pod network, and EgressLinks are further links of pods, as in porttables.Config.
	Link, EgressLinks string
	// OpenDaylight is set if OpenDaylight programs the switch. It does not balance, so the node leads its pods to services.
	OpenDaylight bool
	// OfDatabase reports whether pods must not reach a port through the node.
	OfDatabase func(port uint16) bool
	// FreshFor is how long after the bridge was last heard endpoints on other nodes count as current.
	FreshFor time.Duration
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// unwellAfter is how long repairs may fail until health checks of load balancers fail. Existing connections
// and endpoints outlive short failures, for example a restart of the switch.
const unwellAfter = time.Minute

// State is what a check of the node has found.
type State struct {
	// Place is where the node is in the pod network; nil for nowhere.
	Place *uplink.Place
	// Connected is set if the node matches its place.
	Connected bool
	// LacksIPv6 is set if the node cannot have IPv6, although its place has. RuledIPv6 is set once the rules of IPv6 were
	// written: they keep forged sources out.
	LacksIPv6, RuledIPv6 bool
}

// Services makes a node answer for services and pods. A check of the node is Begin; Remove, if the node leaves; Sync; and End. Only one
// goroutine may check the node. Others may call AwaitHostPorts, CheckHostPorts, ServesHostPorts and LeadPod meanwhile.
type Services struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	ports   *porttables.Table
	// pods are the pods that are led to services; unledPods is set when no rules of a former process are left in pods.
	pods      *podservices.Pods
	unledPods bool
	health    *healthchecks.Server
	hosts     hostPorts
	// at is the state at the last check, and lacksIPv6 is its LacksIPv6 for other goroutines.
	at        State
	lacksIPv6 atomic.Bool
	// fed is the place for which ports has the ports of services; nil if it does not have them.
	fed *uplink.Place
	// begun is the generation of nftables at which the check began, and unread is why it is unknown.
	begun  uint32
	unread error
	// well is set once everything was as it should be. failing is when repairs began to fail; zero while they do not.
	well    bool
	failing time.Time
	// own are the ports for the node's own programs and for clients inside the cluster, by what they were made from.
	own map[string][]nodeports.Port
}

// New returns Services.
func New(cfg Config) *Services {
	return &Services{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Registry),
		ports:  porttables.New(porttables.Config{Netns: cfg.Netns, Link: cfg.Link, EgressLinks: cfg.EgressLinks}),
		pods:   podservices.New(cfg.Netns, cfg.Log),
		health: healthchecks.New(cfg.Netns),
		hosts:  hostPorts{asked: make(chan struct{}, 1)}, own: map[string][]nodeports.Port{},
	}
}

// Close ends the answers to health checks, and leaves everything else in place.
func (s *Services) Close() {
	if err := s.health.Close(); err != nil {
		s.log.Warn("could not end the health checks of load balancers", "err", err)
	}
	s.pods.Close()
}

// Begin begins a check of the node, before anything of it is checked.
func (s *Services) Begin() {
	s.begun, s.unread = porttables.Generation(s.cfg.Netns)
	s.at = State{}
	s.hosts.begin()
}

// Sync makes the node answer for services and pods, after its connection was checked. It changes nothing on the node while the bridge has not
// reported the ports, and without a place it only leaves pods to the network. asks is for questions to the switch. failed is what must be
// tried again soon. unanswered is why the node does not answer health checks: another program listens on the port.
func (s *Services) Sync(asks context.Context, at State) (failed, unanswered error) {
	if s.at = at; at.Place != nil {
		s.lacksIPv6.Store(at.LacksIPv6)
		s.readHostPorts(asks, at.Place)
		failed, unanswered = s.sync()
	}
	s.followPods(asks, at.Place)
	return failed, unanswered
}

// Follow programs the ports of services that have changed since the last check, like Sync. It does nothing if that check did not
// know the ports: the next one programs them.
func (s *Services) Follow() (failed, unanswered error) {
	if s.at.Place == nil || s.fed != s.at.Place {
		return nil, nil
	}
	return s.sync()
}

// End ends a check, and answers the calls that waited for host ports when it began.
func (s *Services) End() {
	if s.at.Place != nil && s.unread == nil {
		s.ports.Begin(s.begun)
	}
	s.hosts.end()
}

// Alone reports whether nobody else has changed nftables since the last check began.
func (s *Services) Alone() bool { return s.ports.Alone() }

// Refresh notes that endpoints on other nodes are current while the bridge is heard.
func (s *Services) Refresh() error {
	return s.ports.Refresh(s.cfg.Uplink.Heard().Add(s.cfg.FreshFor))
}

// Remove removes all ports from the node, before the link and the rules that they need. CleanupPods removes those in pods.
func (s *Services) Remove() (removed bool, err error) {
	if err := s.allowLoopback(false); err != nil {
		return false, err // the table keeps others out
	}
	s.ports.Replace(nil)
	s.pods.Replace(nil, nil)
	s.pods.Sync()
	s.fed = nil
	removed, err = s.ports.Sync(nodeports.Place{}, porttables.Hosts{}, nil)
	s.metrics.ports.Set(0)
	s.metrics.hostPorts.Set(0)
	return removed, errors.Join(err, s.health.Sync(nil, false))
}

// sync makes the node answer for services and pods in the state of the last check.
func (s *Services) sync() (failed, unanswered error) {
	failed = errors.Join(s.syncPorts(s.at.Place), s.Refresh())
	return failed, s.syncHealthChecks(s.at.Place, s.healthy(s.at.Connected && s.ports.Current()))
}

// feed gives the table the ports of services that have changed; all after a change of the place. It returns the
// addresses of all nodes. known is false while the ports are not known.
func (s *Services) feed(place *uplink.Place) (nodes []netip.Addr, known bool) {
	c, known := s.cfg.Uplink.TakeExposed(s.fed != place)
	if !known {
		return nil, false
	}
	s.fed = place
	switch {
	case !s.leads(place):
		s.ports.Replace(nil)
		s.pods.Replace(nil, slices.Concat(place.Services, place.Pods))
		clear(s.own)
	case c.All:
		clear(s.own)
		all := make([]nodeports.Port, 0, len(c.Put))
		slices.SortFunc(c.Put, byNeedOfPods)
		var ofPods []nodeports.Port
		for _, e := range c.Put {
			all = append(all, s.exposedPorts(e, place)...)
			if p, leads := s.podPort(e, place); leads {
				ofPods = append(ofPods, p)
			}
		}
		s.ports.Replace(all)
		s.pods.Replace(ofPods, slices.Concat(place.Services, place.Pods))
	default:
		for _, e := range c.Gone {
			s.remove(e, place)
		}
		for _, e := range c.Put {
			s.put(e, place)
		}
	}
	s.pods.Sync()
	return c.Nodes, true
}

// healthy reports whether health checks of load balancers succeed, after repairs that did or did not succeed.
func (s *Services) healthy(repaired bool) bool {
	switch {
	case repaired:
		s.well, s.failing = true, time.Time{}
	case s.failing.IsZero():
		s.failing = time.Now()
	}
	return s.well && (s.failing.IsZero() || time.Since(s.failing) < unwellAfter)
}

// syncHealthChecks makes the node answer the health checks of load balancers. It changes nothing while they are
// not known. A node that leads nothing to services answers none.
func (s *Services) syncHealthChecks(place *uplink.Place, healthy bool) error {
	all, known := s.cfg.Uplink.HealthChecks()
	if !known {
		return nil
	}
	checks := map[uint16]healthchecks.Check{}
	if s.leads(place) {
		for _, c := range all {
			checks[c.Port] = healthchecks.Check{Namespace: c.Namespace, Service: c.Service, Endpoints: c.Endpoints}
		}
	}
	return s.health.Sync(checks, healthy)
}

// syncPorts makes the node answer on the node ports of services and the host ports of pods. It changes nothing
// while they are not known.
func (s *Services) syncPorts(place *uplink.Place) error {
	nodes, known := s.feed(place)
	if !known {
		s.hosts.failure = errors.New("the bridge has not sent the ports of services since the node booted")
		return nil
	}
	hosts, unread := s.hosts.are, s.hosts.unread
	at := s.placeOfPorts(place)
	if s.at.LacksIPv6 || !s.at.RuledIPv6 {
		at.IPv6 = nodeports.Addresses{}
	}
	loopback := hosts.Unknown || slices.ContainsFunc(hosts.Ports, func(p nodeports.HostPort) bool { return p.Address.IsLoopback() })
	if !loopback { // before the table, which may have no rules for it any more
		if s.hosts.failure = s.allowLoopback(false); s.hosts.failure != nil {
			return s.hosts.failure
		}
	}
	changed, err := s.ports.Sync(at, hosts, nodes)
	if s.hosts.failure = unread; !s.ports.Current() {
		s.hosts.failure = errors.Join(unread, err)
	}
	if loopback && !hosts.Unknown && s.ports.Current() {
		err = errors.Join(err, s.allowLoopback(true))
	}
	if err = errors.Join(unread, err); err == nil {
		s.metrics.ports.Set(float64(s.ports.Services()))
		s.metrics.ownPorts.Set(float64(s.ports.Own()))
		s.metrics.hostPorts.Set(float64(len(hosts.Ports)))
	}
	if changed {
		s.log.Debug("updated the node ports of services and the host ports of pods", "ports", s.ports.Services(), "hostPorts", len(hosts.Ports))
	}
	return err
}
