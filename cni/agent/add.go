package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// add connects a pod to the network. An attachment that is already complete stays as it is.
func (a *Agent) add(ctx context.Context, at *attachment) (*current.Result, error) {
	ctx, done := a.running.begin(ctx, key(at.Attachment))
	defer done()
	release, err := a.attachments.take(ctx, key(at.Attachment))
	if err != nil {
		return nil, err
	}
	defer release()
	inPod, err := at.open(a.cfg.Node)
	if err != nil {
		return nil, err
	}
	defer func() { _ = inPod.Close() }()

	var undo undo
	defer undo.end()
	result, err := a.addUndoably(ctx, at, inPod, &undo)
	if err != nil {
		return nil, errors.Join(err, undo.run(ctx))
	}
	return result, nil
}

func (a *Agent) addUndoably(ctx context.Context, at *attachment, inPod netns.NsHandle, undo *undo) (*current.Result, error) {
	if at.pod.external {
		if err := a.timed(ctx, "post", func() error { return a.post(ctx, at, undo) }); err != nil {
			return nil, err
		}
	}
	var record *uplink.Record
	err := a.timed(ctx, "record", func() (err error) {
		record, err = a.record(ctx, at)
		return err
	})
	if err != nil {
		return nil, err
	}
	release, err := a.ports.take(ctx, record.Port)
	if err != nil {
		return nil, err
	}
	undo.hold(release)
	if record, err = a.latest(at, record); err != nil {
		return nil, err
	}
	if err := a.reaches(ctx, record); err != nil {
		return nil, err
	}
	p, err := a.plan(ctx, at, record, inPod)
	if err != nil {
		return nil, err
	}
	return a.plug(ctx, p, undo)
}

// record waits for the record of the pod's interface. It fails if the record differs from
// the addresses or the MAC address that the caller requested.
func (a *Agent) record(ctx context.Context, at *attachment) (*uplink.Record, error) {
	r, err := a.cfg.Uplink.Await(ctx, at.pod.is)
	if err != nil {
		return nil, types.NewError(types.ErrTryAgainLater, fmt.Sprintf("pod %s has no address yet", at.pod), a.explain(ctx, at, err).Error())
	}
	return r, at.accepts(r)
}

// latest returns the record of the pod's interface now that its port is taken: the bridge can have sent another one since record has returned.
// From now on KeepDirect waits for the port.
func (a *Agent) latest(at *attachment, earlier *uplink.Record) (*uplink.Record, error) {
	r := a.cfg.Uplink.Find(at.pod.is)
	if r == nil || r.Port != earlier.Port {
		return nil, types.NewError(types.ErrTryAgainLater, fmt.Sprintf("pod %s was deleted or replaced during the ADD", at.pod), "")
	}
	return r, at.accepts(r)
}

// accepts fails if a record differs from the addresses or the MAC address that the caller requested.
func (at *attachment) accepts(r *uplink.Record) error {
	for _, want := range at.network.wanted.addresses {
		if !slices.ContainsFunc(r.Addresses, func(has uplink.Address) bool { return has.IP == want }) {
			return invalid("requested address %s differs from the addresses of pod %s: %s", want, at.pod, addressesOf(r))
		}
	}
	if want := at.network.wanted.mac; want != "" && !strings.EqualFold(want, r.MAC) {
		return invalid("requested MAC address %s differs from the MAC address of pod %s: %s", want, at.pod, r.MAC)
	}
	return nil
}

