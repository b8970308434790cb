package daemons

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// Answers of OVN 23.03.1 and Open vSwitch 3.1.0.
const (
	memoryText    = "handlers:1 idl-cells-Open_vSwitch:512 ofconns:1 ports:5 revalidators:1 rules:42 udpif keys:7"
	stopwatchText = `Statistics for 'ovnnb_db_run'
  Total samples: 22
  Maximum: 31 msec
  Minimum: 0 msec
  95th percentile: 27.950000 msec
  Short term average: 9.432134 msec
  Long term average: 4.000000 msec
Statistics for 'ovn-northd-loop'
  Total samples: 0`
	engineText = `Node: northd
- recompute:           17
- compute:              3
- cancel:               0
Node: lflow
- recompute:           12
- compute:              5
- cancel:               0`
	clusterText = `a1b2
Name: OVN_Southbound
Role: follower
Term: 3
Leader: c3d4
Log: [2, 145]
Entries not yet committed: 1
Entries not yet applied: 0`
)

// serve answers commands at a control socket until the test ends. A command without an answer is unknown.
func serve(t *testing.T, socket string, answers map[string]string) {
	serveSlowly(t, socket, 0, answers)
}

// serveSlowly is serve with a pause before each answer.
func serveSlowly(t *testing.T, socket string, pause time.Duration, answers map[string]string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				in, out := json.NewDecoder(conn), json.NewEncoder(conn)
				var question struct {
					Method string
					Params []string
				}
				for in.Decode(&question) == nil {
					<-time.After(pause)
					answer := map[string]any{"id": 0, "result": nil, "error": "unknown command"}
					if text, known := answers[strings.Join(append([]string{question.Method}, question.Params...), " ")]; known {
						answer = map[string]any{"id": 0, "result": text, "error": nil}
					}
					if out.Encode(answer) != nil {
						return
					}
				}
			}()
		}
	}()
}

func TestCollector(t *testing.T) {
	dir := t.TempDir()
	serve(t, filepath.Join(dir, "ovs-vswitchd.17.ctl"), map[string]string{"version": "ovs-vswitchd", "memory/show": memoryText})
	serve(t, filepath.Join(dir, "ovn-northd.18.ctl"), map[string]string{
		"version": "", "stopwatch/show": stopwatchText, "inc-engine/show-stats": engineText,
	})
	serve(t, filepath.Join(dir, "ovnnb_db.ctl"), map[string]string{"version": "", "memory/show": ""})
	serve(t, filepath.Join(dir, "ovnsb_db.ctl"), map[string]string{
		"version": "", "memory/show": "atoms:9 cells:1234 monitors:2 raft-log:145 sessions:2", "cluster/status OVN_Southbound": clusterText,
	})
	// A process that is stopped accepts connections, and does not answer.
	hung, err := net.Listen("unix", filepath.Join(dir, "ovn-controller.19.ctl"))
	require.NoError(t, err)
	defer func() { _ = hung.Close() }()

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(Config{OVSRunDir: dir, OVNRunDir: dir, OVN: true}))
	require.Equal(t, []string{
		"coe_agent_daemon_recomputes_total ovn-northd lflow 12",
		"coe_agent_daemon_recomputes_total ovn-northd northd 17",
		"coe_agent_daemon_size ovnsb_db cells 1234",
		"coe_agent_daemon_size ovnsb_db raft-log 145",
		"coe_agent_daemon_size ovnsb_db sessions 2",
		"coe_agent_daemon_size ovs-vswitchd ports 5",
		"coe_agent_daemon_size ovs-vswitchd rules 42",
		"coe_agent_daemon_size ovs-vswitchd udpif keys 7",
		"coe_agent_daemon_task_seconds ovn-northd p95 ovnnb_db_run 0.02795",
		"coe_agent_daemon_task_seconds ovn-northd recent ovnnb_db_run 0.009432134",
		"coe_agent_daemon_up ovn-controller 0",
		"coe_agent_daemon_up ovn-northd 1",
		"coe_agent_daemon_up ovnnb_db 1",
		"coe_agent_daemon_up ovnsb_db 1",
		"coe_agent_daemon_up ovs-vswitchd 1",
		"coe_agent_daemon_up ovsdb-server 0",
		"coe_agent_database_leader OVN_Southbound 0",
		"coe_agent_database_term OVN_Southbound 3",
		"coe_agent_database_uncommitted OVN_Southbound 1",
	}, gathered(t, registry))

	// On a node of OpenDaylight nothing of OVN must run.
	registry = prometheus.NewPedanticRegistry()
	registry.MustRegister(New(Config{OVSRunDir: t.TempDir(), OVNRunDir: t.TempDir()}))
	require.Equal(t, []string{"coe_agent_daemon_up ovs-vswitchd 0", "coe_agent_daemon_up ovsdb-server 0"}, gathered(t, registry))
}

// A process that does not answer does not hang the agent.
func TestChassisOfStopped(t *testing.T) {
	dir := t.TempDir()
	hung, err := net.Listen("unix", filepath.Join(dir, "ovn-controller.19.ctl"))
	require.NoError(t, err)
	defer func() { _ = hung.Close() }()
	_, known := ChassisName(t.Context(), dir, nil)
	require.False(t, known)
	name, known := ChassisName(t.Context(), dir, []string{"former", "node1"})
	require.True(t, known)
	require.Equal(t, "node1", name)
}

// A daemon that is slow is up, and its first answers count.
func TestSlowDaemon(t *testing.T) {
	dir := t.TempDir()
	serveSlowly(t, filepath.Join(dir, "ovn-northd.18.ctl"), 700*time.Millisecond, map[string]string{
		"version": "", "stopwatch/show": stopwatchText, "inc-engine/show-stats": engineText,
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(Config{OVSRunDir: t.TempDir(), OVNRunDir: dir}))
	lines := gathered(t, registry)
	require.Contains(t, lines, "coe_agent_daemon_up ovn-northd 1")
	require.NotContains(t, lines, "coe_agent_daemon_recomputes_total ovn-northd northd 17")
}

// gathered returns the metrics of a registry, as lines with name, values of labels and value, sorted.
func gathered(t *testing.T, registry *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "coe_agent_daemon_answer_seconds" {
			continue // it varies
		}
		for _, m := range f.GetMetric() {
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}
			lines = append(lines, fmt.Sprintf("%s %v", line, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	slices.Sort(lines)
	return lines
}
