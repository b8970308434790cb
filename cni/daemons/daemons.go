// Package daemons has metrics of the daemons of Open vSwitch and OVN on this machine. It asks them at each scrape, over
// their control sockets, for what ovs-appctl and ovn-appctl show. On a machine with OVN's databases or ovn-northd it
// finds these too. It changes nothing, and starts nothing.
package daemons

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/cni/unixctl"
)

// Config configures a Collector.
type Config struct {
	// OVSRunDir and OVNRunDir have the control sockets.
	OVSRunDir, OVNRunDir string
	// OVN says that ovn-controller must run on this machine.
	OVN bool
}

// timeout bounds the questions to one daemon at a time. A daemon answers between two runs of its main loop.
const timeout = 2 * time.Second

// daemon says what is of interest in the answers of a daemon.
type daemon struct {
	name string
	// everywhere: it must run on every machine with a switch. Others are reported where they have a control socket.
	everywhere bool
	sizes      []string // of memory/show
	tasks      []string // of stopwatch/show
	parts      []string // nodes of inc-engine/show-stats
	database   string   // of cluster/status
}

var (
	ofOVS = []daemon{
		{name: "ovs-vswitchd", everywhere: true, sizes: []string{"rules", "udpif keys", "ports"}},
		{name: "ovsdb-server", everywhere: true, sizes: []string{"cells", "sessions"}},
	}
	ofOVN = []daemon{
		{
			name: "ovn-controller", everywhere: true, sizes: []string{"idl-cells-OVN_Southbound"},
			tasks: []string{"flow-generation", "flow-installation"}, parts: []string{"runtime_data", "logical_flow_output", "physical_flow_output"},
		},
		{name: "ovn-northd", tasks: []string{"ovn-northd-loop", "ovnnb_db_run", "build_flows_ctx"}, parts: []string{"northd", "lflow"}},
		{name: "ovnnb_db", sizes: []string{"cells", "sessions", "raft-log"}, database: "OVN_Northbound"},
		{name: "ovnsb_db", sizes: []string{"cells", "sessions", "raft-log"}, database: "OVN_Southbound"},
	}
)

var (
	up = prometheus.NewDesc("coe_agent_daemon_up",
		"1 if a daemon of Open vSwitch or OVN on this node answers within 2 s, otherwise 0: it is stopped, or busy for longer.",
		[]string{"daemon"}, nil)
	answered = prometheus.NewDesc("coe_agent_daemon_answer_seconds",
		"How long a daemon took to answer the question for its version: the rest of the run of its main loop.",
		[]string{"daemon"}, nil)
	size = prometheus.NewDesc("coe_agent_daemon_size",
		"What a daemon holds, as memory/show names it: rules (OpenFlow), udpif keys (flows of the datapath) and ports of ovs-vswitchd; idl-cells-OVN_Southbound of ovn-controller; cells, sessions and raft-log (entries since the last snapshot) of a database.",
		[]string{"daemon", "of"}, nil)
	task = prometheus.NewDesc("coe_agent_daemon_task_seconds",
		"How long a task of a daemon takes (stopwatch/show), by stat: p95, and recent, the average of the last runs.",
		[]string{"daemon", "task", "stat"}, nil)
	recomputes = prometheus.NewDesc("coe_agent_daemon_recomputes_total",
		"How often a part of ovn-controller or ovn-northd has computed everything again, not only what has changed (inc-engine/show-stats).",
		[]string{"daemon", "part"}, nil)
	leader = prometheus.NewDesc("coe_agent_database_leader",
		"1 if the server of a clustered database on this node leads, otherwise 0.", []string{"database"}, nil)
	term = prometheus.NewDesc("coe_agent_database_term",
		"Term of a clustered database. It grows with each election.", []string{"database"}, nil)
	uncommitted = prometheus.NewDesc("coe_agent_database_uncommitted",
		"Entries in the log of a clustered database that no majority has yet.", []string{"database"}, nil)
)

// Collector implements prometheus.Collector.
type Collector struct{ cfg Config }

// New returns a Collector.
func New(cfg Config) Collector { return Collector{cfg} }

// Describe implements prometheus.Collector.
func (c Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{up, answered, size, task, recomputes, leader, term, uncommitted} {
		out <- d
	}
}

// Collect implements prometheus.Collector. It asks all daemons at the same time.
func (c Collector) Collect(out chan<- prometheus.Metric) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ask := func(runDir string, all []daemon, here bool) {
		for _, d := range all {
			sockets, err := unixctl.Sockets(runDir, d.name)
			if here && d.everywhere || err == nil && len(sockets) > 0 {
				asking.Go(func() { d.collect(runDir, out) })
			}
		}
	}
	ask(c.cfg.OVSRunDir, ofOVS, true)
	ask(c.cfg.OVNRunDir, ofOVN, c.cfg.OVN)
}

