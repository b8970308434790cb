package odl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// site is where a controller runs, and with which other controllers.
type site struct {
	name      string // of its process and its folder, and of the member of the cluster
	namespace string
	address   netip.Addr
	heap      string       // the maximum size of its Java heap
	options   string       // further options of Java, each after a space
	members   []netip.Addr // of all members of its cluster; empty for a controller alone
}

var alone = site{name: "opendaylight", namespace: ovnhost.CentralNamespace, address: ovnhost.Central, heap: "2g"}

// memberHeap is the maximum size of the Java heap of a member of a cluster. Three members and their lab fit into 8 GB.
const memberHeap = "1g"

// memberOptions keep Java from optimising, for which three members would need the processors while they start. A member works as on a machine with
// eight processors: Netvirt does as many jobs at once, and each job waits for 15 s if another member refuses a group.
const memberOptions = " -XX:TieredStopAtLevel=1 -XX:ActiveProcessorCount=8 -XX:ParallelGCThreads=2 -XX:CICompilerCount=2"

// shardSettings is the path of the settings that say which members have a part of the datastore.
const shardSettings = "configuration/initial/module-shards.conf"

// shards are the parts of the datastore, beside that of the owners of entities, which all members have.
var shards = []string{"default", "topology", "inventory"}

// ConfigShard is the part of the datastore with the configuration of Netvirt.
const ConfigShard = "default-config"

// actorPort is the port at which members of a cluster reach each other.
const actorPort = 2550

// memberSettings are the settings of the actors of a member: address, address, members, name. A busy machine needs the last one:
// by default a member that is silent for three seconds counts as unreachable.
const memberSettings = `
odl-cluster-data.akka.remote.netty.tcp.hostname = "%s"
odl-cluster-data.akka.remote.artery.canonical.hostname = "%s"
odl-cluster-data.akka.cluster.seed-nodes = [%s]
odl-cluster-data.akka.cluster.roles = ["%s"]
odl-cluster-data.akka.cluster.failure-detector.acceptable-heartbeat-pause = 10 s
`

// actors returns the settings of actors of a member; empty for a controller alone.
func (s site) actors() string {
	if len(s.members) == 0 {
		return ""
	}
	seeds := make([]string, len(s.members))
	for i, m := range s.members {
		seeds[i] = fmt.Sprintf(`"akka.tcp://opendaylight-cluster-data@%s:%d"`, m, actorPort)
	}
	return fmt.Sprintf(memberSettings, s.address, s.address, strings.Join(seeds, ", "), s.name)
}

// shards returns the settings that give every member every shard.
func (s site) shards() string {
	names := make([]string, len(s.members))
	for i := range s.members {
		names[i] = fmt.Sprintf("%q", memberName(i))
	}
	var text strings.Builder
	text.WriteString("module-shards = [\n")
	for _, shard := range shards {
		fmt.Fprintf(&text, "  {name = %q, shards = [{name = %q, replicas = [%s]}]},\n", shard, shard, strings.Join(names, ", "))
	}
	text.WriteString("]\n")
	return text.String()
}

// title names the controller in reports of progress.
func (c *Controller) title() string {
	if len(c.members) == 0 {
		return string(c.release)
	}
	return string(c.release) + " " + c.name
}

// memberName returns the name of a member of a cluster; the first is 0.
func memberName(i int) string { return fmt.Sprintf("member-%d", i+1) }

// StartCluster is Start for the members of a cluster, each on a machine of the lab.
func StartCluster(ctx context.Context, cfg Config, members int) ([]*Controller, error) {
	all, err := startCluster(ctx, cfg, members)
	if err != nil {
		return nil, fmt.Errorf("start a cluster of OpenDaylight %s: %w", cfg.Release, err)
	}
	return all, nil
}

