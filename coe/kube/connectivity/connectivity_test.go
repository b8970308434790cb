package connectivity

import (
	"net/netip"
	"slices"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// facts returns the facts of a cluster with a number of nodes, whose pods have both families.
func facts(nodes ...string) Facts {
	f := Facts{
		DNS: true, Outside: "192.0.2.1:443", AllNodes: len(nodes),
		Machine: Machine{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")}},
	}
	for i, n := range nodes {
		number := string(rune('1' + i))
		both := func(network string) []netip.Addr {
			return []netip.Addr{netip.MustParseAddr("10." + network + ".0." + number), netip.MustParseAddr("fd00:" + network + "::" + number)}
		}
		f.Nodes = append(f.Nodes, Node{n, both("1"), 10250})
		f.Pods = append(f.Pods,
			Pod{Name: "client-" + number, Node: n, Role: Client, Addresses: both("2"), MTU: 1400},
			Pod{Name: "server-" + number, Node: n, Role: Server, Addresses: both("3")},
			Pod{Name: "host-" + number, Node: n, Role: Host, Addresses: both("1")})
		f.Services = append(f.Services, Service{Name: "server-" + number, Node: n, Addresses: both("4")})
		f.NodePorts = append(f.NodePorts, Service{Name: "node-port-" + number, Node: n, Addresses: both("5"), NodePorts: map[Protocol]uint16{TCP: 30001 + uint16(i), UDP: 31001 + uint16(i)}})
	}
	return f
}

// ways returns the ways of the checks of a kind that are run, and the reasons of the others.
func ways(checks []Check, kind Kind) (run, skipped []string) {
	for _, c := range checks {
		switch {
		case c.Kind != kind:
		case c.Skip != "":
			skipped = append(skipped, c.Skip)
		default:
			run = append(run, c.Way())
		}
	}
	return run, skipped
}

func TestPlan(t *testing.T) {
	checks := Plan(facts("n1", "n2"), nil)
	for kind, want := range map[Kind][]string{
		SameNode: {
			"client-1 on n1 -> server-1 on n1 (TCP 10.3.0.1:8080)", "client-1 on n1 -> server-1 on n1 (UDP 10.3.0.1:8080)",
			"client-1 on n1 -> server-1 on n1 (TCP [fd00:3::1]:8080)", "client-1 on n1 -> server-1 on n1 (UDP [fd00:3::1]:8080)",
			"client-2 on n2 -> server-2 on n2 (TCP 10.3.0.2:8080)", "client-2 on n2 -> server-2 on n2 (UDP 10.3.0.2:8080)",
			"client-2 on n2 -> server-2 on n2 (TCP [fd00:3::2]:8080)", "client-2 on n2 -> server-2 on n2 (UDP [fd00:3::2]:8080)",
		},
		DNS: {
			"client-1 on n1 -> server-1 on n1 (TCP server-1:8080)", "client-1 on n1 -> server-2 on n2 (TCP server-2:8080)",
			"client-2 on n2 -> server-1 on n1 (TCP server-1:8080)", "client-2 on n2 -> server-2 on n2 (TCP server-2:8080)",
		},
		Hairpin: {
			"server-1 on n1 -> server-1 on n1 (TCP 10.4.0.1:8080)", "server-1 on n1 -> server-1 on n1 (TCP [fd00:4::1]:8080)",
			"server-2 on n2 -> server-2 on n2 (TCP 10.4.0.2:8080)", "server-2 on n2 -> server-2 on n2 (TCP [fd00:4::2]:8080)",
		},
		PodToNode: {
			"client-1 on n1 -> n1 (TCP 10.1.0.1:10250)", "client-1 on n1 -> n1 (TCP [fd00:1::1]:10250)",
			"client-1 on n1 -> n2 (TCP 10.1.0.2:10250)", "client-1 on n1 -> n2 (TCP [fd00:1::2]:10250)",
			"client-2 on n2 -> n1 (TCP 10.1.0.1:10250)", "client-2 on n2 -> n1 (TCP [fd00:1::1]:10250)",
			"client-2 on n2 -> n2 (TCP 10.1.0.2:10250)", "client-2 on n2 -> n2 (TCP [fd00:1::2]:10250)",
		},
		NodePort: { // each node serves the server of the other one
			"host-1 on n1 -> n1 (TCP 10.1.0.1:30002)", "host-1 on n1 -> n1 (UDP 10.1.0.1:31002)",
			"host-1 on n1 -> n1 (TCP [fd00:1::1]:30002)", "host-1 on n1 -> n1 (UDP [fd00:1::1]:31002)",
			"host-1 on n1 -> n2 (TCP 10.1.0.2:30001)", "host-1 on n1 -> n2 (UDP 10.1.0.2:31001)",
			"host-1 on n1 -> n2 (TCP [fd00:1::2]:30001)", "host-1 on n1 -> n2 (UDP [fd00:1::2]:31001)",
			"host-2 on n2 -> n1 (TCP 10.1.0.1:30002)", "host-2 on n2 -> n1 (UDP 10.1.0.1:31002)",
			"host-2 on n2 -> n1 (TCP [fd00:1::1]:30002)", "host-2 on n2 -> n1 (UDP [fd00:1::1]:31002)",
			"host-2 on n2 -> n2 (TCP 10.1.0.2:30001)", "host-2 on n2 -> n2 (UDP 10.1.0.2:31001)",
			"host-2 on n2 -> n2 (TCP [fd00:1::2]:30001)", "host-2 on n2 -> n2 (UDP [fd00:1::2]:31001)",
		},
		FromOutside: {
			"this machine -> n1 (TCP 10.1.0.1:30002)", "this machine -> n1 (UDP 10.1.0.1:31002)",
			"this machine -> n1 (TCP [fd00:1::1]:30002)", "this machine -> n1 (UDP [fd00:1::1]:31002)",
			"this machine -> n2 (TCP 10.1.0.2:30001)", "this machine -> n2 (UDP 10.1.0.2:31001)",
			"this machine -> n2 (TCP [fd00:1::2]:30001)", "this machine -> n2 (UDP [fd00:1::2]:31001)",
		},
		Outside: {"client-1 on n1 -> 192.0.2.1:443", "client-2 on n2 -> 192.0.2.1:443"},
	} {
		run, skipped := ways(checks, kind)
		require.Equal(t, want, run, kind)
		require.Empty(t, skipped, kind)
	}
	numbers := map[Kind]int{}
	for _, c := range checks {
		numbers[c.Kind]++
	}
	require.Equal(t, map[Kind]int{
		PodStart: 6, SameNode: 8, OtherNode: 8, FullPackets: 8, PodToService: 16, DNS: 4, Hairpin: 4, PodToNode: 8, NodeToPod: 8, NodeToService: 8,
		NodePort: 16, FromOutside: 8, Outside: 2, PolicyDeny: 8, PolicyAllow: 8,
	}, numbers)
}

// A kind that cannot be checked says why.
func TestPlanWithout(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Facts)
		kind   Kind
		reason string
	}{
		"one node":       {func(f *Facts) { *f = facts("n1") }, OtherNode, "the test has only one node"},
		"no name server": {func(f *Facts) { f.DNS = false }, DNS, "the cluster has no name server: no service of kube-system or openshift-dns has UDP port 53"},
		"no address":     {func(f *Facts) { f.Outside = "" }, Outside, "no address is given: name one with --outside HOST:PORT"},
		"no node ports":  {func(f *Facts) { f.NodePorts = nil }, NodePort, "the services have no node port"},
		"inside":         {func(f *Facts) { f.Machine.Inside = "this machine is node n1" }, FromOutside, "this machine is node n1"},
		"no address outside": {
			func(f *Facts) { f.Machine.Addresses = nil }, FromOutside, "this machine has no address of a family of the nodes and the services",
		},
		"no family": {
			func(f *Facts) {
				for i := range f.Pods {
					if f.Pods[i].Role == Server {
						f.Pods[i].Addresses = nil
					}
				}
			},
			OtherNode, "the pods have no address of the same family",
		},
		"no MTU":    {func(f *Facts) { f.Pods[0].MTU = 0 }, FullPackets, "the MTU of pod client-1 is unknown"},
		"no client": {func(f *Facts) { f.Pods[0].Problem = "no network" }, PodToNode, "pod client-1 does not run"},
		"no server": {func(f *Facts) { f.Pods[1].Problem = "no network" }, NodePort, "pod server-1 does not run"},
		"no node address": {
			func(f *Facts) {
				for i := range f.Nodes {
					f.Nodes[i].Addresses = nil
				}
			},
			PodToNode, "no pod has an address of a family of a node",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts("n1", "n2")
			test.change(&f)
			_, skipped := ways(Plan(f, nil), test.kind)
			require.Contains(t, skipped, test.reason)
		})
	}
}

