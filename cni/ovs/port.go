package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// Port is a port of ours, as the external_ids of its interface describe it.
type Port struct {
	Name      string // of the port and its link
	Interface string // the iface-id
	PodUID    string // iface-id-ver: a port of an older pod must not claim the interface of a newer one
	MAC       string
	Addresses []netip.Addr
	// Attachment is the interface of the container runtime that the port serves.
	Attachment Attachment
	HostPorts  []HostPort
	// DefaultGateway is isDefaultGateway of the network's configuration: "true", "false", or empty if it says nothing.
	DefaultGateway string
	// Replaced is set by Switch.Replace.
	Replaced bool
	// Unreadable are entries of host ports that another program has changed. They are of no effect.
	Unreadable []string
}

// HostPort is a port of the node that leads to a port of the pod.
type HostPort struct {
	Address  netip.Addr // of the node; unspecified for every address of its family
	Protocol string     // "tcp", "udp", "sctp"
	Number   uint16
	Pod      uint16 // port of the pod
}

// Overlaps reports whether a packet can be for both ports.
func (p HostPort) Overlaps(o HostPort) bool {
	return p.Protocol == o.Protocol && p.Number == o.Number && p.SameFamily(o.Address) &&
		(p.Address == o.Address || p.Address.IsUnspecified() || o.Address.IsUnspecified())
}

// SameFamily reports whether the port can lead to an address: it is of the same family.
func (p HostPort) SameFamily(a netip.Addr) bool { return p.Address.Is4() == a.Is4() }

// OtherFamily returns the same port at every address of the other family, if the port is one at every address; otherwise
// the zero value. A pod that names no address has both.
func (p HostPort) OtherFamily() HostPort {
	switch {
	case !p.Address.IsUnspecified():
		return HostPort{}
	case p.Address.Is4():
		p.Address = netip.IPv6Unspecified()
	default:
		p.Address = netip.IPv4Unspecified()
	}
	return p
}

// String returns the port for messages.
func (p HostPort) String() string {
	return fmt.Sprintf("host port %s %s", p.Protocol, netip.AddrPortFrom(p.Address, p.Number))
}

// encode returns the port in external_ids, and decodeHostPort reads it.
func (p HostPort) encode() string {
	return fmt.Sprintf("%s/%s/%d/%d", p.Protocol, p.Address, p.Number, p.Pod)
}

func decodeHostPort(text string) (p HostPort, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return p, fmt.Errorf("%q: want four parts", text)
	}
	p.Protocol = parts[0]
	address, errAddress := netip.ParseAddr(parts[1])
	number, errNumber := strconv.ParseUint(parts[2], 10, 16)
	pod, errPod := strconv.ParseUint(parts[3], 10, 16)
	p.Address, p.Number, p.Pod = address, uint16(number), uint16(pod)
	err = errors.Join(errAddress, errNumber, errPod)
	if err == nil && (!slices.Contains([]string{"tcp", "udp", "sctp"}, p.Protocol) || number == 0 || pod == 0) {
		err = fmt.Errorf("%q: the protocol or a port is invalid", text)
	}
	return p, err
}

// Attachment identifies an interface for the container runtime.
type Attachment struct {
	Network   string // the name of the CNI network
	Container string // the ID of the sandbox
	IfName    string // the link's name in the pod
	Netns     string // the path of the pod's namespace
}

// Same reports whether a and b have the same container and link.
func (a Attachment) Same(b Attachment) bool {
	return a.Container == b.Container && a.IfName == b.IfName
}

// The keys of external_ids. OVN, OpenDaylight and common tools also use the first four.
const (
	keyInterface = "iface-id"
	keyPodUID    = "iface-id-ver"
	keyMAC       = "attached-mac"
	keyAddresses = "ip-address"
	keyContainer = "coe-container"
	keyIfName    = "coe-ifname"
	keyNetns     = "coe-netns"
	keyNetwork   = "coe-network"
	keyHostPorts = "coe-host-ports"      // only of ports that have some
	keyDefault   = "coe-default-gateway" // only of ports whose configuration says it
	keyReplaced  = "coe-replaced"        // only of ports that were replaced: "true"
	keyInstalled = "ovn-installed"       // set by OVN
	// keyInstalledAt is when ovn-controller set it, in milliseconds since 1970.
	keyInstalledAt = "ovn-installed-ts"
)

