package agent_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/mapping/trace"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestTimesOfAPod: the bridge says when OVN came how far with a pod, or why it has not. Bridge and
// agent measure it.
func TestTimesOfAPod(t *testing.T) {
	lab := ovnhost.ForTest(t, "host1")
	w := newWorldOver(t, lab, "--backend", "ovn", "--ovn-nb", lab.NB.Remote, "--ovn-sb", lab.SB.Remote)
	w.startAgents(patient)
	first := w.pod("host1", 0, "default", "first")
	w.awaitMissing(first, trace.Bound, "no node has claimed the port")
	first.mustAdd()
	pod := w.awaitMissing(first, "", "")
	names := []trace.Stage{"source", "address", "mapped", "wanted", "written", "confirmed", "translated", "bound", "installed"}
	var own []int64
	for i, s := range pod.Stages {
		require.Equal(t, names[i], s.Name)
		require.NotEmpty(t, s.Time, s.Name)
		if s.Name == "mapped" || s.Name == "wanted" {
			require.Nil(t, s.After, "%s is not the pod's own", s.Name)
		} else if require.NotNil(t, s.After, s.Name); s.Name != "confirmed" {
			own = append(own, *s.After)
		}
	}
	require.Equal(t, trace.Installed, pod.Reached)
	require.True(t, slices.IsSorted(own), "%v", own)
	require.Zero(t, own[0])

	// The pod waits while northd is stopped, and the bridge says so.
	require.NoError(t, lab.Northd.Stop())
	second := w.pod("host1", 1, "default", "second")
	added := make(chan error, 1)
	go func() {
		_, err := second.add(t.Context(), invoke{})
		added <- err
	}()
	w.awaitMissing(second, trace.Translated, "check that ovn-northd runs")
	require.NoError(t, lab.Northd.Cont())
	require.NoError(t, <-added)
	w.awaitMissing(second, "", "")

	want := map[string]float64{`coe_bridge_pods{stage="installed"}`: 2}
	for _, stage := range []string{"address", "written", "translated", "bound", "installed", "total"} {
		want[`coe_bridge_pod_stage_seconds_count{stage="`+stage+`"}`] = 2
	}
	for metric, value := range map[string]float64{"up": 1, "leader": 1, "connected": 1, "log_index": 0} {
		for database, endpoint := range map[string]string{"OVN_Northbound": lab.NB.Remote, "OVN_Southbound": lab.SB.Remote} {
			want[fmt.Sprintf("coe_bridge_ovn_server_%s{database=%q,endpoint=%q}", metric, database, endpoint)] = value
		}
	}
	w.awaitMetrics(w.bridgeMetrics, want)
	w.awaitMetrics(w.agentMetrics, map[string]float64{
		"coe_agent_flows_seconds_count": 2, `coe_agent_daemon_up{daemon="ovs-vswitchd"}`: 1,
		`coe_agent_daemon_up{daemon="ovsdb-server"}`: 1, `coe_agent_daemon_up{daemon="ovn-controller"}`: 1,
	})
	await(t, "parts and tasks of ovn-controller, and flows", func() error {
		text, err := w.agentMetrics()
		for _, metric := range []string{
			`coe_agent_daemon_recomputes_total{daemon="ovn-controller",part="logical_flow_output"}`,
			`coe_agent_daemon_task_seconds{daemon="ovn-controller",stat="p95",task="flow-generation"}`,
			`coe_agent_daemon_size{daemon="ovs-vswitchd",of="rules"}`,
			`coe_agent_daemon_size{daemon="ovsdb-server",of="cells"}`,
			`coe_agent_daemon_size{daemon="ovn-controller",of="idl-cells-OVN_Southbound"}`,
		} {
			if err == nil && value(text, metric) < 0 {
				err = fmt.Errorf("no %s in %s", metric, text)
			}
		}
		return err
	})

	// A database that hangs does not hold up the metrics. Without it the last known times count.
	require.NoError(t, lab.SB.Stop())
	w.awaitMetrics(w.bridgeMetrics, map[string]float64{`coe_bridge_ovn_server_up{database="OVN_Southbound",endpoint="` + lab.SB.Remote + `"}`: 0})
	require.Equal(t, trace.Installed, w.traced(second).Reached)
	require.NoError(t, lab.SB.Cont())
}

// awaitMetrics waits until metrics have these values.
func (w *world) awaitMetrics(read func() (string, error), want map[string]float64) {
	w.t.Helper()
	await(w.t, "metrics", func() error {
		text, err := read()
		for metric, n := range want {
			if got := value(text, metric); err == nil && got != n {
				err = fmt.Errorf("%s is %v, want %v", metric, got, n)
			}
		}
		return err
	})
}

// traced returns the trace of a pod.
func (w *world) traced(s *sandbox) status.Pod {
	w.t.Helper()
	var pods status.Pods
	_, err := w.bridge.Client().Read(w.t.Context(), "operational/coe-status:pods", &pods)
	require.NoError(w.t, err)
	for _, ns := range pods.Namespaces {
		for _, p := range ns.Pods {
			if p.UID == s.uid {
				return p
			}
		}
	}
	return status.Pod{}
}

// awaitMissing waits until a pod lacks a stage, with a reason.
func (w *world) awaitMissing(s *sandbox, missing trace.Stage, why string) (p status.Pod) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%s lacks %q", s.name, missing), func() error {
		p = w.traced(s)
		if p.UID == "" || p.Missing != missing || p.Reached == "confirmed" && missing == "" {
			return fmt.Errorf("%+v", p)
		}
		for _, stage := range p.Stages {
			if stage.Name == missing && !strings.Contains(stage.Detail, why) {
				return fmt.Errorf("%+v", stage)
			}
		}
		return nil
	})
	return p
}

func (w *world) bridgeMetrics() (string, error) {
	status, text := w.bridge.Bridge().Do(http.MethodGet, "/metrics", "")
	if status != http.StatusOK {
		return "", fmt.Errorf("status %d: %s", status, text)
	}
	return text, nil
}

// agentMetrics returns the metrics of the agent of host1.
func (w *world) agentMetrics() (string, error) {
	return w.lab.HTTPGet(w.t.Context(), "host1", "http://127.0.0.1:8182/metrics")
}

// value returns the value of a metric; -1 if there is none.
func value(metrics, name string) float64 {
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(metrics)
	if m == nil {
		return -1
	}
	n, _ := strconv.ParseFloat(m[1], 64)
	return n
}