// Only families that both ends have are checked.
func TestPlanFamilies(t *testing.T) {
	f := facts("n1")
	f.Pods[1].Addresses = f.Pods[1].Addresses[:1]
	f.NodePorts[0].Addresses = f.NodePorts[0].Addresses[1:]
	checks := Plan(f, nil)
	run, skipped := ways(checks, SameNode)
	require.Empty(t, skipped)
	require.Equal(t, []string{
		"client-1 on n1 -> server-1 on n1 (TCP 10.3.0.1:8080)", "client-1 on n1 -> server-1 on n1 (UDP 10.3.0.1:8080)",
	}, run)
	run, skipped = ways(checks, NodePort)
	require.Empty(t, skipped)
	require.Equal(t, []string{"host-1 on n1 -> n1 (TCP [fd00:1::1]:30001)", "host-1 on n1 -> n1 (UDP [fd00:1::1]:31001)"}, run)
}

func TestPlanSkips(t *testing.T) {
	f := facts("n1", "n2")
	skip := []Kind{PodStart, NodePort, PolicyDeny, PolicyAllow} // PodStart cannot be skipped
	var want []Check
	for _, c := range Plan(f, nil) {
		if c.Kind == PodStart || !slices.Contains(skip, c.Kind) {
			want = append(want, c)
		}
	}
	require.Len(t, want, 88)
	require.Equal(t, want, Plan(f, skip))
}

