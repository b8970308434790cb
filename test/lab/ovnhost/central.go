package ovnhost

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// CentralNamespace is, after the lab's prefix, the name of the namespace of the central processes and of the
// bridge that connects the hosts.
const CentralNamespace = "central"

// underlayBridge connects the hosts' links in the central namespace.
const underlayBridge = "underlay"

// The schemas of the databases, for ovsdb.Schema.
const (
	nbSchema      = "ovn/ovn-nb"
	sbSchema      = "ovn/ovn-sb"
	vswitchSchema = "openvswitch/vswitch"
)

func (l *Lab) startCentral(ctx context.Context) error {
	if err := l.addUnderlay(ctx); err != nil {
		return fmt.Errorf("make underlay: %w", err)
	}
	if l.switchesOnly {
		return nil
	}
	dir := filepath.Join(l.Dir, CentralNamespace)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	var err error
	if l.NB, err = l.startDatabase(ctx, "nb", CentralNamespace, dir, nbSchema, listeners("OVN_Northbound", "NB_Global")...); err != nil {
		return err
	}
	if l.SB, err = l.startDatabase(ctx, "sb", CentralNamespace, dir, sbSchema, listeners("OVN_Southbound", "SB_Global")...); err != nil {
		return err
	}
	l.Northd = l.newProcess("northd", l.Namespace(CentralNamespace),
		"ovn-northd", "--ovnnb-db="+l.NB.Remote, "--ovnsb-db="+l.SB.Remote, "-vsyslog:off")
	l.Northd.env = runDir(dir)
	l.Northd.ready = func(ctx context.Context) error {
		_, err := l.NBCtl(ctx, "--wait=sb", "sync")
		return err
	}
	return l.Northd.Start(ctx)
}

// listeners lets a database listen at the addresses in its tables, like ovn-ctl. A new database has none.
func listeners(schema, table string) []string {
	return []string{
		"--remote=db:" + schema + "," + table + ",connections", "--private-key=db:" + schema + ",SSL,private_key",
		"--certificate=db:" + schema + ",SSL,certificate", "--ca-cert=db:" + schema + ",SSL,ca_cert",
	}
}

// runDir makes programs of OVS and OVN use dir for their sockets.
func runDir(dir string) []string {
	return []string{"OVS_RUNDIR=" + dir, "OVN_RUNDIR=" + dir}
}

// Database is an ovsdb-server with its database.
type Database struct {
	*Process
	// Remote is its address in the form of OVSDB clients: unix:PATH.
	Remote string

	file, schema string
}

func (l *Lab) startDatabase(ctx context.Context, name, namespace, dir, schema string, args ...string) (*Database, error) {
	socket := filepath.Join(dir, filepath.Base(name)+".sock")
	d := &Database{Remote: "unix:" + socket, file: filepath.Join(dir, filepath.Base(name)+".db"), schema: schema}
	d.Process = l.newProcess(name, l.Namespace(namespace),
		append([]string{"ovsdb-server", d.file, "--remote=p" + d.Remote, "-vsyslog:off"}, args...)...)
	d.env = runDir(dir)
	d.ready = func(ctx context.Context) error { return awaitSocket(ctx, socket) }
	if err := d.create(ctx); err != nil {
		return nil, err
	}
	return d, d.Start(ctx)
}

func (d *Database) create(ctx context.Context) error {
	if _, err := output(ctx, "ovsdb-tool", "create", d.file, ovsdb.Schema(d.schema)); err != nil {
		return fmt.Errorf("create database %s: %w", d.Name, err)
	}
	return nil
}

// File returns the path of the file to which the server appends each transaction.
func (d *Database) File() string { return d.file }

// Wipe restarts the server with an empty database.
func (d *Database) Wipe(ctx context.Context) error {
	if err := d.Kill(); err != nil {
		return err
	}
	if err := os.Remove(d.file); err != nil {
		return fmt.Errorf("wipe database %s: %w", d.Name, err)
	}
	if err := d.create(ctx); err != nil {
		return err
	}
	return d.Start(ctx)
}

// NBCtl runs ovn-nbctl on the northbound database, and returns its output.
func (l *Lab) NBCtl(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "ovn-nbctl", append([]string{"--db=" + l.NB.Remote}, args...)...)
}

// SBCtl runs ovn-sbctl on the southbound database, and returns its output.
func (l *Lab) SBCtl(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "ovn-sbctl", append([]string{"--db=" + l.SB.Remote}, args...)...)
}

var engineNode = regexp.MustCompile(`Node: (northd|lflow)\s+- recompute:\s+(\d+)`)

// Recomputes returns how often the nodes northd and lflow of northd's engine have computed everything again.
func (l *Lab) Recomputes(ctx context.Context) (sum int, err error) {
	out, err := l.NorthdCtl(ctx, "inc-engine/show-stats")
	if err != nil {
		return 0, err
	}
	nodes := engineNode.FindAllStringSubmatch(out, -1)
	if len(nodes) != 2 {
		return 0, fmt.Errorf("read the statistics of northd: want the nodes northd and lflow: %s", out)
	}
	for _, node := range nodes {
		count, err := strconv.Atoi(node[2])
		if err != nil {
			return 0, fmt.Errorf("read the statistics of northd: %w", err)
		}
		sum += count
	}
	return sum, nil
}

// NorthdCtl runs a command of ovn-northd, which northd executes between two computations, and returns its output.
func (l *Lab) NorthdCtl(ctx context.Context, args ...string) (string, error) {
	pid, err := l.Northd.PID()
	if err != nil {
		return "", err
	}
	control := filepath.Join(l.Dir, CentralNamespace, fmt.Sprintf("ovn-northd.%d.ctl", pid))
	return output(ctx, "ovn-appctl", append([]string{"-t", control}, args...)...)
}