func startCluster(ctx context.Context, cfg Config, members int) (all []*Controller, err error) {
	installed, err := Install(ctx, cfg.Release, cfg.Progress)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, together(all, (*Controller).Close))
		}
	}()
	addresses := make([]netip.Addr, members)
	for i := range addresses {
		if addresses[i], err = cfg.Lab.AddMachine(ctx, i, memberName(i)); err != nil {
			return nil, err
		}
	}
	for i, address := range addresses {
		name := memberName(i)
		c, err := newController(cfg, installed, site{name: name, namespace: name, address: address, heap: memberHeap, options: memberOptions, members: addresses})
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, together(all, func(c *Controller) error { return c.launch(ctx, installed) })
}

// hostsFile is a file of a member, which it has instead of /etc/hosts.
const hostsFile = "hosts"

// hosts returns a hosts file by which the name of this machine leads to the member's address. Netvirt's id-manager names the member's
// parts of its pools by that address. Members with the same address would give away the same numbers.
func (s site) hosts() (string, error) {
	machine, err := os.Hostname()
	return fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", s.address, machine), err
}

// command returns the command line of the controller's process. A process in a namespace of the lab has its own mounts.
func (c *Controller) command() []string {
	karaf := []string{c.base.path("bin/karaf"), "daemon"}
	if len(c.members) == 0 {
		return karaf
	}
	return append([]string{"sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, c.base.path(hostsFile)}, karaf...)
}

// together calls f for all controllers at the same time. No member of a cluster is ready before most of them have started.
func together(all []*Controller, f func(*Controller) error) error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, c := range all {
		group.Go(func() { errs[i] = f(c) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// Name returns the name of the controller in its cluster, which is also the name of its namespace in the lab.
func (c *Controller) Name() string { return c.name }

// RestartCluster kills members of a cluster, and starts them at the same time, with their datastores.
func RestartCluster(ctx context.Context, members []*Controller) error {
	if err := together(members, (*Controller).Kill); err != nil {
		return err
	}
	return together(members, func(c *Controller) error { return c.Start(ctx) })
}

// WipeCluster is RestartCluster for all members, without their datastores.
func WipeCluster(ctx context.Context, members []*Controller) error {
	// No member may run when another one starts: it would give it its data.
	if err := together(members, (*Controller).Kill); err != nil {
		return err
	}
	return together(members, func(c *Controller) error { return c.Wipe(ctx) })
}

// apart is a table of nftables that drops what a member of a cluster and the others send each other.
var apart = fmt.Sprintf(`add table ip apart
add chain ip apart in { type filter hook input priority 0; }
add chain ip apart out { type filter hook output priority 0; }
add rule ip apart in tcp dport %[1]d drop
add rule ip apart in tcp sport %[1]d drop
add rule ip apart out tcp dport %[1]d drop
add rule ip apart out tcp sport %[1]d drop`, actorPort)

// Separate separates a member from the others. Switches and clients reach it.
func (c *Controller) Separate(ctx context.Context) error {
	_, err := c.Lab.Exec(ctx, c.namespace, "nft", apart)
	return err
}

// Join ends Separate.
func (c *Controller) Join(ctx context.Context) error {
	_, err := c.Lab.Exec(ctx, c.namespace, "nft", "delete table ip apart")
	return err
}

// Leader returns the member that leads a shard, as the logs of the members say: the one that became its leader last, and runs.
func Leader(members []*Controller, shard string) (*Controller, error) {
	var (
		leader *Controller
		since  string
	)
	for _, c := range members {
		if _, err := c.process.PID(); err != nil {
			continue
		}
		log, err := c.log()
		if err != nil {
			return nil, err
		}
		if at := ledSince(string(log), c.name+"-shard-"+shard); at > since {
			leader, since = c, at
		}
	}
	if leader == nil {
		return nil, fmt.Errorf("no member says in its log that it leads shard %s", shard)
	}
	return leader, nil
}

// ledSince returns the time at which a replica became the leader, as its member's log has it; empty if it is not.
func ledSince(log, replica string) (at string) {
	lines := slices.Collect(strings.Lines(log))
	for _, line := range slices.Backward(lines) {
		if strings.Contains(line, "Received role changed for "+replica+" from ") {
			if !strings.HasSuffix(strings.TrimSpace(line), " to Leader") {
				return ""
			}
			at, _, _ = strings.Cut(line, " ")
			return at
		}
	}
	return ""
}