// An object that the API server refuses is a failure of all checks that need it.
func TestPlanRefused(t *testing.T) {
	f := facts("n1", "n2")
	f.Services[0].Problem, f.NodePorts[0].Problem = "quota", "quota of ports"
	f.NodePorts[0].NodePorts, f.NodePorts[0].Addresses = nil, nil
	failed := map[Kind][]string{}
	for _, c := range Plan(f, nil) {
		if r, isKnown := c.Known(); isKnown && r.Status == Failed {
			require.Contains(t, r.Next, "--skip "+string(c.Kind))
			failed[c.Kind] = append(failed[c.Kind], c.From+" "+c.To+" "+r.Reason)
		}
	}
	require.Equal(t, map[Kind][]string{
		PodToService:  {"client-1 server-1 quota", "client-2 server-1 quota"},
		DNS:           {"client-1 server-1 quota", "client-2 server-1 quota"},
		Hairpin:       {"server-1 server-1 quota"},
		NodeToService: {"host-1 server-1 quota", "host-2 server-1 quota"},
		NodePort:      {"host-1 n2 quota of ports", "host-2 n2 quota of ports"},
		FromOutside:   {"this machine n2 quota of ports"},
	}, failed)
}

// A node that is not tested is a result of its own.
func TestPlanUnusedNodes(t *testing.T) {
	f := facts("n1")
	f.Unused = []UnusedNode{{"n2", "is not ready: KubeletDown", true}, {"n3", "is cordoned", false}}
	unused := map[string]string{}
	for _, c := range Plan(f, nil) {
		if c.Kind == PodStart && c.From == "" {
			r, isKnown := c.Known()
			require.True(t, isKnown)
			unused[c.Way()] = string(r.Status) + ": " + r.Reason
		}
	}
	require.Equal(t, map[string]string{"n2": "failed: node n2 is not ready: KubeletDown", "n3": "skipped: node n3 is cordoned"}, unused)
}

