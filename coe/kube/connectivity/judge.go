package connectivity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Cause is why a probe did not connect.
type Cause string

// The causes.
const (
	NoAnswer Cause = "no answer"
	Refused  Cause = "connection refused"
	NoName   Cause = "the name cannot be resolved"
	Other    Cause = "cannot connect"
	// NotRun means that the probe did not run, so that nothing is known about the path.
	NotRun Cause = "the probe did not run"
)

// Outcome is what a probe has found: a connection, or the cause why there is none.
type Outcome struct {
	Cause  Cause // empty: the probe connected
	Detail string
}

// Read reads what agnhost connect has written before it failed: a line that begins with one word for
// the cause.
func Read(text string) Outcome {
	for line := range strings.Lines(text) {
		word, detail, _ := strings.Cut(strings.TrimSpace(line), ":")
		detail = strings.TrimSpace(detail)
		switch word {
		case "TIMEOUT":
			return Outcome{Cause: NoAnswer}
		case "REFUSED":
			return Outcome{Cause: Refused}
		case "DNS":
			return Outcome{NoName, detail}
		case "OTHER", "UNKNOWN":
			return Outcome{Other, detail}
		}
	}
	return Outcome{NotRun, strings.TrimSpace(text)}
}

// String describes an outcome for a person.
func (o Outcome) String() string {
	if o.Detail == "" {
		return cmp.Or(string(o.Cause), "connected")
	}
	return string(o.Cause) + ": " + o.Detail
}

// Status is the verdict about a check.
type Status string

// The verdicts.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is a check with its verdict.
type Result struct {
	Check
	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Next says what to do about a failure.
	Next string `json:"next,omitempty"`
	// Tries is the number of probes until the verdict.
	Tries int `json:"tries,omitempty"`
	// Cause is the cause of the last probe that did not connect, of a check that has failed.
	Cause Cause `json:"-"`
}

// isMet reports whether an outcome is the wanted one.
func (c Check) isMet(o Outcome) bool {
	if c.Blocked {
		return o.Cause != "" && o.Cause != NotRun && (o.Cause != Refused || !c.RefusedOpen)
	}
	return o.Cause == ""
}

// Known returns the result of a check that needs no probe.
func (c Check) Known() (Result, bool) {
	switch {
	case c.Skip != "":
		return Result{Check: c, Status: Skipped, Reason: c.Skip}, true
	case c.Problem != "":
		return Result{Check: c, Status: Failed, Reason: c.Problem, Next: c.mend()}, true
	case c.Kind == PodStart:
		return Result{Check: c, Status: Passed}, true
	}
	return Result{}, false
}

// NotRun returns the result of a check whose probes were not run to the end, for a reason.
func (c Check) NotRun(reason error) Result {
	return Result{Check: c, Status: Skipped, Reason: "not run: " + reason.Error()}
}

// Trial collects the outcomes of the probes of a check until they show its result. An unwanted outcome is
// worth another try, because a cluster needs a moment to enforce what has just been created.
type Trial struct {
	Check Check
	tries int
	// seen are the probes since the first wanted outcome, met those with the wanted one.
	seen, met int
	failed    Outcome // the last unwanted one
}

// enough is the number of wanted outcomes that show a result. A client that connects at once needs one.
const enough = 3

// Add adds the outcome of a probe, and returns the result unless another probe is needed. If isLate, an
// unwanted outcome is the last one.
func (t *Trial) Add(o Outcome, isLate bool) (r Result, isOver bool) {
	t.tries++
	isMet := t.Check.isMet(o)
	switch {
	case isMet:
		t.seen++
		t.met++
	case o.Cause == NotRun || t.seen == 0:
		return t.Check.judge(o, t.tries), isLate
	case t.Check.Blocked: // a policy is enforced on some of the connections
		t.seen, t.met = 0, 0
		return t.Check.judge(o, t.tries), isLate
	default:
		t.seen++
		t.failed = o
	}
	if !t.Check.Blocked && t.tries == 1 {
		return t.Check.judge(o, t.tries), true
	}
	if t.met == t.seen {
		return t.Check.judge(o, t.tries), t.seen == enough
	}
	r = t.Check.judge(t.failed, t.tries)
	r.Reason = fmt.Sprintf("%d of %d probes connected: %s", t.met, t.seen, r.Reason)
	return r, t.seen == enough
}