// reaches returns an error if the node is not connected to the physical network of an interface. Nobody else would report that the
// pod does not reach its machines, nor the pods of its namespace on other nodes.
func (a *Agent) reaches(ctx context.Context, r *uplink.Record) error {
	if r.Physical == "" {
		return nil
	}
	bridge, named := a.cfg.Physical.Bridges[r.Physical]
	if !named {
		return fmt.Errorf("node %s is not connected to physical network %s: start its agent with --physical-bridge %s=BRIDGE, or keep the pods of namespace %s off the node",
			r.Node, r.Physical, r.Physical, r.Namespace)
	}
	if r.Node != a.cfg.Physical.Node.String() {
		return fmt.Errorf("node %s is %s in the bridge, which gives physical network %s the latter name: start the agent with that address", a.cfg.Physical.Node, r.Node, r.Physical)
	}
	bridges, err := a.cfg.Switch.Bridges(ctx)
	if err != nil {
		return err
	}
	if _, exists := bridges[bridge]; exists {
		return a.cfg.Switch.MapPhysical(ctx, a.cfg.Physical)
	}
	return fmt.Errorf("node %s has no bridge %s for physical network %s: run ovs-vsctl add-br %s -- add-port %s NIC there, with the NIC of the network",
		r.Node, bridge, r.Physical, bridge, bridge)
}

// explainTimeout bounds the request for the reason of a missing record.
const explainTimeout = 2 * time.Second

// explain adds the reason that the bridge reports for the pod, if it has one, to err.
func (a *Agent) explain(ctx context.Context, at *attachment, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
	defer cancel()
	if !a.cfg.Uplink.Status().Connected || len(at.pod.uid) != uidLength {
		return err
	}
	if reason, failed := a.cfg.Uplink.Problem(ctx, at.pod.namespace, at.pod.uid); failed == nil && reason != "" {
		return fmt.Errorf("%w; the bridge reports: %s", err, reason)
	}
	return err
}

func addressesOf(r *uplink.Record) []netip.Addr {
	all := make([]netip.Addr, len(r.Addresses))
	for i, a := range r.Addresses {
		all[i] = a.IP
	}
	return all
}

// plan is the wanted state of an attachment on this node.
type plan struct {
	at     *attachment
	record *uplink.Record
	pair   links.Pair
	port   vif.Port
}

func (a *Agent) plan(ctx context.Context, at *attachment, r *uplink.Record, inPod netns.NsHandle) (plan, error) {
	mac, err := r.HardwareAddr()
	if err != nil {
		return plan{}, err
	}
	p := plan{at: at, record: r}
	p.port = vif.Port{Name: r.Port, Interface: r.Name, PodUID: r.PodUID, MAC: r.MAC, Addresses: addressesOf(r), Attachment: at.Attachment}
	p.port.HostPorts = at.network.wanted.hostPorts
	if given := at.network.IsDefaultGateway; given != nil {
		p.port.DefaultGateway = strconv.FormatBool(*given)
	}
	p.pair = links.Pair{
		Node: a.cfg.Node, Pod: inPod, Port: r.Port, Owner: owner(at.Attachment), Name: at.IfName, MAC: mac, MTU: r.MTU,
		Settings: a.cfg.Settings,
	}
	for _, address := range r.Addresses {
		p.pair.Addresses = append(p.pair.Addresses, address.Prefix())
	}
	place, _, _ := a.cfg.Uplink.Place()
	p.pair.Routes, p.pair.Neighbours = a.routes(p.port, r, place)
	if p.pair.MTU == 0 {
		if p.pair.MTU, err = MTU(ctx, a.cfg.Switch, a.cfg.Node); err != nil {
			return plan{}, err
		}
	}
	p.pair.SoftwareChecksums, err = a.cfg.Switch.Userspace(ctx)
	return p, err
}

// step is one step of an ADD, and how to undo it.
type step struct {
	name     string
	do, undo func(context.Context) error
}