// A packet of FullPackets has the size of the MTU, with all headers.
func TestFullPackets(t *testing.T) {
	f := facts("n1")
	for _, test := range []struct{ mtu, v4, v6 int }{{1400, 1372, 1352}, {65535, 9188, 9168}} {
		f.Pods[0].MTU = test.mtu
		sizes := map[string]int{}
		for _, c := range Plan(f, nil) {
			if c.Kind == FullPackets {
				require.Equal(t, UDP, c.Protocol)
				sizes[c.Family] = c.UDPData()
			} else {
				require.Zero(t, c.UDPData())
			}
		}
		require.Equal(t, map[string]int{"IPv4": test.v4, "IPv6": test.v6}, sizes)
	}
}

// The first policy blocks all clients, the second all but the first client. A path that does not work
// anyway is not a check of policies.
func TestSelect(t *testing.T) {
	checks := Plan(facts("n1", "n2"), nil)
	var before []Result
	for _, c := range Select(checks, Open, nil) {
		last := Outcome{}
		if c.Kind == OtherNode && c.From == "client-1" && c.Family == "IPv4" {
			last.Cause = NoAnswer
		}
		before = append(before, c.judge(last, 1))
	}
	selected := func(stage Stage, before []Result) (blocked, open, skipped []string) {
		for _, c := range Select(checks, stage, before) {
			require.Equal(t, stage, c.Stage)
			switch path := c.From + " " + c.To + " " + c.Family; {
			case c.Skip != "":
				skipped = append(skipped, path)
			case c.Blocked:
				blocked = append(blocked, path)
			default:
				open = append(open, path)
			}
		}
		return blocked, open, skipped
	}
	first := []string{"client-1 server-1 IPv4", "client-1 server-1 IPv6", "client-1 server-2 IPv6"}
	second := []string{"client-2 server-1 IPv4", "client-2 server-1 IPv6", "client-2 server-2 IPv4", "client-2 server-2 IPv6"}
	broken := []string{"client-1 server-2 IPv4"}
	blocked, open, skipped := selected(Denied, before)
	require.Equal(t, slices.Concat(first, second), blocked)
	require.Empty(t, open)
	require.Equal(t, broken, skipped)
	blocked, open, skipped = selected(Allowed, before)
	require.Equal(t, second, blocked)
	require.Equal(t, first, open)
	require.Equal(t, broken, skipped)
	blocked, open, skipped = selected(Denied, nil)
	require.Empty(t, append(blocked, open...))
	require.Len(t, skipped, 8)
}

// A server that refuses connections without a policy does not show by it that a policy denies them.
func TestSelectRefused(t *testing.T) {
	checks := Plan(facts("n1", "n2"), nil)
	var before []Result
	for _, c := range Select(checks, Open, nil) {
		last := Outcome{}
		if c.From == "client-1" && c.Target == "10.3.0.2:8080" && c.Protocol == TCP {
			last.Cause = Refused
		}
		before = append(before, c.judge(last, 1))
	}
	for _, c := range Select(checks, Denied, before) {
		require.Equal(t, c.Target == "10.3.0.2:8080", c.RefusedOpen, c.Way())
	}
}

// trial adds outcomes, one a letter: c connected, n no answer, r refused, x not run; an upper case one is
// late. It returns the result, and how many outcomes were needed.
func trial(t *testing.T, c Check, outcomes string) (Result, int) {
	t.Helper()
	causes := map[rune]Cause{'c': "", 'n': NoAnswer, 'r': Refused, 'x': NotRun}
	trial := Trial{Check: c}
	for i, letter := range outcomes {
		if r, isOver := trial.Add(Outcome{Cause: causes[unicode.ToLower(letter)]}, unicode.IsUpper(letter)); isOver {
			return r, i + 1
		}
	}
	require.Fail(t, "the trial is not over", outcomes)
	return Result{}, 0
}

