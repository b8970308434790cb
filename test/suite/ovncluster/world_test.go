package ovncluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/guide"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/synthapi"
)

// patience bounds each wait, also on a busy machine.
const patience = 2 * time.Minute

// world has three hosts, three machines with the databases of OVN, a Kubernetes that has only services, and a bridge.
type world struct {
	t            *testing.T
	lab          *ovnhost.Lab
	certificates string // the folder of deploy/ovn-certificates
	machines     []*machine
	program      string // coe-bridge
	data         string // the folder of its datastore
	layout       ovn.Layout
	kubernetes   *synthapi.API
	services     *synthapi.Resource[corev1.Service]
	slices       *synthapi.Resource[discoveryv1.EndpointSlice]
	bridge       *ovnhost.Process
	pods         []pod // of the namespace web
	families     [2]family
	count        int  // of all pods
	hasPolicy    bool // in the namespace of guarded pods
	isIsolated   bool
	isLoaded     bool // pods of the namespace load come and go
}

// step runs a part of the test. It needs the earlier parts.
func (w *world) step(name string, do func()) {
	w.t.Helper()
	whole := w.t
	defer func() { w.t = whole }()
	if !whole.Run(name, func(t *testing.T) { w.t = t; do() }) {
		whole.FailNow()
	}
}

func (w *world) await(what string, f func(context.Context) error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	require.NoError(w.t, ovnhost.Poll(ctx, f), what)
}

// start builds the world, with a layout of OVN. The databases of the lab end: the hosts follow the three machines.
func start(t *testing.T, layout ovn.Layout) *world {
	w := &world{
		t: t, lab: ovnhost.ForTest(t, "host1", "host2", "host3"), program: bridgetest.Program(t), data: t.TempDir(), layout: layout,
		families: [2]family{
			{portless: netip.MustParseAddr("10.96.0.10"), ports: netip.MustParseAddr("10.96.0.11")},
			{portless: netip.MustParseAddr("fd00:96::10"), ports: netip.MustParseAddr("fd00:96::11"), isIPv6: true},
		},
	}
	for _, p := range []*ovnhost.Process{w.lab.Northd, w.lab.SB.Process, w.lab.NB.Process} {
		require.NoError(t, p.Kill())
	}
	w.makeCertificates("host1", "host2", "host3")
	for i := range 3 {
		w.addMachine(i)
	}
	for _, m := range w.machines {
		m.configure(w.machines...)
	}
	w.startMachines()
	w.machines[0].guide("listeners", "OVN_NB_DB=unix:"+w.machines[0].dir+"/ovnnb_db.sock", "OVN_SB_DB=unix:"+w.machines[0].dir+"/ovnsb_db.sock")
	for _, h := range w.lab.Hosts {
		require.NoError(t, guide.Chassis(t.Context(), h, w.certificates))
		w.machines[0].guide("remotes", "OVS_RUNDIR="+h.Dir, "DATABASES="+w.addresses())
	}
	w.startKubernetes()
	w.startBridge(mapping.IsolationNone)
	w.applyNodes()
	return w
}

func (w *world) makeCertificates(nodes ...string) {
	w.t.Helper()
	script, err := filepath.Abs("../../../deploy/ovn-certificates")
	require.NoError(w.t, err)
	cmd := exec.CommandContext(w.t.Context(), script, nodes...)
	cmd.Dir = w.t.TempDir()
	out, err := cmd.CombinedOutput()
	require.NoError(w.t, err, "%s", out)
	w.certificates = filepath.Join(cmd.Dir, "certificates/ovn")
}

func (w *world) addMachine(i int) {
	w.t.Helper()
	name := "db" + strconv.Itoa(i+1)
	address, err := w.lab.AddMachine(w.t.Context(), i, name)
	require.NoError(w.t, err)
	m := &machine{w: w, name: name, address: address, dir: filepath.Join(w.lab.Dir, name), servers: map[string]*ovnhost.Process{}}
	w.machines = append(w.machines, m)
}

// startMachines starts all machines. None has a majority before another one runs.
func (w *world) startMachines() {
	w.t.Helper()
	for _, m := range w.machines {
		m.startDatabases()
	}
	for _, m := range w.machines {
		m.startNorthd()
	}
}

// addresses returns the addresses of the machines, as the guide writes them.
func (w *world) addresses() string {
	all := make([]string, 0, len(w.machines))
	for _, m := range w.machines {
		all = append(all, m.address.String())
	}
	return strings.Join(all, " ")
}