// judge returns the result of a check whose probes have an outcome.
func (c Check) judge(last Outcome, tries int) Result {
	r := Result{Check: c, Status: Passed, Tries: tries}
	if c.isMet(last) {
		return r
	}
	r.Status, r.Reason, r.Next, r.Cause = Failed, last.String(), c.next(last), last.Cause
	switch {
	case c.Blocked && last.Cause == "":
		r.Reason = "connected, although a policy denies it"
	case c.Blocked && last.Cause == Refused:
		r.Reason = "connection refused, as without a policy: nothing is known about the policy"
	case c.Kind == FullPackets && last.Cause == NoAnswer:
		r.Reason = fmt.Sprintf("no answer to packets of %d bytes", c.Bytes)
	}
	return r
}

// NoProbe returns why no probe of the results has run in a pod; empty if one has, or if none was needed.
func NoProbe(results []Result) (reason string) {
	for _, r := range results {
		if r.From == ThisMachine {
			continue
		}
		if r.Tries > 0 && r.Cause != NotRun {
			return ""
		}
		if r.Cause == NotRun {
			reason = r.Reason
		}
	}
	return reason
}

// mend says what to do about a failure that is known without a probe.
func (c Check) mend() string {
	switch {
	case c.Kind != PodStart:
	case isOfImage(c.Problem):
		return "let the nodes pull the image, or copy it to a registry that they reach, and name the copy with --image"
	default:
		return c.next(Outcome{})
	}
	return fmt.Sprintf("let the API server accept the objects of the test, or use --skip %s", c.Kind)
}

// isOfImage reports whether kubelet could not get the image of a pod.
func isOfImage(problem string) bool {
	reason, _, _ := strings.Cut(problem, ":")
	return slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError"}, reason)
}

// next says what to do about a failure.
func (c Check) next(last Outcome) string {
	if last.Cause == NotRun {
		return "repeat the test with --keep, and run the probe by hand: kubectl exec"
	}
	kind := c.Kind
	if kind == DNS && last.Cause != NoName {
		kind = PodToService // the name was resolved
	}
	for _, k := range kinds {
		if k.kind == kind {
			both := []string{c.FromNode, c.ToNode}
			slices.Sort(both)
			return strings.NewReplacer("FROM", c.FromNode, "TO", c.ToNode, "BOTH", strings.Join(both, " and ")).Replace(k.next)
		}
	}
	return ""
}

// Report is the result of a test.
type Report struct {
	Namespace string   `json:"namespace"`
	Nodes     []string `json:"nodes"`
	AllNodes  int      `json:"allNodes"` // the number of nodes of the cluster
	Passed    int      `json:"passed"`
	Failed    int      `json:"failed"`
	Skipped   int      `json:"skipped"`
	Results   []Result `json:"checks"`
}

// NewReport counts and sorts results.
func NewReport(namespace string, f Facts, results []Result) *Report {
	r := &Report{Namespace: namespace, Nodes: []string{}, AllNodes: f.AllNodes, Results: results}
	for _, n := range f.Nodes {
		r.Nodes = append(r.Nodes, n.Name)
	}
	r.Passed, r.Failed, r.Skipped = Count(results)
	order := Kinds()
	slices.SortStableFunc(r.Results, func(a, b Result) int { return slices.Index(order, a.Kind) - slices.Index(order, b.Kind) })
	return r
}

// Count counts results by their verdict.
func Count(results []Result) (passed, failed, skipped int) {
	for _, r := range results {
		switch r.Status {
		case Passed:
			passed++
		case Failed:
			failed++
		default:
			skipped++
		}
	}
	return passed, failed, skipped
}

// ByKind returns the results of a kind.
func (r *Report) ByKind(kind Kind) (results []Result) {
	for _, result := range r.Results {
		if result.Kind == kind {
			results = append(results, result)
		}
	}
	return results
}