func TestTrial(t *testing.T) {
	path := Check{Kind: OtherNode, Target: "10.3.0.2:8080"}
	denied := Check{Kind: PolicyDeny, Target: "10.3.0.2:8080", Blocked: true}
	refused := denied
	refused.RefusedOpen = true
	for name, test := range map[string]struct {
		check    Check
		outcomes string
		status   Status
		reason   string
	}{
		"at once":                     {path, "c", Passed, ""},
		"late, then three times":      {path, "nnCCC", Passed, ""},
		"two of three":                {path, "nccn", Failed, "2 of 3 probes connected: no answer"},
		"one of three":                {path, "ncrn", Failed, "1 of 3 probes connected: no answer"},
		"never":                       {path, "nnnR", Failed, "connection refused"},
		"not run between":             {path, "xcxcc", Passed, ""},
		"no longer run":               {path, "ncX", Failed, "the probe did not run"},
		"denied":                      {denied, "nrn", Passed, ""},
		"never denied":                {denied, "ccC", Failed, "connected, although a policy denies it"},
		"denied after a moment":       {denied, "cnncnNN", Passed, ""},
		"not denied every time":       {denied, "nnC", Failed, "connected, although a policy denies it"},
		"denied, not run":             {denied, "nnxX", Failed, "the probe did not run"},
		"refused anyway":              {refused, "rrR", Failed, "connection refused, as without a policy: nothing is known about the policy"},
		"refused anyway, then denied": {refused, "rnnn", Passed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, tries := trial(t, test.check, test.outcomes)
			require.Equal(t, test.status, r.Status)
			require.Equal(t, test.reason, r.Reason)
			require.Equal(t, tries, r.Tries)
			require.Equal(t, test.status == Failed, r.Next != "")
			require.Len(t, test.outcomes, tries, "outcomes that were not needed")
		})
	}
}

func TestNoProbe(t *testing.T) {
	notRun := Check{Kind: SameNode}.judge(Outcome{NotRun, "forbidden"}, 3)
	known, _ := Check{Kind: PodStart}.Known()
	require.Equal(t, "the probe did not run: forbidden", NoProbe([]Result{known, notRun}))
	require.Empty(t, NoProbe([]Result{notRun, Check{Kind: SameNode}.judge(Outcome{Cause: NoAnswer}, 3)}))
	require.Empty(t, NoProbe([]Result{known}))
	machine := Check{Kind: FromOutside, From: ThisMachine}.judge(Outcome{}, 1)
	require.Equal(t, "the probe did not run: forbidden", NoProbe([]Result{machine, notRun}), "this machine needs no pod")
}

// agnhost connect writes these texts.
func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		"TIMEOUT\n": "no answer",
		"TIMEOUT: read udp 10.2.0.1:4711->10.3.0.1:8080: i/o timeout\n": "no answer",
		"REFUSED\n": "connection refused",
		"DNS: lookup server-1 on 10.96.0.10:53: no such host\n":                   "the name cannot be resolved: lookup server-1 on 10.96.0.10:53: no such host",
		"OTHER: dial tcp 10.3.0.1:8080: connect: no route to host\n":              "cannot connect: dial tcp 10.3.0.1:8080: connect: no route to host",
		"UNKNOWN: write udp 10.2.0.1:1->10.3.0.1:8080: write: message too long\n": "cannot connect: write udp 10.2.0.1:1->10.3.0.1:8080: write: message too long",
		"Error: unknown flag: --udp-data\n":                                       "the probe did not run: Error: unknown flag: --udp-data",
		"":                                                                        "the probe did not run",
	} {
		require.Equal(t, want, Read(text).String())
	}
}