func (p Port) externalIDs() map[string]string {
	addresses := make([]string, len(p.Addresses))
	for i, a := range p.Addresses {
		addresses[i] = a.String()
	}
	ids := map[string]string{
		keyInterface: p.Interface, keyPodUID: p.PodUID, keyMAC: p.MAC, keyAddresses: strings.Join(addresses, " "),
		keyContainer: p.Attachment.Container, keyIfName: p.Attachment.IfName, keyNetns: p.Attachment.Netns, keyNetwork: p.Attachment.Network,
	}
	if len(p.HostPorts) > 0 {
		texts := make([]string, len(p.HostPorts))
		for i, h := range p.HostPorts {
			texts[i] = h.encode()
		}
		ids[keyHostPorts] = strings.Join(texts, " ")
	}
	if p.DefaultGateway != "" {
		ids[keyDefault] = p.DefaultGateway
	}
	return ids
}

// portOf returns the port in a row; ok is false if it is not ours.
func portOf(row *vswitch.Interface) (p Port, ok bool) {
	ids := row.ExternalIDs
	p = Port{
		Name: row.Name, Interface: ids[keyInterface], PodUID: ids[keyPodUID], MAC: ids[keyMAC], DefaultGateway: ids[keyDefault], Replaced: ids[keyReplaced] != "",
		Attachment: Attachment{Network: ids[keyNetwork], Container: ids[keyContainer], IfName: ids[keyIfName], Netns: ids[keyNetns]},
	}
	for _, text := range strings.Fields(ids[keyAddresses]) {
		if a, err := netip.ParseAddr(text); err == nil {
			p.Addresses = append(p.Addresses, a)
		}
	}
	for _, text := range strings.Fields(ids[keyHostPorts]) {
		if h, err := decodeHostPort(text); err == nil {
			p.HostPorts = append(p.HostPorts, h)
		} else {
			p.Unreadable = append(p.Unreadable, text)
		}
	}
	return p, p.Attachment.Container != "" && p.Attachment.IfName != ""
}

// Ports returns our ports, sorted by name.
func (s *Switch) Ports(ctx context.Context) ([]Port, error) {
	one, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	var rows []*vswitch.Interface
	if err := one.client.List(local, &rows); err != nil {
		return nil, fmt.Errorf("list ports: %w", err)
	}
	var ports []Port
	for _, row := range rows {
		if p, ok := portOf(row); ok {
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	return ports, nil
}

// Find returns the port of an attachment; ok is false if there is none. It copies only this
// row: with hundreds of ports, copying all would take most of a call's time.
func (s *Switch) Find(ctx context.Context, of Attachment) (p Port, ok bool, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return Port{}, false, err
	}
	var rows []*vswitch.Interface
	is := func(row *vswitch.Interface) bool { return isOf(row.ExternalIDs, of) }
	if err := one.client.WhereCache(is).List(local, &rows); err != nil {
		return Port{}, false, fmt.Errorf("find port of container %s: %w", of.Container, err)
	}
	if len(rows) == 0 {
		return Port{}, false, nil
	}
	p, ok = portOf(rows[0])
	return p, ok, nil
}

// Port returns our port with a name; ok is false if there is none.
func (s *Switch) Port(ctx context.Context, name string) (p Port, ok bool, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return Port{}, false, err
	}
	row, err := one.iface(name)
	if row == nil {
		return Port{}, false, err
	}
	p, ok = portOf(row)
	return p, ok, nil
}

// Add adds a port in one transaction. Its link must exist, and must be newer than
// AwaitDeletions. After an error the port may exist; Delete removes it.
func (s *Switch) Add(ctx context.Context, p Port) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	return s.add(ctx, one, p.Name, p.externalIDs())
}