// startBridge starts a bridge that knows all members. It reads the southbound database by the listener for nodes.
func (w *world) startBridge(isolation mapping.Isolation) {
	w.t.Helper()
	at := func(port string) string {
		return "ssl:" + strings.ReplaceAll(w.addresses(), " ", ":"+port+",ssl:") + ":" + port
	}
	of := filepath.Join(w.certificates, "bridge")
	var err error
	w.bridge, err = w.lab.Launch(w.t.Context(), ovnhost.Command{
		Name: "coe-bridge-isolation-" + string(isolation), Pod: ovnhost.CentralNamespace,
		Argv: []string{
			w.program, "serve", "--dev", "--ovn-layout", string(w.layout), "--isolation", string(isolation), "--data-dir", w.data,
			"--kubeconfig", w.kubernetes.Kubeconfig, "--backend", "ovn", "--ovn-nb", at("6641"), "--ovn-sb", at("6642"),
			"--ovn-cert", of + "/tls.crt", "--ovn-key", of + "/tls.key", "--ovn-ca", of + "/ca.crt",
		},
		Ready: func(ctx context.Context) error { _, err := w.ask(ctx, "status"); return err },
	})
	require.NoError(w.t, err)
	w.isIsolated = isolation == mapping.IsolationNamespace
}

func (w *world) applyNodes() {
	w.t.Helper()
	text := "k8s-node:k8s-nodes:\n"
	for i, h := range w.lab.Hosts {
		text += fmt.Sprintf("- {uid: 40de0000-c0e0-4000-8000-%012d, host-name: %s, internal-ip-address: %s}\n", i+1, h.Name, h.Address)
	}
	w.apply(text)
}

// ask runs a client command of coe-bridge.
func (w *world) ask(ctx context.Context, args ...string) (string, error) {
	argv := slices.Concat([]string{"env", "COE_BRIDGE_PASSWORD=admin", w.program}, args)
	return w.lab.Exec(ctx, ovnhost.CentralNamespace, argv...)
}

// apply applies a YAML text with coe-bridge apply.
func (w *world) apply(text string) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "objects.yaml")
	require.NoError(w.t, os.WriteFile(file, []byte(text), 0o644))
	_, err := w.ask(w.t.Context(), "apply", "-f", file)
	require.NoError(w.t, err)
}

// awaitSync waits until the database has what the bridge wants.
func (w *world) awaitSync() {
	w.t.Helper()
	w.await("the bridge is in sync", func(ctx context.Context) error {
		said, err := w.ask(ctx, "status")
		if err == nil && !strings.Contains(said, "ovn: in sync") {
			err = errors.New(said)
		}
		return err
	})
}

// follow waits until the switches of all hosts have what the bridge wants.
func (w *world) follow() {
	w.t.Helper()
	w.awaitSync()
	w.await("all hosts follow", func(ctx context.Context) error {
		_, err := w.askDatabase(ctx, northbound, "--wait=hv", "sync")
		return err
	})
}

// followDenials is follow when more is denied. Open vSwitch 3.1 can keep flows that allow it: they are removed.
func (w *world) followDenials() {
	w.t.Helper()
	w.follow()
	isStale, err := w.lab.HasStaleFlows(w.t.Context())
	require.NoError(w.t, err)
	if isStale {
		require.NoError(w.t, w.lab.ForgetFlows(w.t.Context()))
	}
}

// awaitRow waits until the northbound database has a text in a column.
func (w *world) awaitRow(table, column, text string) {
	w.t.Helper()
	w.await("a row of "+table+" has "+text, func(ctx context.Context) error {
		said, err := w.askDatabase(ctx, northbound, "--bare", "--columns="+column, "list", table)
		if err == nil && !strings.Contains(said, text) {
			err = errors.New(said)
		}
		return err
	})
}

// askDatabase runs ovn-nbctl or ovn-sbctl on the machine that leads a database.
func (w *world) askDatabase(ctx context.Context, db string, args ...string) (string, error) {
	m, err := w.leads(ctx, db)
	if err != nil {
		return "", err
	}
	argv := []string{"ovn-" + db + "ctl", "--timeout=10", "--db=unix:" + filepath.Join(m.dir, "ovn"+db+"_db.sock")}
	return w.lab.Exec(ctx, m.name, append(argv, args...)...)
}

// leads returns the machine that leads a database.
func (w *world) leads(ctx context.Context, db string) (*machine, error) {
	errs := []error{fmt.Errorf("no machine leads %s", db)}
	for _, m := range w.machines {
		role, err := m.role(ctx, db)
		if role == "leader" {
			return m, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// leader waits for the machine that leads a database, and returns it.
func (w *world) leader(db string) (m *machine) {
	w.t.Helper()
	w.await(db+" has a leader", func(ctx context.Context) (err error) { m, err = w.leads(ctx, db); return err })
	return m
}