func TestJudge(t *testing.T) {
	path := Check{Kind: OtherNode, From: "client-1", FromNode: "n1", To: "server-2", ToNode: "n2"}
	denied := path
	denied.Kind, denied.Blocked = PolicyDeny, true
	back := path
	back.FromNode, back.ToNode = "n2", "n1"
	named := path
	named.Kind = DNS
	full := path
	full.Kind, full.Bytes = FullPackets, 1400
	for name, test := range map[string]struct {
		check  Check
		last   Outcome
		status Status
		reason string
		next   string // a part of it
	}{
		"open":           {path, Outcome{}, Passed, "", ""},
		"no answer":      {path, Outcome{Cause: NoAnswer}, Failed, "no answer", "let nodes n1 and n2 exchange the packets of tunnels"},
		"the way back":   {back, Outcome{Cause: NoAnswer}, Failed, "no answer", "let nodes n1 and n2 exchange the packets of tunnels"},
		"no name":        {named, Outcome{NoName, "no such host"}, Failed, "the name cannot be resolved: no such host", "k8s-app=kube-dns"},
		"a name":         {named, Outcome{Cause: NoAnswer}, Failed, "no answer", "check what serves cluster IPs"},
		"denied":         {denied, Outcome{Cause: NoAnswer}, Passed, "", ""},
		"rejected":       {denied, Outcome{Cause: Refused}, Passed, "", ""},
		"not denied":     {denied, Outcome{}, Failed, "connected, although a policy denies it", "--skip policy-deny,policy-allow"},
		"nothing known":  {denied, Outcome{NotRun, "forbidden"}, Failed, "the probe did not run: forbidden", "--keep"},
		"too large":      {full, Outcome{Cause: NoAnswer}, Failed, "no answer to packets of 1400 bytes", "smaller MTU"},
		"full, not sent": {full, Outcome{Cause: Refused}, Failed, "connection refused", "smaller MTU"},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.check.judge(test.last, 3)
			require.Equal(t, test.status, r.Status)
			require.Equal(t, test.reason, r.Reason)
			require.Equal(t, 3, r.Tries)
			require.Contains(t, r.Next, test.next)
			require.Equal(t, test.status == Passed, r.Next == "")
		})
	}
}

// Every kind has a title, and says what to do about a failure, with the names of nodes filled in.
func TestKinds(t *testing.T) {
	for _, k := range Kinds() {
		require.NotEmpty(t, k.Title(), k)
		next := Check{Kind: k, FromNode: "n1", ToNode: "n2"}.next(Outcome{Cause: NoAnswer})
		require.NotEmpty(t, next, k)
		require.NotRegexp(t, "FROM|TO|BOTH", next)
	}
	require.Empty(t, Kind("xyzzy").Title())
}

func TestReport(t *testing.T) {
	f := facts("n1", "n2")
	f.Pods[0].Problem = "ImagePullBackOff: not found"
	var results []Result
	for _, c := range slices.Backward(Plan(f, nil)) {
		r, known := c.Known()
		last := Outcome{}
		if c.Blocked {
			last.Cause = NoAnswer
		}
		if !known {
			r = c.judge(last, 1)
		}
		results = append(results, r)
	}
	r := NewReport("test-1", f, results)
	require.Equal(t, []string{"n1", "n2"}, r.Nodes)
	require.Equal(t, 2, r.AllNodes)
	require.Equal(t, 1, r.Failed)
	require.Equal(t, len(results), r.Passed+r.Failed+r.Skipped)
	var kinds []Kind
	for _, result := range r.Results {
		kinds = append(kinds, result.Kind)
	}
	require.Equal(t, Kinds(), slices.Compact(kinds))
	starts := r.ByKind(PodStart)
	require.Len(t, starts, 6)
	failed := slices.IndexFunc(starts, func(r Result) bool { return r.Status == Failed })
	require.Equal(t, "client-1", starts[failed].From)
	require.Equal(t, "ImagePullBackOff: not found", starts[failed].Reason)
	require.Contains(t, starts[failed].Next, "name the copy with --image")
}

// TestNextOfStart: a pod without its image needs another image, and one without its network the doctor.
func TestNextOfStart(t *testing.T) {
	for problem, next := range map[string]string{
		"ErrImagePull: not found":             "name the copy with --image",
		"InvalidImageName: couldn't parse it": "name the copy with --image",
		"FailedCreatePodSandBox: no plugin":   "run coe-bridge doctor on node n1",
		"it does not run after 2m0s":          "run coe-bridge doctor on node n1",
	} {
		r, known := Check{Kind: PodStart, FromNode: "n1", Problem: problem}.Known()
		require.True(t, known)
		require.Contains(t, r.Next, next, problem)
	}
}