func (d daemon) collect(runDir string, out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	took, answers, err := d.ask(ctx, runDir)
	metric := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{d.name}, labels...)...)
	}
	if err != nil {
		metric(up, prometheus.GaugeValue, 0)
		return
	}
	metric(up, prometheus.GaugeValue, 1)
	metric(answered, prometheus.GaugeValue, took.Seconds())
	for _, name := range d.sizes {
		if n, ok := held(answers[memory], name); ok {
			metric(size, prometheus.GaugeValue, n, name)
		}
	}
	for _, name := range d.tasks {
		if p95, recent, ok := measured(answers[stopwatch], name); ok {
			metric(task, prometheus.GaugeValue, p95, name, "p95")
			metric(task, prometheus.GaugeValue, recent, name, "recent")
		}
	}
	for _, name := range d.parts {
		if n, ok := recomputed(answers[engine], name); ok {
			metric(recomputes, prometheus.CounterValue, n, name)
		}
	}
	if role, ok := line(answers[cluster], "Role"); ok {
		d.cluster(out, role, answers[cluster])
	}
}

func (d daemon) cluster(out chan<- prometheus.Metric, role, status string) {
	leads := 0.0
	if role == "leader" {
		leads = 1
	}
	out <- prometheus.MustNewConstMetric(leader, prometheus.GaugeValue, leads, d.database)
	for desc, name := range map[*prometheus.Desc]string{term: "Term", uncommitted: "Entries not yet committed"} {
		text, _ := line(status, name)
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n, d.database)
		}
	}
}

// The commands.
const (
	version   = "version"
	memory    = "memory/show"
	stopwatch = "stopwatch/show"
	engine    = "inc-engine/show-stats"
	cluster   = "cluster/status"
)

// ask returns the answers of a daemon, by command, and how long it took to the first one. It fails if the daemon does
// not answer. Answers that a busy daemon does not give in time, and those to commands that it does not know, are missing.
func (d daemon) ask(ctx context.Context, runDir string) (took time.Duration, answers map[string]string, err error) {
	c, err := unixctl.Dial(ctx, runDir, d.name)
	if err != nil {
		return 0, nil, err
	}
	defer c.Close()
	begun := time.Now()
	if _, err := c.Ask(ctx, version); err != nil {
		return 0, nil, err
	}
	took = time.Since(begun)
	answers = map[string]string{}
	for _, q := range []struct {
		wanted  bool
		command string
		args    []string
	}{
		{len(d.sizes) > 0, memory, nil}, {len(d.tasks) > 0, stopwatch, nil}, {len(d.parts) > 0, engine, nil},
		{d.database != "", cluster, []string{d.database}},
	} {
		if !q.wanted {
			continue
		}
		if answer, err := c.Ask(ctx, q.command, q.args...); err == nil {
			answers[q.command] = answer
		}
	}
	return took, answers, nil
}

// holding is an entry of memory/show: "udpif keys:12". Names can have spaces, numbers cannot.
var holding = regexp.MustCompile(`([^:]+):(\d+)(?: |$)`)

// held returns a number of memory/show.
func held(text, name string) (n float64, ok bool) {
	for _, m := range holding.FindAllStringSubmatch(text, -1) {
		if m[1] == name {
			n, err := strconv.ParseFloat(m[2], 64)
			return n, err == nil
		}
	}
	return 0, false
}

// measured returns how long a task takes, in seconds, from stopwatch/show. ok is false for a task that was not measured
// yet.
func measured(text, name string) (p95, recent float64, ok bool) {
	_, text, ok = strings.Cut(text, "Statistics for '"+name+"'\n")
	if !ok {
		return 0, 0, false
	}
	text, _, _ = strings.Cut(text, "Statistics for")
	p95, first := milliseconds(text, "95th percentile")
	recent, second := milliseconds(text, "Short term average")
	return p95, recent, first && second
}

// milliseconds returns a line like "95th percentile: 12.5 msec" in seconds.
func milliseconds(text, name string) (seconds float64, ok bool) {
	value, _ := line(text, name)
	n, err := strconv.ParseFloat(strings.TrimSuffix(value, " msec"), 64)
	return n / 1000, err == nil
}

// recomputed returns how often a node of the engine has computed everything again.
func recomputed(text, node string) (n float64, ok bool) {
	_, text, ok = strings.Cut(text, "Node: "+node+"\n")
	if !ok {
		return 0, false
	}
	value, _ := line(text, "- recompute")
	n, err := strconv.ParseFloat(value, 64)
	return n, err == nil
}

// line returns the value of the first line "name: value".
func line(text, name string) (value string, ok bool) {
	for l := range strings.Lines(text) {
		if value, ok = strings.CutPrefix(strings.TrimSpace(l), name+":"); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