// steps creates the plan. The port comes as early as possible: the switch and the network
// work while the agent configures the pod's end. A call that is refused changes nothing.
func (a *Agent) steps(p plan, undo *undo) []step {
	var added time.Time
	return []step{
		{
			"claim",
			func(ctx context.Context) error { return a.claim(ctx, p, undo) }, nil,
		},
		{
			"replace",
			func(ctx context.Context) error { return a.unplug(ctx, p.port.Name, nil) }, nil,
		},
		{
			"settle",
			func(ctx context.Context) error { return a.released(ctx, p) }, nil,
		},
		{
			"links",
			func(context.Context) error {
				return a.kernel.do(func() error { return links.Make(p.pair) })
			},
			func(context.Context) error { return a.deleteLink(p.pair.Port) },
		},
		{
			"dhcp",
			func(context.Context) error { return a.serveDHCP(p.port, p.record) },
			func(context.Context) error {
				a.dhcp.Stop(p.port.Name)
				return nil
			},
		},
		{
			"port",
			func(ctx context.Context) error {
				added = time.Now()
				return a.cfg.Switch.Add(ctx, p.port)
			},
			func(ctx context.Context) error { return a.cfg.Switch.Delete(ctx, p.port.Name, p.port.Attachment) },
		},
		{
			"addresses",
			func(ctx context.Context) error {
				return a.kernel.do(func() error { return links.Configure(ctx, p.pair) })
			}, nil, // deleting the links removes them
		},
		{
			"network",
			func(ctx context.Context) error {
				if err := a.connected(ctx, p); err != nil {
					return err
				}
				a.measureFlows(ctx, p.port.Name, added)
				return nil
			}, nil,
		},
		{
			"hostports",
			func(ctx context.Context) error { return a.opened(ctx, p) }, nil,
		},
		{
			"services",
			func(ctx context.Context) error {
				a.lead(ctx, p)
				return nil
			}, nil,
		},
		{
			"announce",
			func(context.Context) error {
				return a.kernel.do(func() error { return links.Announce(p.pair.Pod, p.pair.Name, p.pair.MAC, p.port.Addresses) })
			}, nil,
		},
	}
}

// plug creates what p describes. If all of it exists, plug only waits for the network.
func (a *Agent) plug(ctx context.Context, p plan, undo *undo) (*current.Result, error) {
	there, err := a.isPlugged(ctx, p)
	if err != nil {
		return nil, err
	}
	if there {
		if err := a.timed(ctx, "network", func() error { return a.connected(ctx, p) }); err != nil {
			return nil, err
		}
		if err := a.timed(ctx, "hostports", func() error { return a.opened(ctx, p) }); err != nil {
			return nil, err
		}
		a.lead(ctx, p)
		return p.result()
	}
	for _, s := range a.steps(p, undo) {
		if s.undo != nil {
			undo.before(s.undo)
		}
		if err := a.timed(ctx, s.name, func() error { return s.do(ctx) }); err != nil {
			return nil, err
		}
	}
	return p.result()
}

// isPlugged reports whether the port and the links of p exist as planned. It fails if the
// container is attached by another link: a pod has one interface.
func (a *Agent) isPlugged(ctx context.Context, p plan) (bool, error) {
	port, found, err := a.cfg.Switch.Port(ctx, p.port.Name)
	if err != nil || !found {
		return false, err
	}
	if port.Attachment.Container == p.at.Container && port.Attachment.IfName != p.at.IfName {
		return false, second(p.at, port.Attachment)
	}
	if !samePort(port, p.port) {
		return false, nil
	}
	inPod, err := links.Look(p.pair.Pod, p.pair.Name)
	if err == nil {
		_, err = links.Glance(p.pair.Node, p.pair.Port)
	}
	if errors.Is(err, links.ErrNotFound) {
		return false, nil
	}
	return err == nil && compare(inPod, p.pair.MAC, p.pair.Addresses, p.pair.Routes) == nil, err
}

// second is the error for a second link of one container.
func second(at *attachment, first vif.Attachment) error {
	return types.NewError(types.ErrInvalidNetworkConfig,
		fmt.Sprintf("pod %s is already attached by link %s", at.pod, first.IfName),
		fmt.Sprintf("coe-bridge gives a pod one interface: remove interface %s from network %s", at.IfName, at.network.Name))
}

func samePort(a, b vif.Port) bool {
	return a.Name == b.Name && a.Interface == b.Interface && a.PodUID == b.PodUID && a.MAC == b.MAC &&
		slices.Equal(a.Addresses, b.Addresses) && a.Attachment == b.Attachment && slices.Equal(a.HostPorts, b.HostPorts)
}