// add adds a port with external_ids.
func (s *Switch) add(ctx context.Context, one *session, name string, ids map[string]string) error {
	iface := &vswitch.Interface{UUID: "interface", Name: name, ExternalIDs: ids}
	if s.cfg.Controller == OpenDaylight {
		number, err := s.numbers.next(one, name)
		if err != nil {
			return fmt.Errorf("choose the number of port %s: %w", name, err)
		}
		iface.OfportRequest = &number
	}
	ops, err := one.additions(s.cfg.Bridge, iface)
	if err != nil {
		return fmt.Errorf("add port %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	results, err := one.transact(ctx, ops...)
	if err != nil {
		return fmt.Errorf("add port %s: %w", name, err)
	}
	if results[len(results)-1].Count == 0 {
		return fmt.Errorf("add port %s: the switch has no bridge %s; %s", name, s.cfg.Bridge, s.cfg.Controller.hint())
	}
	return nil
}

func (o *session) additions(bridge string, iface *vswitch.Interface) ([]ovsdb.Operation, error) {
	port := &vswitch.Port{UUID: "port", Name: iface.Name, Interfaces: []string{iface.UUID}}
	ops, err := o.client.Create(iface)
	if err != nil {
		return nil, err
	}
	ofPort, err := o.client.Create(port)
	if err != nil {
		return nil, err
	}
	return append(append(ops, ofPort...), mutation("Bridge", "name", bridge, "ports", ovsdb.MutateOperationInsert, uuids(port.UUID))), nil
}

// Delete removes a port if it belongs to an attachment, and waits until it is gone. A
// missing port is not an error.
func (s *Switch) Delete(ctx context.Context, name string, of Attachment) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.remove(ctx, one, name, func(ids map[string]string) bool { return isOf(ids, of) }); err != nil {
		return fmt.Errorf("delete port %s: %w", name, err)
	}
	return s.await(ctx, name, func(one *session) error {
		row, err := one.iface(name)
		if err != nil || row == nil {
			return err
		}
		if p, _ := portOf(row); !p.Attachment.Same(of) {
			return nil
		}
		return errors.New("the port is still in the database")
	})
}

// remove removes a port of ours. It uses the local copy if the server still agrees.
// Otherwise it asks the server, because the copy possibly lacks a new port.
func (s *Switch) remove(ctx context.Context, one *session, name string, ours func(ids map[string]string) bool) error {
	row, err := one.iface(name)
	if err != nil {
		return err
	}
	if row != nil && ours(row.ExternalIDs) {
		s.numbers.keep(row)
	}
	if port := one.port(name, ours); port != "" && s.detach(ctx, one, name, port) == nil {
		return nil
	}
	named := ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)
	found, err := one.transact(ctx,
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Interface", Where: []ovsdb.Condition{named}, Columns: []string{"external_ids"}},
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Port", Where: []ovsdb.Condition{named}, Columns: []string{"_uuid"}})
	if err != nil {
		return err
	}
	if len(found[0].Rows) == 0 || len(found[1].Rows) == 0 {
		return nil
	}
	if ids, _ := found[0].Rows[0]["external_ids"].(ovsdb.OvsMap); !ours(texts(ids)) {
		return nil
	}
	port, _ := found[1].Rows[0]["_uuid"].(ovsdb.UUID)
	return s.detach(ctx, one, name, port.GoUUID)
}

// port returns the UUID of our port in the local copy; empty if there is none.
func (o *session) port(name string, ours func(ids map[string]string) bool) (uuid string) {
	row, err := o.iface(name)
	if err != nil || row == nil || !ours(row.ExternalIDs) {
		return ""
	}
	port := &vswitch.Port{Name: name}
	if err := o.client.Get(local, port); err != nil {
		return ""
	}
	return port.UUID
}

// detach removes a port from the bridge, which deletes it. It fails if the port does not
// exist.
func (s *Switch) detach(ctx context.Context, one *session, name, port string) error {
	row, err := one.root()
	if err != nil {
		return err
	}
	at := 0
	ops := []ovsdb.Operation{
		{
			Op: ovsdb.OperationWait, Table: "Port", Where: []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: port})},
			Columns: []string{"name"}, Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"name": name}}, Timeout: &at,
		},
		mutation("Bridge", "name", s.cfg.Bridge, "ports", ovsdb.MutateOperationDelete, uuids(port)),
	}
	_, err = one.transact(ctx, append(ops, (&topRow{row}).demand()...)...)
	return err
}

// demand returns the operations that request a new configuration number, and read it. The
// switch reports the number once it has applied the configuration.
func (r *topRow) demand() []ovsdb.Operation {
	return []ovsdb.Operation{r.change("next_cfg", ovsdb.MutateOperationAdd, 1), r.readNext()}
}

func (r *topRow) readNext() ovsdb.Operation {
	is := ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: r.UUID})
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Open_vSwitch", Columns: []string{"next_cfg"}, Where: []ovsdb.Condition{is}}
}

// demanded returns the configuration number that the last operation has read.
func demanded(results []ovsdb.OperationResult) int {
	rows := results[len(results)-1].Rows
	if len(rows) != 1 {
		return 0
	}
	next, _ := rows[0]["next_cfg"].(float64)
	return int(next)
}

// texts returns the strings of a map column.
func texts(m ovsdb.OvsMap) map[string]string {
	out := make(map[string]string, len(m.GoMap))
	for key, value := range m.GoMap {
		k, _ := key.(string)
		out[k], _ = value.(string)
	}
	return out
}

// isOf reports whether external_ids name an attachment.
func isOf(ids map[string]string, of Attachment) bool {
	return ids[keyContainer] == of.Container && ids[keyIfName] == of.IfName
}

func mutation(table, by string, name any, column string, mutator ovsdb.Mutator, value any) ovsdb.Operation {
	return ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: table, Where: []ovsdb.Condition{ovsdb.NewCondition(by, ovsdb.ConditionEqual, name)},
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(column, mutator, value)},
	}
}

func uuids(rows ...string) ovsdb.OvsSet {
	set := ovsdb.OvsSet{GoSet: make([]any, len(rows))}
	for i, row := range rows {
		set.GoSet[i] = ovsdb.UUID{GoUUID: row}
	}
	return set
}
